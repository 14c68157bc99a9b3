"""A run resumes from any of its steps, and ends with the bits of one that never stopped."""

import errno
import threading
from types import SimpleNamespace
from unittest import mock

import every_loop
import presets
import pytest
import torch
from every_loop import KIND, ONE_EACH, RL, Setup
from safetensors.torch import load_file
from tiny_checkpoints import load
from tiny_rollouts import draws, make_sampler, pay_all_but_p0, train

from stages.loops.state import TENSORS, State
from stages.records.lines import to_json_line
from stages.runtime import checkpoints

SCHEDULE = [[0, 1, 2, 3], [5, 4, 1, 0], [2, 3, 4, 5]]
# The checks of types within our code pick the items of a list at random.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")


def take(name, rank=0, staleness=0, state=None, save=None):
    """Three steps of a run, from `state` on: what they log, and the state after them."""
    setup, state = Setup(name, rank=rank, is_exact=False), state or State()
    if name in RL:
        setup.method = every_loop.several_optimizer_steps(name)
        if staleness:
            changes = {"staleness": staleness, "correction": "token_truncated"}
            setup.method = setup.method.model_copy(update=changes)
    history = []
    for step in setup.steps(SCHEDULE, state=state):
        rows = [to_json_line(row) for row in step.rows]
        history.append(({k: float(v).hex() for k, v in step.metrics.items()}, rows))
        if save is not None:
            state.save(save / str(step.index))
    return history, state


def tensors(state, folder):
    """Weights and moments, by name."""
    state.save(folder)
    return load_file(checkpoints.find_last_checkpoint(folder) / TENSORS)


def assert_same_state(state, final, folder):
    there = tensors(state, folder)
    assert there.keys() == final.keys()
    assert all(torch.equal(there[key], value) for key, value in final.items())


KEEPS_MORE = ("ppo_adaptive_kl", "vapo", "dapo")
"""Presets with numbers beside weights: coefficients, a warm-up, rounds."""
STALE = ("grpo_verl", "remax", "opd", "ppo_instructgpt", "ppo in episodes")
CASES = [(name, 0, 0) for name in (*ONE_EACH, *KEEPS_MORE)] + [("grpo_deepseekmath", 4, 0)]
CASES += [("grpo_verl", 0, 2), ("opd", 0, 1), ("ppo in episodes", 0, 1)]
EVERY = {(name, 0, 0) for name in KIND} | {(name, 4, 0) for name in ONE_EACH}
EVERY |= {(name, 0, k) for name in STALE for k in (1, 2)} | {("grpo_verl", 0, 9)}
CASES += [pytest.param(*case, marks=pytest.mark.slow) for case in sorted(EVERY - set(CASES))]


@pytest.mark.parametrize(("name", "rank", "staleness"), CASES)
def test_a_run_resumes_from_every_step_to_the_bit(name, rank, staleness, tmp_path):
    expected, whole = take(name, rank, staleness, save=tmp_path)
    assert len(expected) == 3
    assert bool(whole.numbers) == (name in RL)
    final = tensors(whole, tmp_path / "whole")
    for step in range(3):
        state = State.load(tmp_path / str(step))
        assert state.step == step + 1
        assert len(state.numbers.get("waiting", ())) == min(staleness, 2 - step)
        rest, resumed = take(name, rank, staleness, state)
        assert rest == expected[step + 1 :]
        assert_same_state(resumed, final, tmp_path / f"resumed after {step}")


@pytest.mark.parametrize(("advantage", "calls"), [("group_zscore", 1), ("greedy_baseline", 2)])
def test_batches_of_several_rounds_are_not_sampled_again(advantage, calls, tmp_path):
    """Dynamic sampling: the rewards of what was drawn decide whether more is; none of p0's do."""
    method = presets.method(staleness=2, kl="none", max_rounds=2, advantage=advantage)

    def run(state, save=None):
        model = load("llama")
        sample, steps = mock.Mock(wraps=make_sampler(model).sample), []
        for step in train(
            draws(8, 4, 8, seed=0), method, model, reward=pay_all_but_p0, state=state,
            sizes={"num_steps": 4}, sampler=SimpleNamespace(sample=sample),
        ):  # fmt: skip
            steps.append((step.metrics, step.rows))
            if save:
                state.save(save / str(step.index))
        return steps, sample.call_count

    steps, _ = run(State(), tmp_path)
    rounds = [metrics["sampling/rounds"] for metrics, _ in steps]
    assert set(rounds) == {1, 2}
    rest, num_calls = run(State.load(tmp_path / "0"))
    assert rest == steps[1:]
    assert num_calls == calls * sum(rounds[3:])  # batches 1 and 2 were waiting


# --- The checkpoints


def start(name, state):
    return Setup(name, is_exact=False).steps([[0, 1, 2]], state=state)


def test_a_run_that_was_over_takes_no_step_and_one_without_a_checkpoint_begins(tmp_path):
    for name in ("sft", "grpo_deepseekmath"):
        state = State()
        assert len(list(start(name, state))) == 1
        state.save(tmp_path / name)
        assert list(start(name, State.load(tmp_path / name))) == []
    assert State.load(tmp_path / "nothing").step == 0


def touch(path):
    (path / "a").touch()


def test_an_error_of_the_disk_that_may_pass_removes_no_checkpoint(tmp_path, monkeypatch):
    checkpoints.write(tmp_path, 1, touch, {})

    def fail(*_):
        raise OSError(errno.EIO, "the disk is away")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "_digest", fail)
        assert checkpoints.find_last_checkpoint(tmp_path) is None
    assert checkpoints.find_last_checkpoint(tmp_path) == tmp_path / "step-00000001"


def test_work_goes_on_while_a_checkpoint_is_written_and_if_it_cannot_be(
    tmp_path, caplog, monkeypatch
):
    monkeypatch.setenv(checkpoints.INTERVAL_VARIABLE, "0")
    written, writer = threading.Event(), checkpoints.Writer(tmp_path / "states")
    writer.write(1, lambda: lambda path: (written.wait(), touch(path)), {})
    assert not writer.due()
    assert checkpoints.find_last_checkpoint(tmp_path / "states") is None
    written.set()
    writer.wait()
    assert writer.due()
    assert checkpoints.find_last_checkpoint(tmp_path / "states").name == "step-00000001"
    (tmp_path / "file").touch()
    blocked = checkpoints.Writer(tmp_path / "file/states")
    blocked.write(1, lambda: touch, {})
    blocked.wait()
    assert "no checkpoint of step 1" in caplog.text


def test_checkpoints_take_a_twentieth_of_the_time_whatever_the_clock_says(tmp_path, monkeypatch):
    monkeypatch.delenv(checkpoints.INTERVAL_VARIABLE, raising=False)
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.time", lambda: 0.0)

    def take(seconds, value):
        now[0] += seconds
        return value

    writer = checkpoints.Writer(tmp_path)
    for copying, writing, interval in ((0.0, 0.0, 10), (1.0, 3.0, 80), (20.0, 30.0, 300)):
        content = lambda path, s=writing: take(s, touch(path))  # noqa: E731
        begun = now[0]
        writer.write(1, lambda s=copying, c=content: take(s, c), {})
        writer.wait()
        for seconds, is_due in ((interval - 1, False), (interval, True)):
            now[0] = begun + seconds
            assert writer.due() == is_due, interval
