"""Comparison in numbers of policies, and of ways to choose among a policy's samples.

A difference is paired by seed and by problem, and its interval covers the variance of both
(`statistics/crossed_means`). With fewer than three seeds there is no p-value, and no difference is
called significant; with one seed, the interval is only over problems, and does not cover another
training run.
"""

import itertools
from collections.abc import Collection, Mapping
from statistics import fmean
from typing import Any

import numpy as np

from stages.algorithms.statistics import crossed_means
from stages.algorithms.statistics.crossed_means import (
    MIN_SEEDS,
    ROUNDING,
    Columns,
    CrossedMeans,
    PowerDesign,
    holm_adjusted,
)
from stages.records.metrics import mean_over_seeds, round_metric, with_interval
from stages.report import sharpening
from stages.report.estimates import (
    BEST_OF,
    BEST_TEMPERATURE,
    FIELDS,
    GREEDY,
    IN_LOOP,
    MAJORITY,
    MEAN,
    PASS,
    TOKENS,
    WEIGHTED,
    Results,
    Table,
)
from stages.rewards.pool_scores import FORMAT, WITHOUT_A_REWARD

Interval = dict[str, Any]
"""Estimate `{value, low, high, seeds: {seed: value}}`."""
Difference = dict[str, Any]
"""An `Interval` with `p`, `p_holm`, `significant`, `seed_share` and `detectable`; with fewer than
`MIN_SEEDS` seeds they are None. `seed_share` is the seeds' share of the squared standard error.
`detectable` is the smallest true difference that would be significant with probability `POWER`, at
Holm's level for the smallest p-value; None if the difference is the same in every cell, whose
variance is not informative."""
POWER = 0.8
"""Power of `detectable`, by the usual convention (Cohen 1988)."""
NUM_GROUPS = 5


def compare_policies(results: Results) -> dict[str, Any]:
    """Numbers of `data/report/metrics.json` that are estimated on test problems.

    p-values are adjusted by Holm's method within each family of comparisons. Families: every policy
    minus the baseline, for each measure (so accuracy as sampled and at the best temperature are two
    families) and each part of a gain; every pair of the other policies, for mean accuracy; every
    way to choose among a policy's samples by a reward model, minus a single sample, minus their
    majority vote, and minus a choice only by format.
    """
    baseline, policies = next(iter(results.tables)), _estimate_policies(results)
    of_baseline, n = results.temperatures[baseline], results.ns[-1]
    measures = (
        MEAN, BEST_TEMPERATURE, GREEDY, f"{MAJORITY}/{n}", "mean_strict", "mean_lenient",
        f"{PASS}/{results.ks[-1]}",
    )  # fmt: skip
    return {
        "baseline": baseline, "seeds": results.seeds, "num_problems": len(results.ids),
        "num_samples": results.num_samples, "n": n, "confidence": results.confidence,
        "best_on_dev": max(policies, key=lambda name: policies[name]["dev_accuracy"]["value"]),
        "policies": policies,
        "gains": {
            measure: test_gains(results, measure, baseline)
            for measure in measures
            if measure in results.tables[baseline]
        },
        "temperatures": {
            "sampled": of_baseline.sampled,
            "dev_problems": len(of_baseline.dev[of_baseline.sampled].T),
            "policies": {name: of.summarise() for name, of in results.temperatures.items()},
        },
        "parts": _test_parts(results),
        "coverage": {
            "ks": results.ks,
            "policies": {
                name: count_solved(table[MEAN], results.tables[baseline][MEAN])
                for name, table in results.tables.items()
                if name != baseline
            },
        },
        "pairs": test_pairs(results, MEAN, baseline),
        "selection": {name: compare_selection(results, name) for name in results.tables},
        "difficulty": split_by_difficulty(results),
    }  # fmt: skip


def _estimate_policies(results: Results) -> dict[str, dict[str, Any]]:
    """Policy -> measure -> mean with an interval; also accuracy on dev, and the share of loops."""
    passes = [f"{PASS}/{k}" for k in results.ks]
    measures = [*FIELDS, BEST_TEMPERATURE, f"{MAJORITY}/{results.ns[-1]}", *passes]
    policies: dict[str, dict[str, Any]] = {}
    for name, table in results.tables.items():
        metrics_by_seed = results.metrics[name]
        in_loop = fmean(metrics.get(IN_LOOP, 0.0) for metrics in metrics_by_seed.values())
        policies[name] = (
            estimate_intervals(
                {key: table[key] for key in measures if key in table}, results, no_shares=[TOKENS]
            )
            | {"dev_accuracy": mean_over_seeds(metrics_by_seed, ["dev_accuracy"])}
            | ({IN_LOOP: in_loop} if in_loop else {})
        )
    return policies


