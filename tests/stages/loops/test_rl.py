"""The loop of GRPO, PPO and their relatives: its length, rounds of sampling, and what a step uses.

The gradient of a step and what it logs: `test_definitions`, `test_advantages`.
"""

import itertools
import math
from dataclasses import replace

import presets
import pytest
import torch
from rl_by_hand import CHOICES
from tiny_checkpoints import CPU, PAD, checkpoint, compute, load
from tiny_rollouts import (
    OPTIM,
    draws,
    even_share,
    make_models,
    make_prompts,
    make_rollouts,
    make_sampler,
    make_settings,
    make_task,
    weights,
)
from tiny_rollouts import train as start

from stages.loops import epochs, rl, rollouts
from stages.loops.method import Method
from stages.loops.state import State
from stages.models import scalar_head
from stages.models.scalar_head import ScalarHead
from stages.rewards.completion_rewards import CompletionRewards
from stages.runtime import process

FIRST_FOUR = [[0, 1, 2, 3]]


def train(schedule, preset="grpo_deepseekmath", *, model=None, reward=None, models=None, state=None,
          **changes):  # fmt: skip
    """One training in the game of even tokens; of the default preset without a KL penalty."""
    names = ("num_steps", "prompts_per_step", "optim")
    sizes = {name: changes.pop(name) for name in names if name in changes}
    if preset == "grpo_deepseekmath" and "kl_coef" not in changes:
        changes = {"kl": "none"} | changes
    method, models = presets.method(preset, **changes), models or {}
    if method.advantage == "gae":
        models = {"value": make_value()} | models
    return list(start(schedule, method, model, reward=reward, state=state, sizes=sizes, **models))


def make_value():
    model = scalar_head.init_scalar_model(checkpoint("llama", 1), PAD, compute(), CPU, head_seed=3)
    return ScalarHead(model, compute(), PAD)


def train_ppo(schedule, **changes):
    return train(schedule, "ppo_instructgpt", **{"num_minibatches": 1} | changes)


class Cut:
    """A sampler whose every completion the limit ended."""

    def __init__(self, model):
        self.sampler = make_sampler(model)

    def sample(self, *prompts, **settings):
        groups = self.sampler.sample(*prompts, **settings)
        return [[replace(s, finish_reason="length") for s in group] for group in groups]


@pytest.mark.parametrize("is_checked", [True, False])
def test_of_completions_that_nobody_checked_no_verdict_is_recorded(is_checked):
    """Though their problems have gold answers: where some have none, nothing is checked."""
    task, settings = make_task(), make_settings(presets.method("dr_grpo"), num_steps=1)
    task = task if is_checked else replace(task, check_answers=None)
    (step,) = rl.train(make_models(load("llama")), task, FIRST_FOUR, settings)
    assert {type(row.correct) for row in step.rows} == {bool if is_checked else type(None)}


def test_no_step_learns_from_what_a_reward_returned_after_a_request_to_end(monkeypatch):
    """A reward may catch `Stopped`, as a bare `except:` does, and pay something else."""
    request = process._StopRequest()
    monkeypatch.setattr(process, "_stop_request", request)

    def reward(batch):
        request.requested = True
        return [0.0] * len(batch.samples)

    model = load("llama")
    before = weights(model)
    with pytest.raises(process.Stopped):
        train(FIRST_FOUR, model=model, reward=reward)
    assert torch.equal(weights(model), before)


# --- Length of a run


@pytest.mark.parametrize(
    ("index", "spent", "expected"),
    [
        (0, 100, 20),  # a tenth of the budget in one step of 2 updates
        (1, 400, 10),  # two fifths in two steps: 5 steps
        (4, 1500, 10),  # over the budget: the last step
    ],
)
def test_the_updates_of_a_run_are_estimated_from_the_tokens_spent(index, spent, expected):
    method = Method(num_minibatches=2, token_budget=1000)
    assert rl.estimate_updates(method, 3, index, spent) == expected
    without = Method(num_epochs=2, num_minibatches=2)
    assert rl.estimate_updates(without, 3, index, spent) == 12


