"""Rollout batches that older weights have sampled (`Method.staleness`)."""

import hashlib

import every_loop
import presets
import pytest
import torch
from every_loop import NUM_ROWS, Setup
from safetensors.torch import load_file
from tiny_checkpoints import load, plain_logprobs
from tiny_rollouts import (
    OPTIM,
    draws,
    even_share,
    make_models,
    make_sampler,
    make_task,
    weights,
)

from stages.loops import overlap, rl, rollouts
from stages.loops.method import GroupRlConfig, Method, Settings
from stages.loops.state import TENSORS, State
from stages.records.lines import to_json_line
from stages.runtime import checkpoints

NUM_STEPS = 5
SIZES = {"num_steps": NUM_STEPS, "prompts_per_step": 4, "group_size": 4, "temperature": 0.9,
         "max_new_tokens": 6, "num_checkpoints": 0, "optim": OPTIM}  # fmt: skip
# The checks of types within our code pick the items of a list at random.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")


@pytest.fixture(autouse=True)
def _no_answer_ends(monkeypatch):
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 100)


def digest(model):
    return hashlib.sha256(weights(model).numpy().tobytes()).hexdigest()


class WatchedSampler:
    """A sampler that records which weights have sampled which prompts, and how many tokens."""

    def __init__(self, sampler):
        self.sampler, self.calls, self.num_tokens = sampler, [], 0

    def sample(self, prompts, seeds, **settings):
        self.calls.append((digest(self.sampler.model), list(map(list, prompts)), list(seeds)))
        groups = self.sampler.sample(prompts, seeds, **settings)
        self.num_tokens += sum(len(sample.token_ids) for group in groups for sample in group)
        return groups


def train(staleness, *, reward=None, state=None, save=None, **changes):
    """Steps, the sampler, and the digest of the weights before the first step and after each."""
    method = presets.method(staleness=staleness, **{"kl": "none"} | changes)
    settings = Settings(config=GroupRlConfig(**SIZES), method=method, seed=0)
    model = load("llama")
    sampler = WatchedSampler(make_sampler(model))
    models = make_models(model, sampler=sampler)
    state, digests, steps = state or State(), [digest(model)], []
    schedule = draws(8, NUM_STEPS, 4 * method.max_rounds, seed=0)
    for step in rl.train(models, make_task(8, reward), schedule, settings, state):
        digests.append(digest(model))
        steps.append(step)
        if save is not None:
            state.save(save / str(step.index))
    return steps, sampler, digests


@pytest.mark.parametrize("staleness", [0, 1, 2, 4, 7])
def test_batch_n_is_drawn_with_the_weights_after_n_less_k_steps(staleness):
    steps, sampler, digests = train(staleness)
    assert len(set(digests)) == len(digests) == NUM_STEPS + 1
    versions = [digests.index(used) for used, _, _ in sampler.calls]
    assert versions == [max(0, n - staleness) for n in range(NUM_STEPS)]
    assert [row.step for step in steps for row in step.rows] == [
        n for n in range(NUM_STEPS) for _ in range(16)
    ]


def test_prompts_and_random_streams_do_not_depend_on_it():
    on_policy, stale = (train(k)[1].calls for k in (0, 2))
    assert [call[1:] for call in on_policy] == [call[1:] for call in stale]
    # Without a signal weights stay as they are, and so do the completions.
    same = [train(k, reward=lambda batch: [0.5] * len(batch.samples))[0] for k in (0, 2)]
    assert [step.rows for step in same[0]] == [step.rows for step in same[1]]


def test_every_sampled_token_is_counted_in_the_step_that_learns_from_it():
    for changes in ({}, {"max_rounds": 2}, {"advantage": "greedy_baseline"}):
        steps, sampler, _ = train(2, **changes)
        for name in ("tokens/generated", "work/policy/sampled/outputs"):
            assert sum(step.metrics[name] for step in steps) == sampler.num_tokens


def test_the_gap_of_sampler_and_trainer_is_that_of_their_weights():
    steps = {k: train(k)[0] for k in (0, 1, 3)}
    gaps = {k: [s.metrics["sampling/logprob_gap"] for s in steps[k]] for k in steps}
    assert max(*gaps[0], gaps[1][0], gaps[3][0]) < 1e-5
    assert min(gaps[1][1:]) > 0.01
    assert max(gaps[3]) > rollouts.MAX_LOGPROB_GAP  # which is no error here
    assert sum(gaps[3]) > sum(gaps[1])
    lags = {k: [s.metrics.get("sampling/staleness") for s in steps[k]] for k in steps}
    assert lags == {0: [None] * 5, 1: [0, 1, 1, 1, 1], 3: [0, 1, 2, 3, 3]}


def test_another_sampler_is_still_found_in_the_first_step():
    models = make_models(load("llama"), sampler=make_models(load("llama", 1)).sampler)
    method = presets.method(staleness=2, kl="none")
    settings = Settings(config=GroupRlConfig(**SIZES), method=method, seed=0)
    with pytest.raises(ValueError, match="the sampler has other weights"):
        list(rl.train(models, make_task(8), draws(8, 1, 4, seed=0), settings))


