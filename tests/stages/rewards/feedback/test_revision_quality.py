from pathlib import Path

import pytest

from stages.records.pools import Completion
from stages.records.preferences import Revision
from stages.records.problems import Prompt
from stages.rewards.feedback import revision_quality
from stages.rewards.feedback.revised_answers import Revised


def revised(texts: list[str], *, cut: bool = False, num_rounds: int = 2) -> Revised:
    """An answer and its revisions; as many tokens as characters; 4 is right."""
    prompt = Prompt(
        id=texts[0], task="solve", question="2+2?", prompt="2+2?", prompt_ids=[5], answer="4"
    )
    original = Completion(
        id=prompt.id,
        index=0,
        completion=texts[0],
        completion_ids=[1] * len(texts[0]),
        logprob_sum=-1.0,
        finish_reason="stop",
        seed=0,
    )
    revisions = [
        Revision(
            id=prompt.id,
            index=0,
            split="train",
            round=number,
            principle="result",
            version="short-1",
            original=texts[number - 1],
            critique="",
            critique_ids=[1],
            critique_finish="stop",
            revision=text,
            revision_ids=[1] * len(text),
            revision_finish="length" if cut and number == num_rounds else "stop",
        )
        for number, text in enumerate(texts[1:], start=1)
    ]
    return Revised(prompt=prompt, original=original, revisions=revisions, num_rounds=num_rounds)


ANSWERS = [
    revised(["#### 5", "#### 5", "2 + 2 = 4\n#### 4"]),  # better, longer
    revised(["2 + 2 = 4\n#### 4", "#### 4", "#### 3"]),  # worse
    revised(["#### 7", "#### 8", "#### 9"]),  # both wrong
    revised(["#### 4", "#### 1", "I cannot help with harmful sums. #### 4"]),  # both right
    revised(["#### 4", "#### 5", "#### 4"]),  # unchanged in the end
    revised(["#### 5", "#### 4", "#### 4"], cut=True),
    revised(["#### 4", "#### 5"]),  # too long for a second round
]


def test_the_numbers_of_seven_answers_worked_by_hand():
    assert revision_quality.summarise(ANSWERS) == {
        "answers": 7,
        "pairs": 4,
        "left_out_unchanged": 1,
        "left_out_empty": 0,
        "left_out_cut": 1,
        "left_out_too_long": 1,
        "changed": pytest.approx(5 / 6, abs=1e-6),
        "accuracy": {
            "original": 0.5,  # the 2nd, 4th and 5th of six
            "round_1": pytest.approx(2 / 6, abs=1e-6),  # the 2nd and 6th
            "round_2": pytest.approx(4 / 6, abs=1e-6),  # the 1st, 4th, 5th and 6th
        },
        "decided_pairs": 2,
        "label_right": 0.5,
        "longer": 0.5,
        "harsher": 0.25,
    }


def test_nothing_decided_is_no_share_of_anything():
    found = revision_quality.summarise([revised(["#### 7", "#### 8", "#### 9"])])
    assert (found["pairs"], found["decided_pairs"], found["label_right"]) == (1, 0, 0.0)
    assert revision_quality.summarise([])["accuracy"] == {"original": 0.0}


def test_without_a_pair_it_says_what_became_of_the_answers():
    revision_quality.check_pairs(ANSWERS, Path("pool"))
    with pytest.raises(ValueError, match=r"pool: .*found none: \{'unchanged': 1, 'cut': 1\}"):
        revision_quality.check_pairs(ANSWERS[4:6], Path("pool"))