def spent(step):
    return step.metrics["tokens/generated"] + step.metrics["tokens/trained"]


@pytest.mark.parametrize("run", [train, train_ppo])
def test_a_budget_ends_training_and_stays_over_in_a_checkpoint(run, tmp_path):
    fixed = run(draws(8, 5, 4, 0))
    budget, state = int(sum(map(spent, fixed[:3]))), State()
    result = run(epochs.endless_batches(8, 4, 0), token_budget=budget, state=state)
    # The same rate and batches, so the same steps.
    assert list(map(spent, result)) == list(map(spent, fixed[:3]))
    assert state.numbers["spent"] == sum(map(spent, result))
    assert state.numbers["over"]
    state.save(tmp_path)
    again = State.load(tmp_path)
    assert run(epochs.endless_batches(8, 4, 0), token_budget=budget, state=again) == []


def test_a_divergence_beyond_its_budget_ends_the_training():
    schedule = draws(8, 8, 4, seed=0)
    measured = [step.metrics["kl/sequence"] for step in train(schedule)]
    budget = sorted(measured)[4]
    stopped = train(schedule, kl_budget=budget)
    first_beyond = next(i for i, value in enumerate(measured) if value > budget)
    assert [s.metrics["kl/sequence"] for s in stopped] == measured[: first_beyond + 1]


def test_steps_in_a_row_without_an_end_are_counted_in_the_state(monkeypatch):
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 3)
    model, state = load("llama"), State()

    with pytest.raises(ValueError, match="max_new_tokens"):
        train(draws(8, 5, 4, 0), model=model, models={"sampler": Cut(model)}, state=state)
    assert (state.step, state.numbers["num_truncated_steps"]) == (2, 2)


def test_the_schedule_is_endless_with_a_budget_of_tokens_alone():
    budget, fixed = (make_settings(Method(token_budget=n), num_steps=3) for n in (10, None))
    steps = list(rl.make_schedule(make_task(8), fixed))
    endless = rl.make_schedule(make_task(8), budget)
    assert [next(endless) for _ in range(20)][:3] == steps


# --- Rounds of sampling


class TableSampler:
    """A sampler of numbers: sample j of prompt p has reward `table[p][j]`, -1 being the greedy."""

    def __init__(self, table):
        self.table, self.calls = table, []

    def draw(self, prompts, group_size):
        numbers = [int(prompt.id[1:]) for prompt in prompts]
        self.calls.append(numbers)
        samples = [-1] if group_size is None else list(range(group_size))
        groups = [i for i in range(len(prompts)) for _ in samples]
        texts = [str(self.table[number][j]) for number in numbers for j in samples]
        batch = make_rollouts([1] * len(groups), groups)
        return replace(batch, prompts=prompts, numbers=samples * len(prompts), texts=texts)

    def reward(self, batch):
        return CompletionRewards(totals=[float(text) for text in batch.texts])


REMAX = {"advantage": "greedy_baseline", "surrogate": "reinforce", "kl": "none"}


