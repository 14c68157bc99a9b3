import pytest

from stages.records.completion import Completion
from stages.records.prompt import Prompt
from stages.rewards import pool_verdicts


def judge(*texts):
    prompt = Prompt(id="a", task="solve", question="", prompt="", prompt_ids=[1], answer="7")
    return pool_verdicts.judge(
        prompt,
        [
            Completion(
                id="a",
                index=index,
                completion=text,
                completion_ids=[1],
                logprob_sum=-1.0,
                finish_reason="stop",
                seed=0,
            )
            for index, text in enumerate(texts)
        ],
    )


def test_verdicts_are_in_the_order_of_the_pool_and_equal_values_vote_together():
    found = judge("#### 5", "#### 7", "#### 7.0")
    assert found.right == [False, True, True]
    assert found.majority == 1.0


@pytest.mark.parametrize(
    ("texts", "majority"),
    [
        (["#### 5", "#### 7"], 0.5),
        (["no answer", "no answer", "#### 7"], 1.0),
        (["no answer"], 0.0),
    ],
)
def test_ties_are_shared_and_what_cannot_be_read_has_no_vote(texts, majority):
    assert judge(*texts).majority == majority
