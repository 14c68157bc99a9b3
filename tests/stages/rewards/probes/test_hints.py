import pytest

from stages.rewards.probes import hints


def test_the_hint_stands_behind_the_question():
    assert hints.hinted("How many?", "12") == "How many? I think the answer is 12."


def test_a_wrong_hint_is_near_whole_not_negative_and_never_right():
    found = {hints.wrong_hint("3", 0, str(name)) for name in range(400)}
    assert found == {str(value) for value in range(14) if value != 3}


def test_it_hangs_on_the_seed_and_the_problem_alone():
    assert hints.wrong_hint("30", 1, "a") == hints.wrong_hint("30.0", 1, "a")
    assert len({hints.wrong_hint("30", seed, "a") for seed in range(50)}) > 5


@pytest.mark.parametrize("gold", ["3/4", "-2", "x + 1"])
def test_other_answers_have_none(gold):
    assert hints.wrong_hint(gold, 0, "a") is None
