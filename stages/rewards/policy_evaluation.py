"""Evaluate a policy's pools problem by problem."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stages.algorithms.selection import votes
from stages.records import pools
from stages.records.pools import Completion, Score
from stages.records.problems import Prompt
from stages.records.results import ProblemResult
from stages.rewards import pool_scores, problem_evaluation
from stages.rewards.aggregation import Aggregation


@dataclass(frozen=True, kw_only=True, slots=True)
class Pools:
    """What a policy answered, and what scorers made of it."""

    problems: list[tuple[Prompt, list[Completion]]]
    greedy: list[tuple[Prompt, list[Completion]]]
    scores: list[Score]
    """Of all completions of `problems`, or none at all."""
    aggregation: Aggregation | None


def evaluate(of: Pools, *, ks: Sequence[int], num_draws: int, seed: int) -> Iterator[ProblemResult]:
    """Each problem's results, in the order of the prompts.

    The random orders that votes by weight are averaged over are the same for all problems,
    scorers and policies.

    Raises:
        ValueError: scores of other completions, or of steps and nothing says how they become one.
    """
    scores = pools.scores(of.problems, of.scores) if of.scores else [None] * len(of.problems)
    orders = votes.nested_subsets(len(of.problems[0][1]), num_draws=num_draws, seed=seed)
    for (prompt, pool), (_, greedy), rows in zip(of.problems, of.greedy, scores, strict=True):
        views = pool_scores.by_scorer(pool, rows, of.aggregation)
        yield problem_evaluation.evaluate(prompt, pool, greedy[0], views, ks=ks, orders=orders)
