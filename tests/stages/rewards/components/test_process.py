from dataclasses import replace

import pytest
import torch

from stages.rewards import composition
from stages.rewards.available import NOTHING
from stages.rewards.component import Cap, Component
from stages.rewards.components.process import Process
from stages.rewards.composition_config import Composition
from stages.rewards.judged import Judged

STEPS = torch.tensor([[0.9, 0.0, 0.2], [0.0, 0.6, 0.0]])
ENDS = torch.tensor([[True, False, True], [False, True, False]])
MODEL = Judged(
    totals=[0.0, 0.0], step_rewards=STEPS, step_ends=ENDS, metrics={"process/steps": 1.5}
)
AVAILABLE = replace(NOTHING, scorer=lambda: MODEL)


class Answered:
    texts = ("a", "b")
    samples = ()
    groups = (0, 0)

    def prompt(self, index):
        raise NotImplementedError


def process(credit, zero=0.0):
    return Process(kind="process", credit=credit, zero=zero)


def test_summed_credit_pays_every_step_what_it_is_above_zero():
    found = process("sum", zero=0.5)(Answered(), AVAILABLE)
    assert found.step_rewards is not None
    torch.testing.assert_close(
        found.step_rewards, torch.tensor([[0.4, 0.0, -0.3], [0.0, 0.1, 0.0]])
    )
    assert torch.equal(found.step_ends, ENDS)
    assert found.metrics == {"process/steps": 1.5}


def test_min_credit_pays_the_worst_step_alone():
    found = process("min", zero=0.5)(Answered(), AVAILABLE)
    assert found.step_rewards is not None
    torch.testing.assert_close(
        found.step_rewards, torch.tensor([[0.0, 0.0, -0.3], [0.0, 0.1, 0.0]])
    )
    assert found.step_ends is not None
    assert found.step_ends.tolist() == [[False, False, True], [False, True, False]]


def test_a_reward_of_zero_is_still_a_step():
    found = process("sum", zero=0.6)(Answered(), AVAILABLE)
    assert torch.equal(found.step_ends, ENDS)


def test_an_entry_without_a_model_or_with_one_that_judges_no_steps_is_refused():
    with pytest.raises(ValueError, match="no_model"):
        process("sum")(Answered(), NOTHING)
    whole = replace(NOTHING, scorer=lambda: Judged(totals=[1.0, 2.0]))
    with pytest.raises(ValueError, match="judges steps"):
        process("sum")(Answered(), whole)


def composed(credit, cap=None, weight=2.0):
    component = Component(value=process(credit), weight=weight, cap=cap, normalise={"kind": "none"})
    config = Composition(components={"steps": component}, combine={"kind": "sum"})
    return composition.compose(config, Answered(), AVAILABLE)


def test_in_a_composition_the_steps_keep_their_places_and_are_weighted():
    found = composed("min")
    assert found.step_rewards is not None
    assert found.step_ends is not None
    torch.testing.assert_close(found.step_rewards, torch.tensor([[0.0, 0.0, 0.4], [0.0, 1.2, 0.0]]))
    assert found.step_ends.tolist() == [[False, False, True], [False, True, False]]
    assert found.totals == [0.0, 0.0]
    assert found.parts["steps"] == pytest.approx([0.2, 0.6])


def test_a_cap_above_zero_pays_nothing_where_no_step_ends():
    found = composed("sum", cap=Cap(low=0.5, high=None), weight=1.0)
    assert found.totals == [0.0, 0.0]
    assert found.step_rewards is not None
    torch.testing.assert_close(found.step_rewards, torch.tensor([[0.9, 0.0, 0.5], [0.0, 0.6, 0.0]]))
