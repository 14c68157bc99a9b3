import itertools

import numpy as np
import pytest
from judged_rows import completion

from stages.records.problems import Prompt
from stages.rewards import problem_evaluation
from stages.rewards.problem_evaluation import SampleScores

ALL_ORDERS = np.array(list(itertools.permutations(range(4))))
PROMPT = Prompt(id="p", task="solve", question="", prompt="", prompt_ids=[1], answer="1,000")


POOL = [
    completion("500 + 500\n#### 1000", 0, "p", ids=[7, 7]),
    completion("The answer is 1,000.", 1, "p", ids=[7, 7]),  # right, not the format
    completion("500 + 50\n#### 550", 2, "p", ids=[7, 7]),
    completion("500 + 500 + 500 +", 3, "p", ids=[7] * 6, cut=True),
]
SCORES = {
    "good": SampleScores(
        values=np.array([0.1, 0.4, 0.3, 0.2]), weights=np.array([0.2, 0.2, 0.5, 1])
    ),
    "plain": SampleScores(values=np.zeros(4), weights=None),
}


def test_the_hand_worked_pool_of_four():
    # Right: 0 and 1 (one answer, two spellings). Wrong: 2. Unreadable: 3.
    result = problem_evaluation.evaluate_problem(
        PROMPT, POOL, completion("#### 550"), SCORES, ks=[1, 2, 4], orders=ALL_ORDERS
    )
    assert (result.id, result.num_samples, result.num_correct) == ("p", 4, 2)
    assert result.greedy_correct is result.greedy_strict is result.greedy_lenient is False
    # The first alone ends with `#### n`.
    assert (result.mean_strict, result.mean_accuracy, result.mean_lenient) == (0.25, 0.5, 0.5)
    at = result.accuracy_at
    assert set(at) == {"pass", "majority", "best_of/good", "weighted/good", "best_of/plain"}
    # Of the six pairs, only {2, 3} holds no right sample.
    assert at["pass"] == pytest.approx({"1": 0.5, "2": 5 / 6, "4": 1.0})
    # Pairs 01, 03, 13 are won by the right answer, 02 and 12 are ties, 23 is lost: 4 of 6.
    assert at["majority"] == pytest.approx({"1": 0.5, "2": 4 / 6, "4": 1.0})
    # By score 1 > 2 > 3 > 0: the three pairs with 1 are right, the others (02, 03, 23) wrong.
    assert at["best_of/good"] == pytest.approx({"1": 0.5, "2": 0.5, "4": 1.0})
    # 0.2 + 0.2 of the right answer is less than 0.5 of the wrong; 3 has no answer to vote for.
    assert at["weighted/good"] == pytest.approx({"1": 0.5, "2": 3 / 6, "4": 0.0})
    assert at["best_of/plain"] == pytest.approx({"1": 0.5, "2": 0.5, "4": 0.5})
    assert (result.readable_rate, result.format_rate) == (0.75, 0.5)
    # Sample 0 of 0 and 2; right 0 and 1 (scored .1 and .4) above wrong 2 and 3 (.3 and .2) in two
    # of four pairs; in the format are 0, right, and 2, wrong.
    assert result.even_correct == 1
    assert result.auc == {"good": 0.5, "plain": 0.5}
    assert result.auc_in_format == {"good": 0.0, "plain": 0.5}
    assert (result.truncation_rate, result.mean_tokens) == (0.25, 3.0)


def test_equal_weights_are_the_majority_vote():
    equal = {"equal": SampleScores(values=np.zeros(4), weights=np.full(4, 0.3))}
    at = problem_evaluation.evaluate_problem(
        PROMPT, POOL, POOL[0], equal, ks=[1, 2, 3, 4], orders=ALL_ORDERS
    ).accuracy_at
    assert at["weighted/equal"] == pytest.approx(at["majority"], abs=1e-12)


def test_a_pool_without_any_readable_answer_is_wrong_and_not_an_error():
    pool = [completion("I do not know"), completion("", 1)]
    flat = {"flat": SampleScores(values=np.zeros(2), weights=np.ones(2))}
    result = problem_evaluation.evaluate_problem(
        PROMPT, pool, pool[0], flat, ks=[1, 2], orders=np.array([[0, 1], [1, 0]])
    )
    assert result.mean_accuracy == result.readable_rate == 0.0
    assert all(of_n == {"1": 0.0, "2": 0.0} for of_n in result.accuracy_at.values())