@pytest.mark.parametrize(
    ("table", "rounds", "choices", "calls", "used"),
    [
        ([[0, 1], [0, 0]], 1, {}, [[0, 1]], "0011"),
        # Prompts 0 and 3 have a signal, 5 has one too many: two are needed.
        ([[0, 1], [1, 1], [0, 0], [1, 0], [0, 0], [0, 1]], 3, {}, [[0, 1], [2, 3]], "0033"),
        ([[0, 1], [1, 1], [0, 1], [1, 0]], 2, {}, [[0, 1], [2, 3]], "0022"),
        ([[0, 0], [1, 1], [0, 0], [1, 0]], 2, {}, [[0, 1], [2, 3]], "33"),
        ([[0, 1], [1, 0], [0, 0], [0, 0]], 2, {}, [[0, 1]], "0011"),
        # The last is the greedy completion: 0 and 2 differ from it, 3 is one too many.
        (
            [[1, 1, 0], [1, 1, 1], [0, 0, 1], [0, 1, 1]], 2, REMAX,
            [[0, 1], [0, 1], [2, 3], [2, 3]], "0022",
        ),
        ([[1, 1, 0], [0, 0, 1]], 2, REMAX, [[0, 1], [0, 1]], "0011"),
    ],
    ids=["one round", "refilled", "too many", "too few", "enough at once", "greedy", "greedy once"],
)  # fmt: skip
def test_rounds_of_sampling_end_with_enough_groups_that_have_a_signal(
    table, rounds, choices, calls, used
):
    game, method = TableSampler(table), Method(max_rounds=rounds, **choices)
    settings = make_settings(method, prompts_per_step=2, size=2)
    prompts = make_prompts(len(table))
    sampled = rl.sample_and_reward(game.draw, game.reward, prompts, settings.config, method)
    assert game.calls == calls
    batch = sampled.rollouts
    places = sampled.used.nonzero().flatten().tolist() if rounds > 1 else range(4)
    assert [batch.prompt(i).id for i in places] == [f"p{digit}" for digit in used]
    draws_per_round = 2 if choices else 1
    assert sampled.num_rounds == len(calls) / draws_per_round
    assert len(sampled.rewards.totals) == 4 * sampled.num_rounds, "of all, to be counted"
    if choices:
        expected = [table[int(batch.prompt(i).id[1:])][-1] for i in range(len(batch.samples))]
        assert sampled.greedy_rewards.tolist() == expected
        assert sampled.greedy_counts["tokens/generated"] == 2 * sampled.num_rounds


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({}, [1.0, 1.0, 1.0, 1.0, 1.0]),
        ({"truncation_penalty": 0.5}, [1.0, 1.0, 1.0, 0.5, 0.5]),
        ({"truncation": "mask"}, [1.0, 1.0, 1.0, 1.0, 1.0]),
        # 5 of 6 tokens are halfway through a buffer of 2. The last is an episode that was cut at
        # the limit of its transcript.
        ({"overlong_buffer": 2, "overlong_penalty": 0.4}, [1.0, 0.8, 0.6, 0.6, 0.6]),
    ],
    ids=str,
)
def test_penalties_of_truncated_completions_and_of_those_near_the_limit(choices, expected):
    batch = make_rollouts([1, 5, 6, 6, 3], [0, 0, 0, 0, 0])
    cut = [replace(s, finish_reason="length") if i > 2 else s for i, s in enumerate(batch.samples)]
    rewards, batch = CompletionRewards(totals=[1.0] * 5), replace(batch, samples=cut)
    lowered = rl.subtract_length_penalties(rewards, batch, Method(**choices), 6)
    assert lowered.totals == pytest.approx(expected)


# --- What a step uses


@pytest.mark.parametrize("preset", ["grpo_deepseekmath", "dapo", "rloo", "reinforce_pp"])
@pytest.mark.parametrize("kind", ["mask", "exclude"])
def test_a_step_of_which_every_completion_is_masked_is_no_step(preset, kind):
    model = load("llama")
    before = weights(model)
    changes = {"truncation": kind, "num_minibatches": 1, "overlong_buffer": None}
    changes |= {"max_rounds": 1}
    (step,) = train(FIRST_FOUR, preset, model=model, models={"sampler": Cut(model)}, **changes)
    assert torch.equal(weights(model), before)
    assert all(math.isfinite(value) for value in step.metrics.values())
    assert step.metrics["tokens/trained"] == 0
    assert step.metrics["length/truncated"] == 1


