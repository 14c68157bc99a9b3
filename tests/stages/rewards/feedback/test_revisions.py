from dataclasses import replace
from pathlib import Path

import pytest
from judged_rows import completion

from stages.records.preferences import Revision
from stages.records.problems import Prompt
from stages.rewards.feedback import revisions
from stages.rewards.feedback.revisions import (
    DraftAnswer,
    RevisedAnswer,
    check_pairs,
    summarise_revisions,
)

PROMPT = Prompt(id="a", task="solve", question="2+2?", prompt="2+2?", prompt_ids=[5], answer="4")
ORIGINAL = completion("#### 5", ids=[7, 8, 1])
FIRST = Revision(
    id="a",
    index=0,
    split="train",
    round=1,
    principle="result",
    version="short-1",
    original="#### 5",
    critique="No.",
    critique_ids=[9, 1],
    critique_finish="stop",
    revision="#### 3",
    revision_ids=[7, 6, 1],
    revision_finish="stop",
)
LAST = replace(FIRST, round=2, original="#### 3", revision="#### 4", revision_ids=[7, 4, 1])


def revised(last=LAST, original=ORIGINAL, first=FIRST):
    return RevisedAnswer(prompt=PROMPT, original=original, revisions=[first, last], num_rounds=2)


def test_the_last_revision_is_preferred_to_the_first_answer_in_the_tokens_sampled():
    pair = revised().preference()
    assert (pair.chosen, pair.chosen_ids) == ("#### 4", [7, 4, 1])
    assert (pair.rejected, pair.rejected_ids) == ("#### 5", [7, 8, 1])
    assert (pair.prompt, pair.prompt_ids) == (PROMPT.prompt, PROMPT.prompt_ids)
    assert (pair.probability, pair.source) == (1.0, "constitution")


def test_the_demonstration_answers_the_problem_not_the_request():
    row = revised().demonstration()
    assert (row.task, row.prompt_ids) == ("solve", [5])
    assert (row.completion, row.completion_ids) == ("#### 4", [7, 4, 1])


@pytest.mark.parametrize(
    ("case", "outcome", "is_demonstrated"),
    [
        (revised(), "pair", True),
        (revised(last=replace(LAST, revision="#### 5")), "unchanged", True),
        (revised(last=replace(LAST, revision=" \n")), "empty", False),
        (revised(last=replace(LAST, revision_finish="length")), "cut", False),
        (revised(original=replace(ORIGINAL, finish_reason="length")), "cut", True),
        (revised(first=replace(FIRST, revision_finish="length")), "pair", True),
        (
            RevisedAnswer(prompt=PROMPT, original=ORIGINAL, revisions=[FIRST], num_rounds=2),
            "too_long",
            False,
        ),
        (
            RevisedAnswer(prompt=PROMPT, original=ORIGINAL, revisions=[], num_rounds=2),
            "too_long",
            False,
        ),
    ],
)
def test_what_cannot_be_learned_from_is_left_out_and_told_why(case, outcome, is_demonstrated):
    assert case.outcome == outcome
    assert (case.preference() is not None) == (outcome == "pair")
    assert (case.demonstration() is not None) == is_demonstrated


def test_different_completions_are_chosen_in_the_order_of_the_pool():
    pool = [
        replace(ORIGINAL, index=index, completion_ids=ids)
        for index, ids in enumerate([[7, 1], [8, 1], [7, 1], [9, 1]])
    ]
    chosen = revisions.choose_answers([(PROMPT, pool)], 2)
    assert [answer.completion.index for answer in chosen] == [0, 1]


def test_each_answer_finds_its_own_revisions_in_the_order_of_the_rounds():
    other = replace(ORIGINAL, index=1)
    rows = [LAST, replace(FIRST, index=1), FIRST]
    result = revisions.join_revisions(
        [DraftAnswer(PROMPT, other), DraftAnswer(PROMPT, ORIGINAL)], rows, 2
    )
    assert [item.revisions for item in result] == [[replace(FIRST, index=1)], [FIRST, LAST]]
    assert [item.outcome for item in result] == ["too_long", "pair"]


def revision_quality_revised(
    texts: list[str], *, cut: bool = False, num_rounds: int = 2
) -> RevisedAnswer:
    """An answer and its revisions; as many tokens as characters; 4 is right."""
    prompt = replace(PROMPT, id=texts[0])
    original = completion(texts[0], name=prompt.id, ids=[1] * len(texts[0]))
    revisions = [
        replace(
            FIRST,
            id=prompt.id,
            round=number,
            original=texts[number - 1],
            revision=text,
            revision_ids=[1] * len(text),
            revision_finish="length" if cut and number == num_rounds else "stop",
        )
        for number, text in enumerate(texts[1:], start=1)
    ]
    return RevisedAnswer(
        prompt=prompt, original=original, revisions=revisions, num_rounds=num_rounds
    )


ANSWERS = [
    revision_quality_revised(["#### 5", "#### 5", "2 + 2 = 4\n#### 4"]),  # better, longer
    revision_quality_revised(["2 + 2 = 4\n#### 4", "#### 4", "#### 3"]),  # worse
    revision_quality_revised(["#### 7", "#### 8", "#### 9"]),  # both wrong
    revision_quality_revised(
        ["#### 4", "#### 1", "I cannot help with harmful sums. #### 4"]
    ),  # both right
    revision_quality_revised(["#### 4", "#### 5", "#### 4"]),  # unchanged in the end
    revision_quality_revised(["#### 5", "#### 4", "#### 4"], cut=True),
    revision_quality_revised(["#### 4", "#### 5"]),  # too long for a second round
]


def test_the_numbers_of_seven_answers_worked_by_hand():
    assert summarise_revisions(ANSWERS) == {
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
    result = summarise_revisions([revision_quality_revised(["#### 7", "#### 8", "#### 9"])])
    assert (result["pairs"], result["decided_pairs"], result["label_right"]) == (1, 0, 0.0)
    assert summarise_revisions([])["accuracy"] == {}


def test_without_a_pair_it_says_what_became_of_the_answers():
    check_pairs(ANSWERS, Path("pool"))
    with pytest.raises(ValueError, match=r"pool: .*found none: \{'unchanged': 1, 'cut': 1\}"):
        check_pairs(ANSWERS[4:6], Path("pool"))
