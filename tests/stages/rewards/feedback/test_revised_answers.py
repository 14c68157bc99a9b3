from dataclasses import replace

import pytest

from stages.records.pools import Completion
from stages.records.preferences import Revision
from stages.records.problems import Prompt
from stages.rewards.feedback import revised_answers
from stages.rewards.feedback.revised_answers import Answer, Revised

PROMPT = Prompt(id="a", task="solve", question="2+2?", prompt="2+2?", prompt_ids=[5], answer="4")
ORIGINAL = Completion(
    id="a",
    index=0,
    completion="#### 5",
    completion_ids=[7, 8, 1],
    logprob_sum=-1.0,
    finish_reason="stop",
    seed=0,
)
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
    return Revised(prompt=PROMPT, original=original, revisions=[first, last], num_rounds=2)


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
            Revised(prompt=PROMPT, original=ORIGINAL, revisions=[FIRST], num_rounds=2),
            "too_long",
            False,
        ),
        (Revised(prompt=PROMPT, original=ORIGINAL, revisions=[], num_rounds=2), "too_long", False),
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
    chosen = revised_answers.choose([(PROMPT, pool)], 2)
    assert [answer.completion.index for answer in chosen] == [0, 1]


def test_each_answer_finds_its_own_revisions_in_the_order_of_the_rounds():
    other = replace(ORIGINAL, index=1)
    rows = [LAST, replace(FIRST, index=1), FIRST]
    found = revised_answers.gather([Answer(PROMPT, other), Answer(PROMPT, ORIGINAL)], rows, 2)
    assert [one.revisions for one in found] == [[replace(FIRST, index=1)], [FIRST, LAST]]
    assert [one.outcome for one in found] == ["too_long", "pair"]