@torch.no_grad()
def test_kl_in_the_reward_and_a_teacher_see_the_policy_that_learns():
    models, task = make_models(load("llama")), make_task(8)
    config = GroupRlConfig(**SIZES)
    method = presets.method("rloo", staleness=1)
    settings = Settings(config=config, method=method, seed=0)
    rewarded = rl.draw_batch(models, task, settings, 1, range(4))
    batch = rewarded.sampled.rollouts
    models.policy.model.load_state_dict(load("llama", 1).state_dict())
    now, metrics = rl.measure_logprobs(models, batch, config, method, 1)
    for i, sample in enumerate(batch.samples):
        expected = plain_logprobs(
            models.policy.model, batch.prompt(i).prompt_ids, sample.token_ids, temperature=0.9
        )
        torch.testing.assert_close(now[i, : len(expected)], expected, rtol=1e-4, atol=1e-5)
    assert metrics["work/policy/read/outputs"] == int(batch.mask().sum())
    # Where the weights are those that sampled, and where nothing needs them, nothing is read.
    for other, index in (
        (method, 0),
        (presets.method(staleness=1), 1),
        (presets.method("rloo"), 1),
    ):
        same, metrics = rl.measure_logprobs(models, batch, config, other, index)
        assert torch.equal(same, batch.sampler_logprobs())
        assert metrics.keys() <= {"sampling/staleness"}
    experience = rl.make_experience(models, task, rewarded, settings, 1, 0.5)
    ref_logprobs = experience.grids.ref_logprobs
    assert ref_logprobs is not None
    penalties = 0.5 * ((now - ref_logprobs) * batch.mask()).sum(1)
    returns = (torch.tensor(even_share(batch.texts)) - penalties).view(-1, 4)
    expected = (returns - (returns.sum(1, keepdim=True) - returns) / 3).flatten()
    torch.testing.assert_close(experience.grids.advantages[:, 0], expected, rtol=1e-4, atol=1e-4)


def test_importance_weights_correct_for_it():
    assert Method(staleness=1).for_engine("transformers").correction == "token_truncated"
    assert Method(staleness=1, correction="none").for_engine("vllm").correction == "none"


@pytest.mark.parametrize("ending", [{"token_budget": 1000}, {"kl_budget": 1.0}])
def test_an_end_that_is_not_known_before_is_refused(ending):
    assert Method(**ending)
    with pytest.raises(ValueError, match="staleness"):
        Method(staleness=1, **ending)


def take(name, staleness, state, save=None):
    """Steps of a loop with everything that is logged, from a state on."""
    setup = Setup(name, is_exact=False)
    method = every_loop.several_optimizer_steps(name)
    changes = {"staleness": staleness, "correction": "token_truncated"}
    setup.method = method.model_copy(update=changes)
    schedule = [[0, 1, 2], [5, 4, 1], [2, 3, 4], [0, 5, 3]]
    history = []
    for step in setup.steps(schedule, range(NUM_ROWS), state):
        rows = [to_json_line(row) for row in step.rows]
        history.append(({k: float(v).hex() for k, v in step.metrics.items()}, rows))
        if save is not None:
            state.save(save / str(step.index))
    return history


def tensors(state, folder):
    state.save(folder)
    checkpoint = checkpoints.find_last_checkpoint(folder)
    assert checkpoint is not None
    return load_file(checkpoint / TENSORS)


LOOPS = ["grpo_verl", "remax", "opd", "ppo_instructgpt", "ppo in episodes"]


@pytest.mark.parametrize(
    ("name", "staleness"), [(name, k) for name in LOOPS for k in (1, 2)] + [("grpo_verl", 9)]
)
def test_a_run_resumes_from_every_step_to_the_bit(name, staleness, tmp_path):
    whole = State()
    expected = take(name, staleness, whole, tmp_path)
    assert len(expected) == 4
    final = tensors(whole, tmp_path / "whole")
    for step in range(4):
        state = State.load(tmp_path / str(step))
        assert len(state.numbers["waiting"]) == min(staleness, 3 - step)
        assert take(name, staleness, state) == expected[step + 1 :]
        there = tensors(state, tmp_path / f"from {step}")
        assert all(torch.equal(there[key], value) for key, value in final.items())


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in ("grpo_verl", "remax") else [])
        for name in LOOPS
    ],
)
def test_a_sampler_in_a_process_of_its_own_changes_no_bit(name, tmp_path, monkeypatch, caplog):
    states = {samplers: State() for samplers in "01"}
    runs = {}
    for samplers, state in states.items():
        monkeypatch.setenv(overlap.SAMPLERS, samplers)
        runs[samplers] = take(name, 1, state)
    assert runs["0"] == runs["1"]
    assert not caplog.messages, "no warning that it changes nothing"
    alone, beside = (tensors(state, tmp_path / samplers) for samplers, state in states.items())
    assert all(torch.equal(beside[key], value) for key, value in alone.items())


@pytest.mark.parametrize(
    ("advantage", "calls_per_round"), [("group_zscore", 1), ("greedy_baseline", 2)]
)
def test_a_batch_of_several_rounds_resumes_to_the_bit(advantage, calls_per_round, tmp_path):
    """Dynamic sampling: the rewards of what was drawn decide whether more is."""

    def reward(batch):
        shares = enumerate(even_share(batch.texts))
        return [share * (batch.prompt(i).id != "p0") for i, share in shares]

    choices = {"reward": reward, "max_rounds": 2, "advantage": advantage}
    steps, _, digests = train(2, **choices, save=tmp_path)
    assert {step.metrics["sampling/rounds"] for step in steps} == {1, 2}
    for index in range(NUM_STEPS - 1):
        rest, sampler, again = train(2, **choices, state=State.load(tmp_path / str(index)))
        assert [(s.metrics, s.rows) for s in rest] == [
            (s.metrics, s.rows) for s in steps[index + 1 :]
        ]
        assert again[1:] == digests[index + 2 :]
        # What was drawn before is not sampled again.
        rounds = [step.metrics["sampling/rounds"] for step in steps[index + 3 :]]
        assert len(sampler.calls) == calls_per_round * sum(rounds)
