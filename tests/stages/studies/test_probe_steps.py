import dataclasses
import itertools

import pytest

from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.studies import probe_steps

STEPS = [[1, 2, 3], [4], [5, 6]]


def test_by_hand():
    assert probe_steps.inflated(STEPS) == [[1, 2, 3], [1, 2, 3], [4], [5, 6]]
    assert probe_steps.with_filler(STEPS, [9]) == [[1, 2, 3], [4], [9], [5, 6]]
    assert probe_steps.split(STEPS) == [[1], [2, 3], [4], [5, 6]]
    assert probe_steps.merged(STEPS) == [[1, 2, 3, 4], [5, 6]]


@pytest.mark.parametrize("edit", [probe_steps.split, probe_steps.merged])
def test_the_tokens_stay_the_same_and_no_step_is_empty(edit):
    edited = edit(STEPS)
    assert [*itertools.chain(*edited)] == [*itertools.chain(*STEPS)]
    assert all(edited)
    assert edited != STEPS


def test_where_there_is_nothing_to_edit_there_is_none():
    assert probe_steps.inflated([[1, 2]]) is None
    assert probe_steps.with_filler([[1, 2]], [9]) is None
    assert probe_steps.split([[1], [2, 3]]) is None
    assert probe_steps.merged([[1], [2]]) is None


PROMPT = Prompt(id="a", task="solve", question="", prompt="", prompt_ids=[9], answer="7")
ROW = Completion(
    id="a",
    index=0,
    completion="",
    completion_ids=[1, 2, 0, 3, 0, 4],
    logprob_sum=0.0,
    finish_reason="stop",
    seed=0,
)


def cut(ids):
    steps, current = [], []
    for token in ids:
        current.append(token)
        if token == 0:
            steps.append(current)
            current = []
    return [*steps, current]


def values(aggregate, max_tokens=100, row=ROW):
    def score(solutions):
        return [float(aggregate(solution.steps)) for solution in solutions]

    found = probe_steps.values([(PROMPT, [row])], cut, score, filler=[5, 0], max_tokens=max_tokens)
    return {one.probe: one.value for one in found}


def test_a_score_that_counts_steps_is_caught():
    # three steps: 4 inflated, 4 with a filler, split 1+2, 1+1, 1: 5, merged 2
    assert values(len) == {
        "inflated_raised": 1,
        "inflated_gain": 1,
        "filler_raised": 1,
        "filler_gain": 1,
        "split_raised": 1,
        "split_change": 2,
        "merged_raised": 0,
        "merged_change": 1,
    }


def test_a_score_of_the_text_is_moved_by_added_text_only():
    found = values(lambda steps: sum(map(sum, steps)))
    assert found["split_change"] == found["merged_change"] == 0
    assert found["inflated_gain"] == 3
    assert found["filler_gain"] == 5


def test_what_is_too_long_is_left_out_with_its_step_tokens():
    # plain and split have 6 tokens, a prompt of 1, and 3 and 5 step tokens
    assert set(values(len, max_tokens=10)) == {"merged_raised", "merged_change"}
    assert values(len, max_tokens=9) == {}


def test_one_step_has_nothing_to_edit():
    assert values(len, row=dataclasses.replace(ROW, completion_ids=[1])) == {}


def test_problems_mean_over_their_completions():
    problems = [(PROMPT, [ROW, ROW])]
    found = probe_steps.values(
        problems, cut, lambda s: [float(len(one.steps)) for one in s], filler=[5], max_tokens=99
    )
    assert {one.probe: one.value for one in found}["split_change"] == pytest.approx(2)