def test_groups_without_a_signal_are_not_computed_and_the_mean_is_over_minibatches_with_one():
    def same(batch):
        return [0.5] * len(batch.samples)

    (step,) = train(FIRST_FOUR, reward=same)
    assert step.metrics["advantage/zero_share"] == 1.0
    assert "loss/policy" not in step.metrics
    assert len(step.rows) == 16
    adaptive = {"surrogate": "kl_penalty", "old_kl_target": 0.01}
    (step,) = train(FIRST_FOUR, reward=same, **adaptive)  # whose KL has a gradient
    assert step.metrics.keys() >= {"loss/policy", "kl/old_after"}

    def only_first(batch):  # the other three mini-batches have no gradient
        return [share if i < 4 else 0.5 for i, share in enumerate(even_share(batch.texts))]

    optim = OPTIM | {"learning_rate": 1e-12}
    (alone,) = train([[0]], prompts_per_step=1, optim=optim)
    (among,) = train(FIRST_FOUR, reward=only_first, num_minibatches=4, optim=optim)
    for name in ("entropy", "tokens/trained"):
        assert among.metrics[name] == pytest.approx(alone.metrics[name], rel=1e-5)


def test_mini_batches_are_a_random_partition_of_the_prompts_and_count_what_is_learned_from():
    batch = replace(make_rollouts([2] * 20, [i // 2 for i in range(20)]), prompts=make_prompts(10))
    every, models = torch.ones(20, dtype=torch.bool), make_models(load("llama"))
    right = torch.arange(20) % 2 == 0
    moving = torch.arange(20) < 15

    def parts(index, seed=0):
        settings = replace(make_settings(Method(num_minibatches=4)), seed=seed)
        trainer = rl.Trainer(models=models, task=make_task(8), settings=settings)
        minibatches = trainer.make_minibatches(batch, index, every, every, moving, right)
        assert sum(part.num_sequences for part in minibatches) == 20
        assert sum(part.num_tokens for part in minibatches) == 40
        assert sum(part.num_right_tokens for part in minibatches) == 2 * 8
        indices = [[i for b in part.batches for i in b.indices] for part in minibatches]
        assert sorted(i for part in indices for i in part) == list(range(15))
        return [sorted({batch.groups[i] for i in item}) for item in indices]

    assert sorted(number for part in parts(0) for number in part) == list(range(8))
    assert parts(0) == parts(0)
    assert len({str(parts(index, seed)) for index in range(2) for seed in range(2)}) == 4


# --- The value model alone, at first


def test_at_first_only_the_value_model_learns_and_the_policys_rate_warms_up_after():
    """Of 5 steps the policy learns in 3, of which 0.7 are 2: half of the peak, all of it."""
    optim = OPTIM | {"learning_rate": 3e-4, "warmup_share": 0.7}
    changes = {"value_warmup_steps": 2, "num_steps": 5, "optim": optim}
    changes |= {"kl_target": 0.001, "kl_horizon": 64}
    model, value = load("llama"), make_value()
    before, value_before = weights(model), weights(value)
    steps = train_ppo(draws(8, 2, 4, seed=0), model=model, models={"value": value}, **changes)
    assert torch.equal(weights(model), before)
    assert not torch.equal(weights(value), value_before)
    steps = train_ppo(draws(8, 5, 4, seed=0), **changes)
    rates = [step.metrics.get("optim/learning_rate") for step in steps]
    assert rates == [None, None, *map(pytest.approx, (1.5e-4, 3e-4, 3e-4))]
    assert ["loss/policy" in step.metrics for step in steps] == [False] * 2 + [True] * 3
    assert all("loss/value" in step.metrics for step in steps)
    # Without an update of the policy its coefficient stays.
    coefs = [step.metrics["kl/coef"] for step in steps]
    assert coefs[0] == coefs[1] == coefs[2] != coefs[3]


def test_a_budget_of_tokens_that_the_value_model_alone_would_spend_is_refused():
    model, schedule = load("llama"), epochs.endless_batches(8, 4, 0)
    before = weights(model)
    (first,) = train_ppo(draws(8, 1, 4, 0))
    changes = {"model": model, "value_warmup_steps": 2}
    with pytest.raises(ValueError, match=r"value_warmup_steps 2"):
        train_ppo(schedule, token_budget=int(1.5 * spent(first)), **changes)
    assert torch.equal(weights(model), before)
    # After two steps there are tokens for a third.
    steps = train_ppo(schedule, token_budget=int(2.4 * spent(first)), **changes)
    assert ["loss/policy" in step.metrics for step in steps] == [False, False, True]


# --- Adaptive coefficients


def test_the_coefficient_follows_the_divergence_from_the_reference():
    """Ziegler et al. 2019: the error, clipped to a fifth either way, over the horizon."""
    method = {"kl": "reward", "kl_target": 0.5, "kl_horizon": 64, "num_epochs": 2}
    steps = train_ppo(draws(8, 4, 4, seed=0), **method)
    assert steps[0].metrics["kl/coef"] == 0.02
    errors = []
    for step, following in itertools.pairwise(steps):
        errors.append(max(-0.2, min(0.2, step.metrics["kl/sequence"] / 0.5 - 1)))
        expected = step.metrics["kl/coef"] * (1 + errors[-1] * 16 / 64)
        assert following.metrics["kl/coef"] == pytest.approx(expected, rel=1e-6)
    assert len(set(errors)) > 1


@pytest.mark.parametrize(
    ("measured", "expected"), [(0.016, 2.0), (0.012, 1.0), (0.006, 0.5), (None, 1.0)]
)
def test_the_weight_of_the_divergence_from_the_old_policy_doubles_and_halves(measured, expected):
    method = Method(surrogate="kl_penalty", old_kl_target=0.01)
    metrics = {} if measured is None else {"kl/old_after": measured}
    adapted = rl.adapt_coefs(method, metrics, 16)
    assert (adapted.kl_coef, adapted.old_kl_coef) == (0.04, expected)


def test_the_importance_ratio_before_any_update_is_exactly_1():
    """Where a forward pass has dropout, or another temperature, it is not."""
    old = torch.tensor([[-1.0, -2.0]])
    rl.check_first_ratio(old.clone(), old)
    with pytest.raises(AssertionError, match="before any update"):
        rl.check_first_ratio(old + torch.tensor([[0.0, 1e-6]]), old)


@pytest.mark.parametrize("row", CHOICES["kl"][2:], ids=str)
def test_a_divergence_of_a_long_completion_in_float32_is_that_in_float64(row):
    """Outside of the mask is no number."""
    generator, method = torch.Generator().manual_seed(0), Method(**row)
    logprobs = -torch.rand(1, 2000, generator=generator, dtype=torch.float64)
    noise = 1e-3 * torch.randn(2, 1, 2000, generator=generator, dtype=torch.float64)
    narrow = [values.float() for values in (logprobs, *(logprobs + noise))]
    mask, outside = torch.ones(1, 2000, dtype=torch.bool), torch.full((1, 1), math.nan)
    expected = rl.kl_losses(*(values.double() for values in narrow), mask, method)
    padded = [torch.cat([values, outside], dim=1) for values in narrow]
    actual = rl.kl_losses(*padded, torch.cat([mask, ~mask[:, :1]], dim=1), method)[:, :-1]
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-7)


def test_log_probs_that_are_not_numbers_are_refused_by_the_gradient_of_a_single_update():
    """There is no earlier forward pass that they could differ from."""
    model = load("llama")

    def overflow(batch):
        model.get_output_embeddings().weight.data.fill_(torch.nan)
        return even_share(batch.texts)

    with pytest.raises(ValueError, match="learning rate"):
        next(train(FIRST_FOUR, model=model, reward=overflow, num_minibatches=1))