def _test_parts(results: Results) -> dict[str, dict[str, Difference]]:
    """Part of the gain (sharpening, format, rest), each a family -> policy -> its difference.

    Empty if no best temperature is chosen.
    """
    baseline, *trained = results.tables
    temperatures, families = results.temperatures, dict[str, dict[str, Table]]()
    for name in trained if temperatures[baseline].is_chosen else ():
        parts = sharpening.split_gain(temperatures[baseline], temperatures[name])
        for part, table in parts.items():
            families.setdefault(part, {})[name] = table
    return {part: test_differences(family, results) for part, family in families.items()}


def count_solved(policy: Table, baseline: Table) -> dict[str, Any]:
    """Numbers of problems that only the policy, only the baseline, or neither of them ever solves.

    Solved means right in any sample. "Never right in N samples" does not prove that a policy cannot
    solve a problem: if a sample is right with probability 1/N, all N are wrong with probability
    (1 - 1/N)^N, 36 % for N = 16. `policy` and `baseline` are shares of right samples, [seed,
    problem]. Each number has its mean over seeds as `value`, and that of each seed.
    """
    solved, before = policy > 0, baseline > 0
    counts = {
        "only_policy": (solved & ~before).sum(axis=1),
        "only_baseline": (before & ~solved).sum(axis=1),
        "neither": (~before & ~solved).sum(axis=1),
    }
    return {
        name: {"value": round_metric(fmean(of_seeds)), "seeds": of_seeds.tolist()}
        for name, of_seeds in counts.items()
    }


def compare_selection(results: Results, policy: str) -> dict[str, Any]:
    """Accuracy of a choice among n samples of a policy, by way and reward, at the largest n.

    Returns:
        `accuracy`; for reward models also `over_single` (over one sample at the policy's best
        temperature, or, if none is chosen, as sampled), `over_majority` and `over_format`, each
        `{<way>/<reward>: ...}`; `auc` and `auc_in_format` by reward, the mean over seeds with each
        seed's.
    """
    n, tables = results.ns[-1], results.tables[policy]
    ways = {f"{w}/{r}": (w, r) for w in (BEST_OF, WEIGHTED) for r in results.methods(policy, w)}
    accuracy = {way: tables[f"{way}/{n}"] for way in ways}
    tested = {way: kind for way, (kind, reward) in ways.items() if reward not in WITHOUT_A_REWARD}
    single = tables.get(BEST_TEMPERATURE, tables[MEAN])
    over_single = {way: accuracy[way] - single for way in tested}
    over_majority = {way: accuracy[way] - tables[f"{MAJORITY}/{n}"] for way in tested}
    over_format = {
        way: accuracy[way] - tables[f"{kind}/{FORMAT}/{n}"] for way, kind in tested.items()
    }
    result: dict[str, Any] = {
        "accuracy": estimate_intervals(accuracy, results),
        "over_single": test_differences(over_single, results),
        "over_majority": test_differences(over_majority, results),
        "over_format": test_differences(over_format, results),
    }
    for kind in ("auc", "auc_in_format"):
        result[kind] = {
            reward: area
            for reward in results.methods(policy, BEST_OF)
            if (area := mean_over_seeds(results.metrics[policy], [f"{kind}/{reward}"]))
        }
    return result


def split_by_difficulty(results: Results) -> list[dict[str, Any]]:
    """Mean accuracy on fifths of the problems, the hardest for the baseline first.

    A problem's difficulty is the baseline's accuracy over its samples with even index; the reported
    accuracy is over those with odd index, so that luck in one half does not carry over to the
    other. With the same samples for both, the hardest problems would look harder than they are, and
    every other policy would seem to gain there (regression to the mean). Empty if a fifth would be
    a single problem, which has no interval.
    """
    even, _ = next(iter(results.halves.values()))
    order = np.argsort(even.mean(axis=0), kind="stable")
    if len(order) < 2 * NUM_GROUPS:
        return []
    halves = {name: odd for name, (_, odd) in results.halves.items()}
    return [
        {
            "problems": len(places),
            "policies": estimate_intervals(
                {name: odd[:, places] for name, odd in halves.items()}, results
            ),
        }
        for places in np.array_split(order, NUM_GROUPS)
    ]


