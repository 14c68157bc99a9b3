"""A reward that is loaded from its folder, on a tiny model."""

import judge_checkpoint
import presets
import pytest
import torch
from stages.loops.group_rl import GroupRlConfig
from tiny_checkpoints import CPU, PAD, checkpoint, compute, load
from tiny_rollouts import OPTIM, alone, decode, make_prompts, make_sampler, weights

from stages.engines import transformers
from stages.loops import group_rl, rl_run, rollouts
from stages.loops.rollouts import Actor, RolloutConfig, Task
from stages.models import model_tokenizer, policy, scalar_head
from stages.models.policy import Policy
from stages.models.policy_judge import option_tokens
from stages.records.problems import Prompt
from stages.rewards import reward_file
from stages.rewards.feedback.prompts import judge_message
from stages.rewards.reward_file import RewardFile
from stages.sampler import Sample


def write(path, kinds, model=None, own=None, aggregate="mean", **settings):
    """A reward's folder: components of these kinds, each with a weight of 2."""
    body = {"weight": 2.0, "cap": None, "normalise": {"kind": "none"}}
    components = {kind: {"value": {"kind": kind, **settings}, **body} for kind in kinds}
    content = RewardFile(
        kind="rule",
        model=model,
        composition={"components": components, "combine": {"kind": "sum"}},
        aggregate={"kind": aggregate},
        own=own,
        own_digest=None,
    )
    path.mkdir(exist_ok=True)
    reward_file.write(path, content)
    return path


@pytest.fixture
def actor():
    model = load("llama")
    return Actor(
        policy=Policy(model),
        reference=None,
        sampler=make_sampler(model),
        decode=decode,
        pad_id=PAD,
        compute=compute(),
    )


@pytest.fixture
def drawn(actor):
    return rollouts.sample_rollouts(
        actor.sampler, decode, make_prompts(2), step=0, seed=0, group_size=3,
        config=RolloutConfig(temperature=1.0, max_new_tokens=6),
    )  # fmt: skip


def test_the_scorer_of_the_seed_is_asked_about_the_completions_at_hand(actor, drawn, tmp_path):
    model = scalar_head.init_scalar_model(checkpoint("llama"), PAD, compute(), CPU)
    torch.nn.init.normal_(model.score.weight, generator=torch.Generator().manual_seed(0))
    model.save_pretrained(tmp_path / "3/model")
    scores = rl_run.of_model(alone(model), drawn, compute(), PAD).totals
    assert len(set(scores)) > 1
    write(tmp_path, ("scorer", "answer"), model="reward")
    found = rl_run.load_reward(tmp_path, 3, actor, 6)(drawn)
    assert found.totals == pytest.approx([2 * score for score in scores], rel=1e-5)
    assert found.parts["scorer"] == pytest.approx(scores, rel=1e-5)
    assert found.parts["answer"] == [0.0] * 6


def test_an_ensemble_is_asked_like_one_model_and_its_disagreement_is_logged(actor, drawn, tmp_path):
    scores = []
    for seed in range(3):
        model = scalar_head.init_scalar_model(
            checkpoint("llama"), PAD, compute(), CPU, head_seed=seed
        )
        model.save_pretrained(tmp_path / f"0/model/{seed}")
        scores.append(rl_run.of_model(alone(model), drawn, compute(), PAD).rewards())
    write(tmp_path, ["scorer"], model="reward", aggregate="min")
    found = rl_run.load_reward(tmp_path, 0, actor, 6)(drawn)
    lowest = torch.stack(scores).amin(0)
    assert found.totals == pytest.approx((2 * lowest).tolist(), rel=1e-5)
    disagreement = torch.stack(scores).std(0, correction=0).mean().item()
    assert found.metrics["ensemble/disagreement"] == pytest.approx(disagreement, rel=1e-5)


def test_ones_own_function_is_loaded_by_its_file(actor, drawn, tmp_path, monkeypatch):
    monkeypatch.setattr(reward_file, "load_own", lambda word: lambda prompt, text: float(len(word)))
    write(tmp_path, ["own"], own="brevity")
    assert rl_run.load_reward(tmp_path, 0, actor, 6)(drawn).totals == [14.0] * 6


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("scorer", "ask a model: expected model process or reward, found None"),
        ("own", "calls a function of yours: name its file, as `on: own/..`"),
    ],
)
def test_a_reward_without_what_it_asks_is_refused(kind, told, tmp_path):
    with pytest.raises(ValueError, match=told):
        write(tmp_path, [kind])


