"""A reward that is loaded as an entry names it, on a tiny model."""

import pytest
import torch
from tiny_checkpoints import CPU, PAD, checkpoint, compute, load
from tiny_rollouts import alone, decode, make_prompts, make_sampler

from stages.loops import entry_reward, model_reward, rollouts
from stages.loops.actor import Actor
from stages.models import scalar_head
from stages.models.aggregate import Mean, Minimum
from stages.rewards.composition_config import Composition

MEAN = Mean(kind="mean")


def composition(*kinds):
    body = {"weight": 2.0, "cap": None, "normalise": {"kind": "none"}}
    components = {kind: {"value": {"kind": kind}, **body} for kind in kinds}
    return Composition(components=components, combine={"kind": "sum"})


@pytest.fixture
def actor():
    model = load("llama")
    return Actor(
        policy=model, reference=None, sampler=make_sampler(model), decode=decode, pad_id=PAD
    )


@pytest.fixture
def drawn(actor):
    return rollouts.collect(
        actor.sampler, decode, make_prompts(2), step=0, seed=0, group_size=3, temperature=1.0,
        max_new_tokens=6,
    )  # fmt: skip


def test_the_scorer_is_asked_about_the_completions_at_hand(actor, drawn, tmp_path, monkeypatch):
    monkeypatch.setattr(entry_reward, "DATA", tmp_path)
    model = scalar_head.from_policy(checkpoint("llama"), PAD, compute(), CPU)
    torch.nn.init.normal_(model.score.weight, generator=torch.Generator().manual_seed(0))
    model.save_pretrained(tmp_path / "rm")
    scores = model_reward.scores(alone(model), drawn, compute(), PAD).values.tolist()
    assert len(set(scores)) > 1
    judge = entry_reward.load(
        composition("scorer", "answer"), "rm", "none", MEAN, actor, compute(), 6
    )
    found = judge(drawn)
    assert found.totals == pytest.approx([2 * score for score in scores], rel=1e-5)
    assert found.parts["scorer"] == pytest.approx(scores, rel=1e-5)
    assert found.parts["answer"] == [0.0] * 6


def test_an_ensemble_is_asked_like_one_model_and_its_disagreement_is_logged(
    actor, drawn, tmp_path, monkeypatch
):
    monkeypatch.setattr(entry_reward, "DATA", tmp_path)
    scores = []
    for seed in range(3):
        model = scalar_head.from_policy(checkpoint("llama"), PAD, compute(), CPU, head_seed=seed)
        model.save_pretrained(tmp_path / f"ensembles/rm/{seed}")
        scores.append(model_reward.scores(alone(model), drawn, compute(), PAD).values)
    minimum = Minimum(kind="min")
    word = "ensembles/rm"
    judge = entry_reward.load(composition("scorer"), word, "none", minimum, actor, compute(), 6)
    found = judge(drawn)
    lowest = torch.stack(scores).amin(0)
    assert found.totals == pytest.approx((2 * lowest).tolist(), rel=1e-5)
    disagreement = torch.stack(scores).std(0, correction=0).mean().item()
    assert found.metrics == {"ensemble/disagreement": pytest.approx(disagreement, rel=1e-5)}


def test_ones_own_function_is_loaded_by_its_file(actor, drawn, monkeypatch):
    monkeypatch.setattr(
        entry_reward.own_reward, "load", lambda word: lambda prompt, text: float(len(word))
    )
    judge = entry_reward.load(composition("own"), "no_model", "brevity", MEAN, actor, compute(), 6)
    assert judge(drawn).totals == [14.0] * 6


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("scorer", "this reward needs a model: name one as the entry's `scorer`"),
        ("own", "this reward needs a function: name a file of stages/rewards/own/"),
    ],
)
def test_what_the_entry_does_not_name_is_told(actor, kind, told):
    with pytest.raises(ValueError, match=told):
        entry_reward.load(composition(kind), "no_model", "none", MEAN, actor, compute(), 6)


def test_no_model_grades_single_completions_yet(actor):
    with pytest.raises(ValueError, match="of kind judge"):
        entry_reward.load(
            composition("judge"), "train_sft/sft/policy", "none", MEAN, actor, compute(), 6
        )
