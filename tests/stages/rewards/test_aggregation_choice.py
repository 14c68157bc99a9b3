import pytest
from numpy import array

from stages.records.pools import Completion, Score
from stages.records.problems import Prompt
from stages.rewards import aggregation_choice

PROMPT = Prompt(id="p", task="solve", question="", prompt="", prompt_ids=[1], answer="7")


def test_each_kind_is_as_right_as_the_completion_that_it_ranks_first():
    # Right is the first. By last .4 < .5; min .4 > .1; product .32 > .05; mean .6 > .45.
    steps = {"7": [0.8, 0.4], "8": [0.1, 0.5, 0.75, 0.5]}
    pool, rows = [], []
    for index, (answer, own) in enumerate(steps.items()):
        pool.append(
            Completion(
                id="p", index=index, completion=f"#### {answer}", completion_ids=[1],
                logprob_sum=-1.0, finish_reason="stop", seed=0,
            )
        )  # fmt: skip
        rows.append(Score(id="p", index=index, scores={}, disagreement=None, steps=own))
    found = aggregation_choice.accuracies([(PROMPT, pool)], [rows], array([[0, 1], [1, 0]]))
    expected = {"last": 0.0, "min": 1.0, "product": 1.0, "mean": 1.0}
    assert found == {"best_of": expected, "weighted": expected}
    alone = aggregation_choice.accuracies([(PROMPT, pool)], [rows], array([[0], [1]]))
    for of_kind in alone.values():
        assert of_kind == pytest.approx(dict.fromkeys(expected, 0.5))
