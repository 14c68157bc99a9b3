import pytest

from stages.records.completion import Completion
from stages.records.prompt import Prompt
from stages.rewards import problem_evaluation

PROMPT = Prompt(id="p", task="solve", question="", prompt="", prompt_ids=[1], answer="1,000")


def completion(index: int, text: str, *, length: int = 2, cut: bool = False) -> Completion:
    return Completion(
        id="p",
        index=index,
        completion=text,
        completion_ids=[7] * length,
        logprob_sum=-1.0,
        finish_reason="length" if cut else "stop",
        seed=0,
    )


POOL = [
    completion(0, "500 + 500\n#### 1000"),
    completion(1, "The answer is 1,000."),  # right, another spelling, not the format
    completion(2, "500 + 50\n#### 550"),
    completion(3, "500 + 500 + 500 +", length=6, cut=True),
]


def test_the_hand_worked_pool_of_four():
    # Right: 0 and 1 (one answer, two spellings). Wrong: 2. Unreadable: 3.
    result = problem_evaluation.evaluate(
        PROMPT, POOL, completion(0, "#### 550"), [0.1, 0.4, 0.3, 0.2], ks=[1, 2, 4]
    )
    assert (result.id, result.num_samples, result.num_correct) == ("p", 4, 2)
    assert result.greedy_correct is False
    assert result.mean_accuracy == 0.5
    # Of the six pairs, only {2, 3} holds no right sample.
    assert result.pass_at == pytest.approx({"1": 0.5, "2": 5 / 6, "4": 1.0})
    # Pairs 01, 03, 13 are won by the right answer, 02 and 12 are ties, 23 is lost: 4 of 6.
    assert result.majority_at == pytest.approx({"1": 0.5, "2": 4 / 6, "4": 1.0})
    # By score 1 > 2 > 3 > 0: the three pairs with 1 are right, the others (02, 03, 23) wrong.
    assert result.best_of == pytest.approx({"1": 0.5, "2": 0.5, "4": 1.0})
    assert (result.readable_rate, result.format_rate) == (0.75, 0.5)
    assert (result.truncation_rate, result.mean_tokens) == (0.25, 3.0)


def test_a_pool_without_any_readable_answer_is_wrong_and_not_an_error():
    pool = [completion(0, "I do not know"), completion(1, "")]
    result = problem_evaluation.evaluate(PROMPT, pool, pool[0], [0.0, 0.0], ks=[1, 2])
    assert result.mean_accuracy == result.readable_rate == 0.0
    assert result.majority_at == result.best_of == result.pass_at == {"1": 0.0, "2": 0.0}
