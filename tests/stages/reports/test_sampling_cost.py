import pytest

from stages.reports import sampling_cost


def test_generation_reads_the_prompt_once():
    # prompts of 10 tokens on average, completions of 5: 2 * 3 * (10 + 4 * 5)
    assert sampling_cost.generation([8, 12], [4.0, 6.0], 3, [1, 4]) == {1: 90.0, 4: 180.0}


def test_scoring_reads_equal_completions_once():
    pools = [[[1, 2], [1, 2], [3, 4, 5]], [[6], [6], [6]]]
    found = sampling_cost.scoring([10, 20], pools, 2, [1, 3], step_tokens=lambda ids: 0)
    # one of three: 2/3 * 2 + 1/3 * 3 = 7/3 tokens of the first problem, 1 of the second
    assert found[1] == pytest.approx(2 * 2 * (15 + (7 / 3 + 1) / 2))
    assert found[3] == pytest.approx(2 * 2 * (15 + (5 + 1) / 2))


def test_step_tokens_are_read_too():
    found = sampling_cost.scoring([1], [[[1, 2, 3]]], 1, [1], step_tokens=lambda ids: len(ids) - 1)
    assert found == {1: 2.0 * (1 + 3 + 2)}
