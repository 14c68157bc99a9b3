import numpy as np
import torch

from stages.algorithms.selection import best_of_n
from stages.models.scalar_head import Scores
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.studies import proxy_curves, scored_pools
from stages.studies.scored_pools import ScoredProblem

PROMPT = Prompt(id="a", task="solve", question="", prompt="", prompt_ids=[3, 4], answer="7")


class Sums:
    """Scores a completion by the sum of its tokens, and counts what it reads."""

    def __init__(self):
        self.read = 0

    def __call__(self, groups):
        result = [sum(ids) / 3 for group in groups for ids in group.completions]
        self.read += len(result)
        values = torch.tensor(result)
        return Scores(values=values, disagreement=values)


def completion(index, ids, text):
    return Completion(
        id="a", index=index, completion=text, completion_ids=ids, logprob_sum=0.0,
        finish_reason="stop", seed=0,
    )  # fmt: skip


def test_by_hand():
    # the same text from other tokens is another completion
    pool = [
        completion(0, [5, 6], "#### 7"),
        completion(1, [8], "#### 8"),
        completion(2, [5, 6], "#### 7"),
        completion(3, [11, 1], "#### 7"),
    ]
    for row_tokens in (0, 64):
        scorer = Sums()
        result = scored_pools.score_pool(PROMPT, pool, (scorer, None), row_tokens)
        assert result.correct == [True, False, True, True]
        assert result.reward_model == [3.66667, 2.66667, 3.66667, 4.0]
        assert result.ensemble is None
        assert result.num_distinct == scorer.read == 3


def scored(name, right, scores):
    return ScoredProblem(
        id=name, correct=[bool(item) for item in right], reward_model=scores, ensemble=None,
        generated_tokens=8, num_distinct=8,
    )  # fmt: skip


def test_best_of_n_goes_to_a_quarter_of_the_pool():
    scores = [np.arange(12.0), np.zeros(12)]
    right = [np.array([0.0] * 11 + [1.0]), np.array([1.0, 0.0] * 6)]
    pools = [scored("a", right[0], scores[0].tolist()), scored("b", right[1], scores[1].tolist())]
    curve = scored_pools.make_pool_curve("sft", "reward_model", pools)
    assert (curve.method, list(curve.places), curve.form) == ("best_of_n", [1, 2, 3], "quadratic")
    assert curve.units == {
        "proxy": proxy_curves.measure_within_deviation(scores),
        "gold": proxy_curves.measure_within_deviation(right),
    }
    # the best of twelve is in the draw 1/12, 2/12 and 3/12 of the time
    np.testing.assert_allclose(curve.gold, [[1 / 12, 2 / 12, 3 / 12], [0.5, 0.5, 0.5]])
    np.testing.assert_allclose(curve.proxy[0], [5.5, 23 / 3, 8.75])  # n (N + 1) / (n + 1) - 1
    # what has one score for all is not moved
    assert curve.kl[1].tolist() == [0.0, 0.0, 0.0]
    assert curve.kl[0, 2] == best_of_n.kl_plug_in(scores[0], n=3)


def test_what_can_show_nothing_is_told():
    many, right = [np.arange(8.0)], [np.array([0.0, 1.0] * 4)]
    assert scored_pools.explain_missing_curve(many, right) is None
    few = scored_pools.explain_missing_curve([np.arange(7.0)], [right[0][:7]])
    assert "7 completions" in few
    assert "at least 8" in few
    assert "both right and wrong" in scored_pools.explain_missing_curve(many, [np.zeros(8)])
    assert "one score" in scored_pools.explain_missing_curve([np.zeros(8)], right)
    # 0.1 is no binary fraction: the standard deviation of 128 of them is 1e-17.
    assert "one score" in scored_pools.explain_missing_curve(
        [np.full(128, 0.1)], [np.tile(right[0], 16)]
    )


def test_a_scorer_that_scored_nothing_has_no_curve():
    rows = [scored(name, [True, False] * 4, [0.0] * 8) for name in "ab"]
    assert scored_pools.make_pool_curve("sft", "ensemble", rows) is None
    assert "one score" in scored_pools.make_pool_curve("sft", "reward_model", rows)