def estimate_intervals(
    tables: Mapping[str, Table], results: Results, *, no_shares: Collection[str] = ()
) -> dict[str, Interval]:
    """Mean of each table with its interval, which is within [0, 1] for shares.

    `no_shares`: names of tables of other quantities, such as tokens, whose values may all happen to
    be within [0, 1].
    """
    is_share = {
        name: name not in no_shares and bool(table.min() >= 0.0 and table.max() <= 1.0 + ROUNDING)
        for name, table in tables.items()
    }
    _, means = _estimate_means(tables, results, largest=np.array([*is_share.values()], dtype=float))
    for name in filter(is_share.__getitem__, means):
        means[name] |= {"low": max(0.0, means[name]["low"]), "high": min(1.0, means[name]["high"])}
    return means


def test_gains(
    results: Results,
    measure: str,
    baseline: str | None,
    *,
    are_shares: bool = True,  # noqa: PT028
) -> dict[str, Difference]:
    """Policy -> gain over the baseline in a measure, a family; empty without a baseline."""
    tables = {name: table[measure] for name, table in results.tables.items()}
    family = {
        name: table - tables[baseline]
        for name, table in tables.items()
        if baseline is not None and name != baseline
    }
    return test_differences(family, results, are_shares=are_shares)


def test_pairs(results: Results, measure: str, baseline: str | None) -> dict[str, Difference]:
    """Differences of all pairs of policies but the baseline in a measure: larger - smaller."""
    tables = {name: of[measure] for name, of in results.tables.items() if name != baseline}
    by_mean = sorted(tables, key=lambda name: -float(tables[name].mean()))
    pairs = {
        f"{first} - {second}": tables[first] - tables[second]
        for first, second in itertools.combinations(by_mean, 2)
    }
    return test_differences(pairs, results)


def test_differences(
    family: Mapping[str, Table],
    results: Results,
    *,
    are_shares: bool = True,  # noqa: PT028
) -> dict[str, Difference]:
    """Mean of each table of differences with its test against 0, adjusted as one family.

    Intervals of differences of shares (`are_shares`) are within [-1, 1].
    """
    if not family:
        return {}
    means, differences = _estimate_means(family, results, largest=float(are_shares))
    for difference in differences.values() if are_shares else ():
        difference |= {"low": max(-1.0, difference["low"]), "high": min(1.0, difference["high"])}
    if len(results.seeds) < MIN_SEEDS:
        nothing = dict.fromkeys(("p", "p_holm", "significant", "seed_share", "detectable"))
        return {name: difference | nothing for name, difference in differences.items()}
    alpha, clusters = 1.0 - results.confidence, results.clusters
    adjusted = holm_adjusted(means.p_value.tolist())
    detectable = crossed_means.detectable_difference(
        means.components,
        PowerDesign(significance=alpha / len(family), power=POWER),
        num_seeds=len(results.seeds),
        num_problems=next(iter(family.values())).shape[1]
        if clusters is None
        else len(np.unique(clusters)),
    )
    for at, difference in enumerate(differences.values()):
        difference |= {
            "p": round_metric(means.p_value[at]), "p_holm": round_metric(adjusted[at]),
            "significant": adjusted[at] <= alpha, "seed_share": round_metric(means.seed_share[at]),
            "detectable": round_metric(detectable[at]) if detectable[at] else None,
        }  # fmt: skip
    return differences


def _estimate_means(
    tables: Mapping[str, Table], results: Results, *, largest: float | Columns
) -> tuple[CrossedMeans, dict[str, Interval]]:
    stacked = np.stack(list(tables.values()), axis=-1)
    if stacked.shape[1] < 2:
        raise ValueError(
            f"expected at least two test problems, or starts that every policy played, since every "
            f"interval covers the variance over them; found {stacked.shape[1]}. Raise "
            f"data.shares.test, or starts.test of the environment's preset."
        )
    if results.clusters is not None:
        stacked = crossed_means.collapse_clusters(stacked, results.clusters)
    means = crossed_means.estimate_means(stacked, confidence=results.confidence, largest=largest)
    bounds = zip(means.value, means.low, means.high, strict=True)
    return means, {
        name: {
            **with_interval(*estimate),
            "seeds": {
                str(seed): round_metric(row.mean())
                for seed, row in zip(results.seeds, table, strict=True)
            },
        }
        for (name, table), estimate in zip(tables.items(), bounds, strict=True)
    }