def test_a_folder_that_is_no_reward_is_refused(actor, tmp_path):
    with pytest.raises(ValueError, match=r"expected a reward in .*, found no reward\.json"):
        rl_run.load_reward(tmp_path, 0, actor, 6)


JUDGE = {"style": "short", "constitution": "none", "min_option_mass": 0.5}


@pytest.fixture
def judging(tmp_path):
    """Actor, reward and prompts; policy and judge are one checkpoint."""
    path = judge_checkpoint.checkpoint()
    (tmp_path / "0").mkdir()
    (tmp_path / "0/model").symlink_to(path)
    tokenizer = model_tokenizer.load_tokenizer(path)
    model = policy.load_policy(path, compute(), CPU)
    actor = Actor(
        policy=Policy(model),
        reference=None,
        sampler=transformers.make_sampler(model, tokenizer, max_batch=64),
        decode=policy.make_decode(tokenizer),
        pad_id=model_tokenizer.pad_id(tokenizer),
        compute=compute(),
    )
    write(tmp_path, ["judge"], model="policy", **JUDGE)
    reward = rl_run.load_reward(tmp_path, 0, actor, 6)
    question = judge_checkpoint.QUESTION
    prompts = [
        Prompt(
            id=f"p{i}", task="solve", question=question, prompt=question,
            prompt_ids=tokenizer(question)["input_ids"], answer="7",
        )
        for i in range(2)
    ]  # fmt: skip
    return actor, reward, prompts


def p_better(one: str, other: str) -> float:
    """P(one beats other), read off the checkpoint's own distribution, both orders averaged."""
    path = judge_checkpoint.checkpoint()
    model, tokenizer = (
        policy.load_policy(path, compute(), CPU),
        model_tokenizer.load_tokenizer(path),
    )
    ones, twos = option_tokens(tokenizer, ("1", "2"))

    def p_first(first: str, second: str) -> float:
        message = judge_message("short", judge_checkpoint.QUESTION, first, second, None)
        with torch.no_grad():
            logits = model(torch.tensor([tokenizer(message)["input_ids"]])).logits[0, -1]
        p = logits.softmax(-1)
        return float(p[ones].sum() / (p[ones].sum() + p[twos].sum()))

    return (p_first(one, other) + 1 - p_first(other, one)) / 2


def test_the_judge_is_the_policy_of_the_folder(judging):
    _, reward, prompts = judging
    best, worst = judge_checkpoint.ANSWERS[0], judge_checkpoint.ANSWERS[4]
    sample = Sample(token_ids=[1], logprobs=[0.0], finish_reason="stop")
    drawn = rollouts.Rollouts(
        prompts=prompts, groups=[0, 0, 1, 1], numbers=[0, 1, 0, 1], samples=[sample] * 4,
        texts=[best, worst, worst, best],
    )  # fmt: skip
    found = reward(drawn)
    p = p_better(best, worst)
    assert p > 0.52, "it has learned to prefer the first of `ANSWERS` to the last"
    assert found.parts["judge"] == pytest.approx([p, 1 - p, 1 - p, p], abs=1e-5)
    assert found.totals == pytest.approx([2 * value for value in found.parts["judge"]])
    assert found.metrics["judge/no_answer"] == 0.0
    assert found.metrics["judge/read_tokens"] > 0


def test_a_policy_is_trained_on_the_verdicts_of_a_judge(judging):
    actor, reward, prompts = judging
    before = weights(actor.policy)
    settings = GroupRlConfig(
        num_steps=2, prompts_per_step=2, group_size=4, temperature=1.5, max_new_tokens=6,
        num_checkpoints=0, optim=OPTIM,
    )  # fmt: skip
    steps = list(
        group_rl.train(
            actor, Task(prompts=prompts, reward=reward, correct=None), [[0, 1]] * 2, settings,
            presets.group_rl("grpo_deepseekmath", kl={"kind": "none"}), 0,
        )
    )  # fmt: skip
    assert not torch.equal(weights(actor.policy), before)
    for step in steps:
        for rows in (step.rows[:4], step.rows[4:]):
            texts = [row.completion for row in rows]
            assert len(set(texts)) > 1
            for i, row in enumerate(rows):
                wins = [p_better(texts[i], texts[j]) for j in (i - 1, (i + 1) % 4)]
                # A weight of 2. The judge stays as it is, while the policy learns.
                assert row.reward == pytest.approx(2 * sum(wins) / 2, abs=1e-5)
        assert step.metrics["reward/judge"] == pytest.approx(0.5, abs=1e-5)
        assert step.metrics["judge/no_answer"] == 0.0
        assert {"judge/gap", "judge/identical", "judge/too_long"} < step.metrics.keys()
