"""The loss of a policy's optimizer step is a function of its tokens, not of how they are laid out.

For every preset of presets.yaml and for random combinations of all choices: the same value
and gradient, to rounding, under any split into micro-batches, any order of rows, any padding
on either side, and whatever stands in the padding.
"""

import objective_choices
import pytest
import random_grids
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_grids import FILLERS, assert_close, examples

every_preset = pytest.mark.parametrize("name", objective_choices.PRESETS)
FLOAT64, FLOAT32 = 1e-12, 1e-6
some_fillers = st.lists(st.sampled_from(FILLERS), min_size=1, max_size=7)


@pytest.mark.parametrize("choice", objective_choices.LISTED)
def test_no_kind_of_choice_is_left_out_here(choice):
    listed = {entry[choice] for entry in objective_choices.LISTED[choice]}
    assert listed == objective_choices.kinds(choice) - {"auto"}


def whole(grids, config):
    return random_grids.step(grids, config, [range(len(grids.mask))])


def check_layout(data, grids, config, tolerance):
    expected = whole(grids, config)
    assert all(gradient.isfinite().all() for gradient in expected[1].values())
    actual = random_grids.step(
        grids.filled(*data.draw(some_fillers, label="masked tokens")),
        config,
        random_grids.split(data.draw, len(grids.mask)),
        left=data.draw(st.integers(0, 3), label="left"),
        right=data.draw(st.integers(0, 3), label="right"),
        filler=data.draw(st.sampled_from(FILLERS), label="padding"),
    )
    assert_close(actual, expected, tolerance)
    for gradient in actual[1].values():
        assert (gradient[~grids.mask] == 0).all()


@every_preset
@examples(12)
@given(data=st.data(), grids=random_grids.grids())
def test_a_presets_loss_and_gradient_do_not_depend_on_the_layout(name, data, grids):
    check_layout(data, grids, objective_choices.PRESETS[name], FLOAT64)


@examples(150)
@given(data=st.data(), grids=random_grids.grids(), config=objective_choices.any_objective())
def test_nor_do_those_of_any_combination_of_choices(data, grids, config):
    check_layout(data, grids, config, FLOAT64)


@examples(40)
@given(
    data=st.data(),
    grids=random_grids.grids(drifts=(0.0, 0.02, 0.2)),
    config=objective_choices.any_objective(),
)
def test_in_float32_they_agree_to_a_millionth(data, grids, config):
    check_layout(data, grids.to(torch.float32), config, FLOAT32)


@examples(40)
@given(grids=random_grids.grids(), config=objective_choices.any_objective())
def test_a_row_alone_adds_what_it_adds_among_others(grids, config):
    _, expected = whole(grids, config)
    for row in range(len(grids.mask)):
        _, actual = random_grids.step(grids, config, [[row]])
        for name, gradient in expected.items():
            torch.testing.assert_close(
                actual[name][row], gradient[row], rtol=FLOAT64, atol=FLOAT64 * gradient.abs().max()
            )
            others = torch.arange(len(grids.mask)) != row
            assert (actual[name][others] == 0).all()


@examples(40)
@given(grids=random_grids.grids(), config=objective_choices.any_objective())
def test_a_completion_without_tokens_changes_nothing_where_it_is_not_counted(grids, config):
    without = [row for row in range(len(grids.mask)) if grids.mask[row].any()]
    expected = whole(grids, config)
    assert_close(random_grids.step(grids, config, [without]), expected, FLOAT64)
