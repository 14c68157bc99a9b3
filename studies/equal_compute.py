"""Search against best-of-n and votes at equal cost, not at equal n.

A search is not compared at an equal number of samples: it also pays for what it drops, and for
reading steps (Snell et al. 2024, https://arxiv.org/abs/2408.03314). Accuracies are paired by seed
and problem (`statistics/crossed_means`).
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from stages.algorithms.selection.best_of_n import distinct_cost
from stages.records import pools
from stages.records.pools import Completion, ProblemResult, Score
from stages.records.problems import Prompt
from studies import study as studies

Values = Float[np.ndarray, "seed problem"]
Unit = Literal["flops", "tokens"]
UNITS: tuple[Unit, ...] = ("flops", "tokens")
"""Costs at which a search is compared: floating-point operations, generated tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CostCurve:
    """Curve of accuracy over cost: a way to choose among n samples of a pool."""

    accuracy: Mapping[int, Values]
    """Accuracy of each seed and problem, by n."""
    costs: Mapping[Unit, Mapping[int, float]]
    """Mean cost per problem by the same n, rising: floating-point operations, generated tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchOutcome:
    """A search of the same problems, in the same order."""

    accuracy: Mapping[str, Values]
    """Accuracy of each seed and problem, by the way to choose among its solutions."""
    costs: Mapping[Unit, float]
    """Mean cost per problem."""


def compare_at_equal_compute(
    curves: Mapping[str, CostCurve], searches: Mapping[str, SearchOutcome], *, confidence: float
) -> dict[str, Any]:
    """Accuracies with intervals over seeds and problems, and paired differences at equal compute.

    A search is compared with each curve at the search's exact cost; the curve is linear between its
    points (a share of the problems has the larger n). `at_end`: the search cost as much as the last
    point of the curve, or more, and is compared with that point.

    Returns:
        `curves`: name -> n -> {value, low, high, flops, tokens}. `searches`: name -> {flops,
        tokens, accuracy: {way: {value, low, high}}, versus: {unit: {curve: {n, n_cost, at_end,
        ways: {way: {value, low, high, p}}}}}} with the differences search minus curve; n is the
        largest that costs no more, and a curve without one is null.
    """

    def versus(search: SearchOutcome, curve: CostCurve, unit: Unit) -> dict[str, Any] | None:
        costs, budget = curve.costs[unit], search.costs[unit]
        ns = sorted(costs)
        place = bisect_right([costs[n] for n in ns], budget)
        if place == 0:
            return None
        below, above = ns[place - 1], ns[min(place, len(ns) - 1)]
        at_end = below == above
        share = 0.0 if at_end else (budget - costs[below]) / (costs[above] - costs[below])
        line = (1.0 - share) * curve.accuracy[below] + share * curve.accuracy[above]
        ways = {
            way: studies.estimate_gain(values - line, confidence=confidence)
            for way, values in search.accuracy.items()
        }
        return {"n": below, "n_cost": costs[below], "at_end": at_end, "ways": ways}

    rate = partial(studies.estimate_interval, confidence=confidence, is_rate=True)
    return {
        "curves": {
            name: {
                str(n): rate(values) | {unit: costs[n] for unit, costs in curve.costs.items()}
                for n, values in curve.accuracy.items()
            }
            for name, curve in curves.items()
        },
        "searches": {
            name: {
                **search.costs,
                "accuracy": {way: rate(values) for way, values in search.accuracy.items()},
                "versus": {
                    unit: {method: versus(search, curve, unit) for method, curve in curves.items()}
                    for unit in UNITS
                },
            }
            for name, search in searches.items()
        },
    }


def count_distinct_tokens(
    problems: Sequence[Sequence[tuple[tuple[int, ...], int]]], ns: Sequence[int]
) -> dict[int, float]:
    """Tokens that a process model reads of n samples of a problem, on average, besides its prompt.

    Equal completions of a problem are read once; expected over the subsets of n of a pool, as the
    accuracies are. `problems`: token ids and number of steps of each completion; each step has one
    more token to read.
    """
    counts = [Counter(pool) for pool in problems]
    costs = [[float(len(ids) + steps) for ids, steps in count] for count in counts]
    pairs = [(list(count.values()), cost) for count, cost in zip(counts, costs, strict=True)]
    return {n: float(np.mean([distinct_cost(*pair, n=n) for pair in pairs])) for n in ns}


def make_curves(
    problems: Sequence[tuple[Prompt, list[Completion]]],
    scores: Sequence[Score],
    results: Sequence[ProblemResult],
    sizes: tuple[int, int],
    process: str,
) -> dict[str, CostCurve]:
    """Curves of the ways to choose by which one seed's policy was evaluated; some pay for scores.

    A token that a model of P parameters reads or generates costs 2 P operations; all samples of a
    problem, and all that is scored of it, share one reading of the prompt. `results` are in the
    order of `problems`; `sizes`: parameters of the policy and of the process model.
    """
    ns = [int(n) for n in results[0].accuracy_at["majority"]]
    prompt = float(np.mean([len(prompt.prompt_ids) for prompt, _ in problems]))
    mean = float(
        np.mean([np.mean([len(row.completion_ids) for row in rows]) for _, rows in problems])
    )
    prompt_tokens = [
        [
            (tuple(row.completion_ids), len(score.steps[process]))
            for row, score in zip(pool, problem_scores, strict=True)
        ]
        for (_, pool), problem_scores in zip(
            problems, pools.align_scores(problems, scores), strict=True
        )
    ]
    plain = {n: 2.0 * sizes[0] * (prompt + n * mean) for n in ns}
    scored = {
        n: plain[n] + 2.0 * sizes[1] * (prompt + tokens)
        for n, tokens in count_distinct_tokens(prompt_tokens, ns).items()
    }
    methods = {
        "majority": ("majority", plain),
        "best_of/mean_logprob": ("best-of-n, own log-prob", plain),
        f"best_of/{process}": ("best-of-n, process", scored),
        f"weighted/{process}": ("weighted vote, process", scored),
    }
    return {
        label: CostCurve(
            accuracy={
                n: np.array([[row.accuracy_at[method][str(n)] for row in results]]) for n in ns
            },
            costs={"flops": flops, "tokens": {n: n * mean for n in ns}},
        )
        for method, (label, flops) in methods.items()
        if method in results[0].accuracy_at
    }


def average_curves(seeds: Sequence[Mapping[str, CostCurve]]) -> dict[str, CostCurve]:
    """Curves joined over seeds, at their mean cost."""
    averaged = {}
    for name, first in seeds[0].items():
        curves = [curves_of_seed[name] for curves_of_seed in seeds]
        averaged[name] = CostCurve(
            accuracy={n: np.concatenate([c.accuracy[n] for c in curves]) for n in first.accuracy},
            costs={
                unit: {n: float(np.mean([c.costs[unit][n] for c in curves])) for n in costs}
                for unit, costs in first.costs.items()
            },
        )
    return averaged
