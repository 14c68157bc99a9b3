"""What holds of every training loop and of each of its presets.

The gradient of an optimizer step does not depend on micro-batches, shared rows, packing, padding
or the order of rows; nothing but completions has a gradient; a run repeats, and resumes from any
step, to the bit.
"""

import functools

import every_loop
import presets
import pytest
import torch
from every_loop import KIND, NUM_ROWS, ONE_EACH, RL, Setup
from hypothesis import given
from hypothesis import strategies as st
from random_grids import examples
from safetensors.torch import load_file
from tiny_checkpoints import FAMILIES

from stages.loops import kto, rollouts
from stages.loops.preference import HYPERPARAMETERS
from stages.loops.state import TENSORS, State
from stages.runtime import checkpoints

ALL = list(range(NUM_ROWS))
every_case = pytest.mark.parametrize("name", KIND)
every_loop_once = pytest.mark.parametrize("name", ONE_EACH)
# The checks of types within our code pick the items of a list at random.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")


@pytest.fixture(autouse=True)
def _no_answer_ends(monkeypatch):
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 100)


@functools.cache
def exact_setup(name, family="llama"):
    """Its gradients are taken, its weights stay."""
    return Setup(name, family, is_exact=True)


def assert_same(found, expected):
    """To 1e-10 of the largest number."""
    assert expected.dtype == torch.float64
    assert expected.isfinite().all()
    assert expected.any()
    assert (found - expected).abs().max() <= 1e-10 * expected.abs().max()


def test_no_loss_and_no_loop_is_left_out_here():
    losses = {presets.loss(name).kind for name in KIND if KIND[name] in ("preference", "kto")}
    assert losses == HYPERPARAMETERS.keys()
    assert {KIND[name] for name in ONE_EACH} == set(every_loop.START) == set(KIND.values())


@every_case
@examples(6)
@given(
    data=st.data(),
    row_tokens=st.sampled_from([0, 8, 14, 64]),
    pack_tokens=st.sampled_from([0, 40, 80]),
    max_tokens=st.sampled_from([1, 20, 50, 400]),
)
def test_micro_batches_shared_rows_packing_and_order_change_nothing(
    name, data, row_tokens, pack_tokens, max_tokens
):
    rows = data.draw(st.lists(st.integers(0, NUM_ROWS - 1), min_size=1, unique=True), label="rows")
    numbers = list(range(len(rows)))
    expected, metrics = exact_setup(name).gradient([numbers], rows, row_tokens=0)
    # Both the order in the file and that in which a step visits it.
    file = data.draw(st.permutations(rows), label="file")
    order = data.draw(st.permutations(numbers), label="order")
    if name == "kto":  # each row is paired with the next one: what is visited keeps its order
        order = [file.index(row) for row in rows]
    limits = {"row_tokens": row_tokens, "pack_tokens": pack_tokens, "max_tokens": max_tokens}
    actual, same = exact_setup(name).gradient([order], file, **limits)
    if expected.any():
        assert_same(actual, expected)
    else:  # a group without a signal
        assert not actual.any()
    # Rewards, and what is logged of outcomes, are float32 whatever the models are.
    tolerance = 1e-6 if name in (*RL, "outcome") else 1e-9
    assert same == pytest.approx(metrics, rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "llama"])
@every_loop_once
def test_nor_do_they_in_other_architectures(name, family):
    setup = exact_setup(name, family)
    expected, _ = setup.gradient([ALL], row_tokens=0)
    for row_tokens, pack_tokens, max_tokens in ((64, 0, 4096), (14, 0, 30), (64, 60, 30)):
        limits = {"row_tokens": row_tokens, "pack_tokens": pack_tokens, "max_tokens": max_tokens}
        assert_same(setup.gradient([ALL], **limits)[0], expected)


@every_case
def test_a_batch_with_every_row_twice_has_the_gradient_of_one_with_each_once(name):
    expected, metrics = exact_setup(name).gradient([ALL])
    actual, doubled = exact_setup(name).gradient([[*ALL, *ALL]])
    assert_same(actual, expected)
    counts = ("tokens/", "steps/labelled")
    for key, value in metrics.items():
        times = 2 if key.startswith(counts) else 1
        assert doubled[key] == pytest.approx(times * value, rel=1e-6, abs=1e-6), key


