import pytest
from pydantic import ValidationError

from stages import params
from stages.rewards.composition_config import Composition

JUDGE = {"style": "short", "constitution": "none", "min_option_mass": 0.5}


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


def test_rewards_of_steps_are_never_rescaled():
    steps = part("process", credit="sum", zero=0.5)
    composition(p=steps, a=part(normalise="group"))
    scaled = part("process", normalise="batch", credit="sum", zero=0.5)
    for refused in ({"p": scaled}, {"combine": "normalise", "p": steps, "a": part()}):
        with pytest.raises(ValidationError, match="component p of kind process gives step rewards"):
            composition(**refused)


def test_it_says_what_it_needs():
    assert not composition(a=part()).needs_model()
    assert composition(a=part("scorer")).needs_model()
    judge = composition(a=part("judge", **JUDGE))
    assert judge.needs_model()
    assert judge.needs_judge()
    assert not composition(a=part("scorer")).needs_judge()
    assert composition(a=part("own")).needs_own()
    assert composition(a=part(), b=part(normalise="batch")).compares() == {"batch"}
    assert composition("normalise", a=part()).compares() == {"batch", "group"}


def test_a_buffer_longer_than_completions_is_refused():
    with pytest.raises(ValueError, match=r"a.value.buffer 9 is more than max_new_tokens 8"):
        composition(a=part("overlong", buffer=9)).check_lengths(8)
    composition(a=part("overlong", buffer=8)).check_lengths(8)


@pytest.mark.parametrize(
    "other", [part("scorer"), part("process", credit="sum", zero=0.5)], ids=["scorer", "process"]
)
def test_a_policy_that_judges_and_a_model_that_scores_are_two_models(other):
    with pytest.raises(ValidationError, match="a reward has one model"):
        composition(a=part("judge", **JUDGE), b=other)


def test_a_judge_that_compares_needs_two():
    composition(a=part()).check_group_size(1, "group_size")
    judge = composition(a=part("judge", **JUDGE))
    judge.check_group_size(2, "group_size")
    with pytest.raises(ValueError, match="group_size is 1"):
        judge.check_group_size(1, "group_size")


def test_every_composition_that_is_shipped_can_be_read():
    presets = params.read(params.PRESETS_PATH)
    shipped = {name for name, preset in presets.items() if "components" in preset}
    assert {"rule", "model", "answer_boxed", "answer_tags", "judge_wins"} <= shipped
    for name in shipped:
        Composition.model_validate(presets[name])
