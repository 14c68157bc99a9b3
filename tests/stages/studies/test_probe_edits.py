import dataclasses
import itertools

import pytest

from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import answer_checker
from stages.studies import probe_edits


def test_paddings_by_hand():
    assert probe_edits.pad_completion("How many?", "1 + 2 = 3\n3 + 4 = 7\n#### 7") == {
        "repeat_step": "1 + 2 = 3\n3 + 4 = 7\n3 + 4 = 7\n#### 7",
        "restate": "How many?\n1 + 2 = 3\n3 + 4 = 7\n#### 7",
        "list": "1 + 2 = 3\n3 + 4 = 7\n" * 3 + "#### 7",
    }


def test_the_answer_stays_what_it_is():
    for text in probe_edits.pad_completion("Is it 8?", "a\n#### 7").values():
        assert answer_checker.is_correct(text, "7")


def test_an_answer_without_working_has_nothing_to_repeat():
    assert probe_edits.pad_completion("Q?", "#### 7") == {"restate": "Q?\n#### 7"}


PROMPT = Prompt(id="a", task="solve", question="Q?", prompt="Q?\n", prompt_ids=[9, 9], answer="7")


def completion(index, text):
    return Completion(
        id="a",
        index=index,
        completion=text,
        completion_ids=[1] * len(text),
        logprob_sum=0.0,
        finish_reason="stop",
        seed=0,
    )


POOL = [completion(0, "#### 7"), completion(1, "xx\n#### 7"), completion(2, "xxxx\n#### 8")]


def encode(texts):
    return [[ord(letter) for letter in text] for text in texts]


def padded(reward, *, pool=POOL, num_padded=3, max_tokens=1000):
    def score(groups):
        assert all(group.prompt_ids == [9, 9] for group in groups)
        numbers = [number for group in groups for number in group.indices]
        assert numbers == list(range(len(numbers)))
        return [float(reward(ids)) for group in groups for ids in group.completions]

    result = probe_edits.measure_padding(
        [(PROMPT, pool)], encode, score, num_padded=num_padded, max_tokens=max_tokens
    )
    return {row.probe: row.value for row in result}


def test_a_reward_that_is_the_length_is_caught():
    result = padded(len)
    assert result["length_spearman"] == pytest.approx(1.0)
    # the copies: "xx\n" and "xxxx\n" once more; "Q?\n" before all three; twice more each
    assert result["repeat_step_gain"] == pytest.approx((3 + 5) / 2)
    assert result["restate_gain"] == pytest.approx(3)
    assert result["list_gain"] == pytest.approx((6 + 10) / 2)
    assert [result[f"{kind}_raised"] for kind in ("repeat_step", "restate", "list")] == [1, 1, 1]
    # two right answers are too few to rank
    assert "length_spearman_right" not in result


def test_a_reward_that_dislikes_length_gains_nothing():
    result = padded(lambda ids: -len(ids))
    assert result["length_spearman"] == pytest.approx(-1.0)
    assert result["restate_raised"] == result["list_raised"] == 0


def test_ties_share_a_rank_and_without_spread_there_is_no_correlation():
    # lengths 6, 9, 11 and rewards 0, 1, 1: ranks 1, 2, 3 and 1, 2.5, 2.5, so sqrt(3) / 2
    result = padded(lambda ids: float(len(ids) > 6))
    assert result["length_spearman"] == pytest.approx(3**0.5 / 2)
    assert "length_spearman" not in padded(lambda ids: 1.0)
    equal = [completion(number, f"{number}\n#### 7") for number in range(3)]
    assert "length_spearman" not in padded(lambda ids: float(ids[0]), pool=equal)


def test_a_reward_of_the_answer_alone_is_not_moved():
    result = padded(lambda ids: float(ids[-1]))
    assert {name: value for name, value in result.items() if "length" not in name} == dict.fromkeys(
        [
            f"{kind}_{what}"
            for kind in ("repeat_step", "restate", "list")
            for what in ("raised", "gain")
        ],
        0.0,
    )


