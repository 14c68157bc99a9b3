"""The bugs that every other library has had, each with a test here that it would fail.

Some are found by tests that exist for another reason, and only named here:

| Class | Example elsewhere | Found by |
|---|---|---|
| Wrong loss scale: mean of means | trl#5619, verl#3332 | `test_policy_objective_properties`, `test_loop_properties`; `tests/stages/loops/test_every_loop.py` |
| KL estimator and its gradient | OpenRLHF#1309, trl#4638 | `test_kl_gradients`; `tests/stages/algorithms/test_kl.py` |
| Temperature not in the log-probs | trl#3029, NeMo-RL#935 | here; `tests/stages/loops/test_rl.py` |
| Sampler with stale weights | trl#5312, NeMo-RL#4018 | here; `tests/stages/engines/test_transformers.py` |
| EOS and padding in the mask | trl#3091, verl#535 | here; `tests/stages/models/test_policy.py` (the first token, too) |
| NaN from rows without tokens | open-instruct#1685, OpenRLHF#1240 | here; `test_extremes` |
| Logits too large for memory | trl#2773, OpenRLHF#718 | `tests/stages/algorithms/test_logprobs.py` |
| Silent truncation, bad rows | trl#6320, autocontext#1067 | here; `tests/stages/test_prepare_data.py` |
| Labels on other rows after a shuffle | open-instruct#1484 | here; `tests/stages/loops/test_every_loop.py` |
| Stale data cache | open-instruct#1497 | `tests/architecture/test_dvc_deps.py` |
| Dropout in old and reference | trl#3234 | here; `tests/stages/models/test_policy.py`, `tests/stages/loops/test_rl.py` |
| A score that depends on the batch | reward-bench#137, trl#2633 | here; `tests/stages/models/test_scalar_head.py` |
| A run that does not repeat | verl#3126 | `tests/stages/loops/test_every_loop.py` |
"""  # noqa: E501

import math

import presets
import pytest
import torch
from collated import collate
from exact_models import assert_same, language_model, scalar_model, take_gradient
from hypothesis import given
from hypothesis import strategies as st
from random_grids import examples
from tiny_checkpoints import CPU, EOS, PAD, build, compute, load, random_ids
from tiny_rollouts import (
    OPTIM,
    decode,
    make_demonstrations,
    make_models,
    make_prompts,
    make_sampler,
    make_task,
    weights,
)  # fmt: skip

from stages.algorithms.aggregation import token_mean
from stages.loops import rl, rollouts
from stages.loops.method import GroupRlConfig, Settings
from stages.loops.rollouts import RolloutConfig
from stages.models import policy
from stages.models.batch import Group, micro_batches
from stages.models.policy import Policy
from stages.models.scalar_head import ScalarHead

SIZES = {"num_steps": 1, "prompts_per_step": 4, "group_size": 4, "temperature": 0.7}
SIZES |= {"max_new_tokens": 6, "num_checkpoints": 0, "optim": OPTIM}


def train(model, schedule, *, reward, sampler=None, preset="dapo", **changes):
    sizes = {name: changes.pop(name) for name in list(changes) if name in SIZES}
    if preset == "dapo":
        changes = {"overlong_buffer": None} | changes
    method = presets.method(preset, **{"num_minibatches": 1} | changes)
    settings = Settings(config=GroupRlConfig(**SIZES | sizes), method=method, seed=0)
    models = make_models(model, **({} if sampler is None else {"sampler": sampler}))
    return list(rl.train(models, make_task(12, reward), schedule, settings))


def mark(prompt_id: str, text: str) -> float:
    """A reward that tells whose it is."""
    return (7 * int(prompt_id[1:]) + 3 * len(text)) % 11 / 11


def marks(drawn):
    return [mark(drawn.prompt(i).id, text) for i, text in enumerate(drawn.texts)]


@pytest.mark.parametrize("temperature", [0.5, 1.5])
def test_temperature_is_in_every_log_prob_so_reference_and_sampler_agree_at_the_start(temperature):
    steps = train(load("llama"), [[0, 1, 2, 3]], reward=marks, temperature=temperature)
    assert steps[0].metrics["sampling/logprob_gap"] < 1e-5
    assert steps[0].metrics["kl/k1"] == pytest.approx(0, abs=1e-5)
    models = make_models(load("llama"))
    config = RolloutConfig(temperature=temperature, max_new_tokens=6)
    batch = rollouts.sample_rollouts(
        models.sampler, decode, make_prompts(12), step=0, seed=0, group_size=2, config=config
    )
    sizes = GroupRlConfig(**SIZES | {"temperature": temperature})
    frozen = rl.compute_frozen_logprobs(models, make_task(12), batch, sizes)
    torch.testing.assert_close(frozen.ref_logprobs, batch.sampler_logprobs(), rtol=1e-4, atol=1e-4)


def test_stale_weights_in_the_sampler_are_found_after_a_few_updates(monkeypatch):
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 100)
    schedule = [[i % 12 for i in range(j, j + 12)] for j in range(8)]
    train(load("llama"), schedule, reward=marks)
    stale = make_sampler(load("llama"))
    with pytest.raises(ValueError, match="the sampler has other weights"):
        train(load("llama"), schedule, reward=marks, sampler=stale)


