"""Best-of-n on large pools of completions, each distinct one judged and scored once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from pydantic import Field

from stages.algorithms.selection.best_of_n import MIN_POOL_RATIO, best_of_n, kl_plug_in
from stages.loops import pool_sampling
from stages.loops.pool_sampling import Decode, PoolRequest, PoolSamplingConfig
from stages.loops.work import Step
from stages.models.batch import make_groups
from stages.records import pools
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import answer_checker
from stages.sampler import Sampler
from studies.checkpoint_measures import Scorers
from studies.proxy_curves import BEST_OF_N, GOLD, PROXY, ProxyCurve, measure_within_deviation

DIGITS = 5
"""Decimals kept of a score: the others are rounding, and would break ties at random."""
CHUNK = 16
"""Problems per report of progress: their pools are large."""
Problems = Sequence[Float[np.ndarray, " sample"]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredProblem:
    """One row of `data/studies/overoptimization/rows/<seed>/pools.jsonl`, in drawing order."""

    id: str
    correct: list[bool]
    """Whether the final answer of each completion is right."""
    reward_model: list[float] | None
    """Scores by the single reward model; null without one."""
    ensemble: list[float] | None
    """Scores by the ensemble."""
    num_distinct: int
    """Different completions: only these were scored."""
    generated_tokens: int


class BestOfNConfig(PoolSamplingConfig):
    """Size of the pools, and number of problems."""

    num_problems: int | None = Field(ge=1)
    """Number of problems from the start of the split; null: all."""


def score_pools(
    sampler: Sampler,
    decode: Decode,
    scorers: Scorers,
    pool: PoolRequest,
    row_tokens: int,
    seed: int,
) -> Iterator[Step]:
    """Pools with their scores, for each part of the problems.

    A problem's stream depends only on `seed` and its id. Policy and scorers use the same tokens.
    """
    for index, start in enumerate(range(0, len(pool.prompts), CHUNK)):
        part = pool.prompts[start : start + CHUNK]
        pools_of_prompts = pool_sampling.draw(sampler, decode, part, pool, seed)
        rows = [
            score_pool(*pool_row, scorers, row_tokens)
            for pool_row in pools.join_prompts(part, pools_of_prompts)
        ]
        metrics: dict[str, int | float] = {
            "tokens/generated": pool_sampling.num_tokens(pools_of_prompts)
        }
        yield Step(index=index, metrics=metrics, rows=rows)


def score_pool(
    prompt: Prompt, pool: Sequence[Completion], scorers: Scorers, row_tokens: int
) -> ScoredProblem:
    """Completions of a problem with verdicts and scores."""
    distinct, numbers = pools.deduplicate(pool)
    groups = make_groups(
        [(prompt.prompt_ids, [row.completion_ids for row in distinct])], row_tokens
    )
    values_by_scorer: list[list[float] | None] = []
    for scorer in scorers:
        values = scorer(groups).values.tolist() if scorer else []
        values_by_scorer.append(
            [round(values[number], DIGITS) for number in numbers] if scorer else None
        )
    verdicts = [answer_checker.solves_problem(prompt, row.completion) for row in distinct]
    return ScoredProblem(
        id=prompt.id, correct=[verdicts[number] for number in numbers],
        reward_model=values_by_scorer[0], ensemble=values_by_scorer[1],
        num_distinct=len(distinct), generated_tokens=pool_sampling.num_tokens(pool),
    )  # fmt: skip


def make_pool_curve(
    name: str, scorer: str, rows: Sequence[ScoredProblem]
) -> ProxyCurve | str | None:
    """Best-of-n curve by one scorer, or the reason why there is none; None: it scored nothing."""
    values = [getattr(row, scorer) for row in rows]
    if None in values:
        return None
    scores = [np.array(row, dtype=np.float64) for row in values]
    verdicts = [np.array(row.correct, dtype=np.float64) for row in rows]
    if why := explain_missing_curve(scores, verdicts):
        return why
    # Every n from 1 to a quarter of the pool, each from the whole pool, without bias.
    sizes = range(1, min(map(len, scores)) // MIN_POOL_RATIO + 1)
    pairs = list(zip(scores, verdicts, strict=True))
    return ProxyCurve(
        method=BEST_OF_N, name=name, scorer=scorer, places=sizes,
        kl=np.array([[kl_plug_in(row, n=n) for n in sizes] for row in scores]),
        proxy=np.array([[best_of_n(row, row, n=n) for n in sizes] for row in scores]),
        gold=np.array([[best_of_n(row, right, n=n) for n in sizes] for row, right in pairs]),
        units={PROXY: measure_within_deviation(scores), GOLD: measure_within_deviation(verdicts)},
    )  # fmt: skip


def explain_missing_curve(scores: Problems, verdicts: Problems) -> str | None:
    """Reason why a pool shows nothing of best-of-n, in words; None: it does."""
    smallest = min(map(len, scores))
    if smallest < 2 * MIN_POOL_RATIO:
        return (
            f"the pool has {smallest} completions of a problem, and best-of-n needs "
            f"{MIN_POOL_RATIO} n: raise best_of_n.num_samples of the study to at least "
            f"{2 * MIN_POOL_RATIO}"
        )
    # Not by the standard deviation: that of equal numbers may be the rounding of their mean.
    if all(np.ptp(of_problem) == 0.0 for of_problem in verdicts):
        return "no problem of the pool has both right and wrong completions"
    if all(np.ptp(of_problem) == 0.0 for of_problem in scores):
        return "all completions of a problem have one score"
    return None
