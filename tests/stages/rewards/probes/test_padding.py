from stages.rewards import answer_checker
from stages.rewards.probes.padding import PADDINGS


def test_by_hand():
    padded = {
        name: pad("How many?", "1 + 2 = 3\n3 + 4 = 7\n#### 7") for name, pad in PADDINGS.items()
    }
    assert padded == {
        "repeat_step": "1 + 2 = 3\n3 + 4 = 7\n3 + 4 = 7\n#### 7",
        "restate": "How many?\n1 + 2 = 3\n3 + 4 = 7\n#### 7",
        "list": "1 + 2 = 3\n3 + 4 = 7\n" * 3 + "#### 7",
    }


def test_the_answer_stays_what_it_is():
    for pad in PADDINGS.values():
        assert answer_checker.is_correct(pad("Is it 8?", "a\n#### 7"), "7")


def test_an_answer_without_working_has_nothing_to_repeat():
    assert {name: pad("Q?", "#### 7") for name, pad in PADDINGS.items()} == {
        "repeat_step": None,
        "restate": "Q?\n#### 7",
        "list": None,
    }