def test_right_answers_are_ranked_alone():
    pool = [completion(i, "x" * i + "\n#### 7") for i in range(1, 4)] + [completion(9, "#### 1")]
    # longer right answers earn less, the short wrong one least
    result = padded(lambda ids: -100.0 if ids[-1] == ord("1") else -float(len(ids)), pool=pool)
    assert result["length_spearman_right"] == pytest.approx(-1.0)
    assert result["length_spearman"] > -1


def test_rounding_raises_nothing():
    result = padded(lambda ids: 1e-7 * len(ids))
    assert result["list_raised"] == 0


def test_only_the_first_are_padded_and_long_copies_are_left_out():
    result = padded(len, num_padded=2)
    assert result["repeat_step_gain"] == 3
    # prompt 2 + "xx\n" * 3 + 6 = 17 fits, "xxxx\n" * 3 + 6 does not
    assert padded(len, max_tokens=17)["list_gain"] == 6


def test_nothing_finished_says_nothing():
    assert padded(len, pool=[]) == {}


STEPS = [[1, 2, 3], [4], [5, 6]]


def test_edits_of_steps_by_hand():
    assert probe_edits.recut_steps(STEPS, [9]) == {
        "inflated": [[1, 2, 3], [1, 2, 3], [4], [5, 6]],
        "filler": [[1, 2, 3], [4], [9], [5, 6]],
        "split": [[1], [2, 3], [4], [5, 6]],
        "merged": [[1, 2, 3, 4], [5, 6]],
    }


@pytest.mark.parametrize("edit", ["split", "merged"])
def test_the_tokens_stay_the_same_and_no_step_is_empty(edit):
    edited = probe_edits.recut_steps(STEPS, [9])[edit]
    assert [*itertools.chain(*edited)] == [*itertools.chain(*STEPS)]
    assert all(edited)
    assert edited != STEPS


def test_where_there_is_nothing_to_edit_there_is_none():
    assert probe_edits.recut_steps([[1, 2]], [9]) == {}
    assert set(probe_edits.recut_steps([[1], [2, 3]], [9])) == {"inflated", "filler"}
    assert set(probe_edits.recut_steps([[1, 2], [2]], [9])) == {"inflated", "filler", "split"}


ASKED = dataclasses.replace(PROMPT, prompt_ids=[9])
ROW = dataclasses.replace(completion(0, ""), completion_ids=[1, 2, 0, 3, 0, 4])


def cut(ids):
    steps, current = [], []
    for token in ids:
        current.append(token)
        if token == 0:
            steps.append(current)
            current = []
    return [*steps, current]


def recut(aggregate, max_tokens=100, row=ROW):
    def score(solutions):
        return [float(aggregate(solution.steps)) for solution in solutions]

    result = probe_edits.measure_recutting(
        [(ASKED, [row])], cut, score, filler=[5, 0], max_tokens=max_tokens
    )
    return {item.probe: item.value for item in result}


def test_a_score_that_counts_steps_is_caught():
    # three steps: 4 inflated, 4 with a filler, split 1+2, 1+1, 1: 5, merged 2
    assert recut(len) == {
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
    result = recut(lambda steps: sum(map(sum, steps)))
    assert result["split_change"] == result["merged_change"] == 0
    assert result["inflated_gain"] == 3
    assert result["filler_gain"] == 5


def test_what_is_too_long_is_left_out_with_its_step_tokens():
    # plain and split have 6 tokens, a prompt of 1, and 3 and 5 step tokens
    assert set(recut(len, max_tokens=10)) == {"merged_raised", "merged_change"}
    assert recut(len, max_tokens=9) == {}


def test_one_step_has_nothing_to_edit():
    assert recut(len, row=dataclasses.replace(ROW, completion_ids=[1])) == {}


def test_problems_mean_over_their_completions():
    problems = [(ASKED, [ROW, ROW])]
    result = probe_edits.measure_recutting(
        problems, cut, lambda s: [float(len(item.steps)) for item in s], filler=[5], max_tokens=99
    )
    assert {item.probe: item.value for item in result}["split_change"] == pytest.approx(2)