@examples(15)
@given(data=st.data())
def test_eos_counts_once_and_padding_never_also_where_they_are_one_token(data):
    rows = data.draw(st.lists(st.integers(0, 5), min_size=2, unique=True))
    made = [make_demonstrations(6)[i] for i in rows]
    model, results = LANGUAGE, []
    for pad in (PAD, EOS, 5):
        groups = [
            Group(prompt_ids=row.prompt_ids, completions=[row.completion_ids], indices=[i])
            for i, row in enumerate(made)
        ]
        batch = collate(groups, 0, pad, CPU)
        assert batch.mask.sum(1).tolist() == [len(row.completion_ids) for row in made]
        last = batch.mask.sum(1, keepdim=True) - 1
        assert (batch.token_ids.gather(1, last) == EOS).all()
        assert (batch.input_ids.flatten()[batch.last_index] == EOS).all()
        logprobs, *_ = Policy(model)(batch, temperature=1.0)
        token_mean(-logprobs, batch.mask, num_tokens=int(batch.mask.sum())).backward()
        results.append(take_gradient(model))
    assert_same(results[1], results[0])
    assert_same(results[2], results[0])


@pytest.mark.parametrize("kind", ["mask", "exclude"])
@pytest.mark.parametrize("preset", ["grpo_deepseekmath", "dapo", "gspo", "rloo", "reinforce_pp"])
def test_a_step_of_which_every_completion_is_masked_is_no_step(preset, kind):
    model = load("llama")
    before = weights(model)

    class Cut:
        def sample(self, prompts, seeds, **arguments):
            drawn = make_sampler(model).sample(prompts, seeds, **arguments)
            for sample in (sample for group in drawn for sample in group):
                object.__setattr__(sample, "finish_reason", "length")
            return drawn

    changes = {"truncation": kind} | ({"max_rounds": 1} if preset == "dapo" else {})
    (step,) = train(model, [[0, 1, 2, 3]], reward=marks, sampler=Cut(), preset=preset, **changes)
    assert torch.equal(weights(model), before)
    assert all(math.isfinite(value) for value in step.metrics.values())
    assert step.metrics["tokens/trained"] == 0


def test_truncation_is_never_silent():
    (step,) = train(load("llama"), [[0, 1, 2, 3]], reward=marks, max_new_tokens=4)
    cut = [EOS not in row.completion_ids for row in step.rows]
    assert any(cut)
    assert [row.finish_reason == "length" for row in step.rows] == cut
    assert step.metrics["length/truncated"] == pytest.approx(sum(cut) / len(cut))
    assert all(len(row.completion_ids) == 4 for row, was in zip(step.rows, cut, strict=True) if was)


@pytest.mark.parametrize("max_rounds", [1, 3])
def test_rewards_follow_their_completions_through_shuffles_and_refills(max_rounds):
    order = [7, 2, 11, 0, 5, 9, 1, 3, 10, 4, 8, 6][: 4 * max_rounds]
    changes = {"max_rounds": max_rounds, "num_minibatches": 3}
    (step,) = train(load("llama"), [order], reward=marks, **changes)
    assert {row.id for row in step.rows} <= {f"p{i}" for i in order}
    assert len({(row.id, row.index) for row in step.rows}) == len(step.rows)
    for row in step.rows:
        assert row.completion == decode(row.completion_ids)
        assert row.reward == pytest.approx(mark(row.id, row.completion), abs=1e-6)


@pytest.mark.parametrize(
    "loader", [load, lambda name: policy.prepare_model(build(name), compute(), CPU)]
)
def test_dropout_is_off_in_training_mode(loader):
    model = loader("llama").train()
    groups = [Group(prompt_ids=[3, 4], completions=[[5, 6, EOS]], indices=[0])]
    batch = collate(groups, 0, PAD, CPU)
    with torch.no_grad():
        result = [Policy(model)(batch, temperature=1.0)[0] for _ in range(3)]
        before = Policy(model.eval())(batch, temperature=1.0)[0]
    assert all(torch.equal(logprobs, before) for logprobs in result)


LANGUAGE, SCALAR = language_model(), scalar_model()


@examples(25)
@given(
    seed=st.integers(0, 2**20),
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    row_tokens=st.sampled_from([0, 8, 16, 40]),
    max_tokens=st.sampled_from([1, 20, 60, 400]),
)
def test_a_score_does_not_depend_on_who_else_is_in_the_batch(seed, sizes, row_tokens, max_tokens):
    generator = torch.Generator().manual_seed(seed)

    def ids(high):
        length = int(torch.randint(1, high, (), generator=generator))
        return random_ids(generator, length)

    ends = iter(range(100))
    groups = [
        Group(
            prompt_ids=ids(7),
            completions=[[*ids(9), EOS] for _ in range(size)],
            indices=[next(ends) for _ in range(size)],
        )
        for size in sizes
    ]
    scores = torch.zeros(sum(sizes), dtype=torch.float64)
    settings = compute(row_tokens=row_tokens, max_tokens=max_tokens)
    with torch.no_grad():
        for batch in micro_batches(groups, settings, PAD, CPU):
            scores[batch.indices] = ScalarHead(SCALAR)(batch)
        for group in groups:
            for index, completion in zip(group.indices, group.completions, strict=True):
                alone = Group(prompt_ids=group.prompt_ids, completions=[completion], indices=[0])
                expected = ScalarHead(SCALAR)(collate([alone], 0, EOS, CPU))
                torch.testing.assert_close(scores[[index]], expected, rtol=1e-10, atol=1e-10)