DEMONSTRATED = [len(row.completion_ids) for row in every_loop.make_demonstrations(NUM_ROWS)]
WEIGHTS = {
    "sft": DEMONSTRATED,
    "forward_kl": DEMONSTRATED,
    "outcome": [sum(row.weight for row in rows) for rows in every_loop.make_problems()],
    "process": [sum(label is not None for label in labels) for labels in every_loop.LABELS],
}
"""Of each row in the mean of a step; 1 in the other loops."""
BY_TOKENS_OR_BATCH = {
    name
    for name in RL
    if every_loop.one_optimizer_step(name).aggregation == "token_mean"
    or every_loop.one_optimizer_step(name).advantage in ("batch_whitened", "gae")
}
SEPARABLE = [name for name in KIND if name != "kto" and name not in BY_TOKENS_OR_BATCH]


@pytest.mark.parametrize("name", SEPARABLE)
def test_a_step_is_the_mean_over_its_rows(name):
    """Rows without a signal included: of RL, a row is a prompt with its group."""
    setup, weights = exact_setup(name), WEIGHTS.get(name, [1.0] * NUM_ROWS)
    parts = [weights[row] * setup.gradient([[row]])[0] for row in ALL]
    assert_same(setup.gradient([ALL])[0], torch.stack(parts).sum(0) / sum(weights))


PREDICTIONS = {
    "sft": sum(WEIGHTS["sft"]),
    "dpo": sum(len(p.chosen_ids) + len(p.rejected_ids) for p in every_loop.PAIRS),
    "kto": sum(
        len(row.completion_ids) for row in kto.make_unpaired_examples(every_loop.make_pairs(3))
    ),
    "reward": 2 * NUM_ROWS,
    "outcome": sum(map(len, every_loop.make_problems())),
    "process": sum(WEIGHTS["process"]),
}
"""Positions with a gradient: before each token of a completion, or where a score is read."""


@every_loop_once
def test_only_positions_that_predict_completions_or_scores_have_a_gradient(name):
    setup, states = exact_setup(name), []

    def keep(_module, _inputs, output):
        if output.last_hidden_state.requires_grad:
            output.last_hidden_state.retain_grad()
            states.append(output.last_hidden_state)

    trained = [model for role, model in setup.models.items() if role not in every_loop.FROZEN]
    hooks = [model.base_model.register_forward_hook(keep) for model in trained]
    # Nothing shares a row: a prompt's last position predicts one token.
    _, metrics = setup.gradient([ALL], row_tokens=0, max_tokens=30)
    for hook in hooks:
        hook.remove()
    counts = sum(int((state.grad != 0).any(-1).sum()) for state in states if state.grad is not None)
    assert counts == PREDICTIONS.get(name, len(trained) * metrics.get("tokens/trained", 0))


def take(name, rank, state=None, save=None):
    """Three steps of a run, from `state` on: what they log, and the state after them."""
    setup, state = Setup(name, rank=rank, is_exact=False), state or State()
    if name in RL:
        setup.method = every_loop.several_optimizer_steps(name)
    schedule = [[0, 1, 2, 3], [5, 4, 1, 0], [2, 3, 4, 5]]
    history = []
    for step in setup.steps(schedule, state=state):
        history.append(({k: float(v).hex() for k, v in step.metrics.items()}, step.rows))
        if save is not None:
            state.save(save / str(step.index))
    return history, state


def tensors(state, folder):
    """Weights and moments, by name."""
    state.save(folder)
    return load_file(checkpoints.find_last_checkpoint(folder) / TENSORS)


CASES = [(name, 0) for name in KIND] + [(name, 4) for name in ONE_EACH]


@pytest.mark.parametrize(("name", "rank"), CASES)
def test_a_run_repeats_and_resumes_from_every_step_to_the_bit(name, rank, tmp_path):
    expected, whole = take(name, rank)
    final = tensors(whole, tmp_path / "whole")
    actual, again = take(name, rank, save=tmp_path)
    assert actual == expected
    resumed = {"again": again}
    for step in range(len(expected)):
        state = State.load(tmp_path / str(step))
        assert state.step == step + 1
        rest, resumed[f"resumed after {step}"] = take(name, rank, state)
        assert rest == expected[step + 1 :]
    for case, state in resumed.items():
        there = tensors(state, tmp_path / case)
        assert there.keys() == final.keys()
        assert all(torch.equal(there[key], value) for key, value in final.items()), case
    assert bool(whole.numbers) == (name in RL)
