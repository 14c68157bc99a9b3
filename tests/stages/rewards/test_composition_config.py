import pytest
from pydantic import ValidationError

from stages import params
from stages.rewards.composition_config import Composition


def part(kind="answer", normalise="none", **numbers):
    scaled = {"kind": normalise} | ({} if normalise == "none" else {"ddof": 1, "eps": 1e-4})
    return {"value": {"kind": kind, **numbers}, "weight": 1.0, "cap": None, "normalise": scaled}


def composition(combine="sum", **components):
    scaled = {"kind": combine} | ({} if combine == "sum" else {"ddof": 1, "eps": 1e-4})
    return Composition(components=components, combine=scaled)


@pytest.mark.parametrize("name", ["mean", "std", "accuracy"])
def test_names_of_what_is_logged_of_the_whole_are_taken(name):
    with pytest.raises(ValidationError, match=f"reward/{name} is of the whole"):
        composition(**{name: part()})


def test_nothing_is_normalised_twice():
    with pytest.raises(ValidationError, match="normalises every component: a needs"):
        composition("normalise", a=part(normalise="group"), b=part())


def test_it_says_what_it_needs():
    assert not composition(a=part()).needs_model()
    assert composition(a=part("scorer")).needs_model()
    assert composition(a=part("judge")).needs_model()
    assert composition(a=part("own")).needs_own()
    assert composition(a=part(), b=part(normalise="batch")).compares() == {"batch"}
    assert composition("normalise", a=part()).compares() == {"batch", "group"}


def test_a_buffer_longer_than_completions_is_refused():
    with pytest.raises(ValueError, match=r"a.value.buffer 9 is more than max_new_tokens 8"):
        composition(a=part("overlong", buffer=9)).check_lengths(8)
    composition(a=part("overlong", buffer=8)).check_lengths(8)


def test_every_composition_that_is_shipped_can_be_read():
    shipped = params.read()["rewards"]
    assert {"rule", "model", "answer_boxed", "answer_tags"} <= shipped.keys()
    for entry in shipped.values():
        Composition.model_validate(entry)
