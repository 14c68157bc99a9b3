"""The comparison in numbers: of policies, and of ways to choose among a policy's samples."""

import itertools
from statistics import fmean
from typing import Any

import numpy as np

from stages.report import differences, estimates
from stages.report.differences import Difference, Interval
from stages.report.estimates import BEST_OF, GREEDY, MAJORITY, MEAN, PASS, WEIGHTED, rounded
from stages.report.results import Results
from stages.rewards.pool_scores import FORMAT, LONGEST, SHORTEST

UNTESTED = (FORMAT, LONGEST, SHORTEST)
"""What needs no model: for comparison, not among what is tested against the majority."""
NUM_GROUPS = 5


def compare(results: Results, *, confidence: float) -> dict[str, Any]:
    """The numbers of `data/report/metrics.json` that are estimated on test problems.

    Families of comparisons, Holm's adjustment within each: every policy minus the baseline, of each
    measure; every two of the other policies, of mean accuracy; every way to choose among a policy's
    samples minus their majority, and minus what a check of the format does in its place.
    """
    baseline, *others = results.tables
    n = results.largest
    measures = (MEAN, GREEDY, f"{MAJORITY}/{n}")
    tables, seeds = results.tables, results.seeds
    kept = [
        *estimates.FIELDS,
        *(f"{method}/{n}" for method in (MAJORITY, PASS)),
    ]
    return {
        "baseline": baseline,
        "seeds": seeds,
        "num_problems": len(results.ids),
        "num_samples": results.num_samples,
        "n": n,
        "confidence": confidence,
        "best_on_dev": _best_on_dev(results),
        "policies": {
            name: differences.intervals(
                {key: tables[name][key] for key in kept}, seeds, confidence=confidence
            )
            | {"dev_accuracy": dev_accuracy(results, name)}
            for name in tables
        },
        "gains": {
            measure: differences.compare(
                {name: tables[name][measure] - tables[baseline][measure] for name in others},
                seeds,
                confidence=confidence,
            )
            for measure in (*measures, "mean_strict", "mean_lenient")
        },
        "pairs": pairs(results, others, confidence=confidence),
        "selection": {name: selection(results, name, confidence=confidence) for name in tables},
        "difficulty": difficulty(results, confidence=confidence),
    }


def pairs(results: Results, others: list[str], *, confidence: float) -> dict[str, Difference]:
    """Every two policies besides the baseline, `a - b` where a has the larger mean accuracy."""
    by_mean = sorted(others, key=lambda name: -float(results.tables[name][MEAN].mean()))
    family = {
        f"{first} - {second}": results.tables[first][MEAN] - results.tables[second][MEAN]
        for first, second in itertools.combinations(by_mean, 2)
    }
    return differences.compare(family, results.seeds, confidence=confidence)


def selection(results: Results, policy: str, *, confidence: float) -> dict[str, Any]:
    """What choosing among n samples of a policy gives, by reward and way, at the largest n.

    Returns:
        `accuracy`, `over_majority` and `over_format`, each `{<way>/<reward>: ...}`, and `auc` and
        `auc_in_format` by reward, the mean over seeds with each seed's.
    """
    n, tables, seeds = results.largest, results.tables[policy], results.seeds
    ways = [f"{w}/{r}" for w in (BEST_OF, WEIGHTED) for r in results.methods(policy, w)]
    tested = [way for way in ways if way.partition("/")[2] not in UNTESTED]
    majority = tables[f"{MAJORITY}/{n}"]

    def checked(way: str) -> differences.Table:
        return tables[f"{way.partition('/')[0]}/{FORMAT}/{n}"]

    found: dict[str, Any] = {
        "accuracy": differences.intervals(
            {way: tables[f"{way}/{n}"] for way in ways}, seeds, confidence=confidence
        ),
        "over_majority": differences.compare(
            {way: tables[f"{way}/{n}"] - majority for way in tested}, seeds, confidence=confidence
        ),
        "over_format": differences.compare(
            {way: tables[f"{way}/{n}"] - checked(way) for way in tested},
            seeds,
            confidence=confidence,
        ),
    }
    for kind in ("auc", "auc_in_format"):
        found[kind] = {
            name: one
            for name in results.methods(policy, BEST_OF)
            if (one := over_seeds(results, policy, f"{kind}/{name}")) is not None
        }
    return found


def over_seeds(results: Results, policy: str, key: str) -> Interval | None:
    """The mean over seeds of a number of metrics.json, and each; None where a seed lacks it."""
    found = {str(seed): one[key] for seed, one in results.metrics[policy].items() if key in one}
    if len(found) < len(results.seeds):
        return None
    return {"value": rounded(fmean(found.values())), "seeds": found}


def dev_accuracy(results: Results, policy: str) -> Interval:
    """Mean accuracy on the dev problems."""
    found = over_seeds(results, policy, "dev_accuracy")
    assert found is not None, policy
    return found


def _best_on_dev(results: Results) -> str:
    accuracy = {name: dev_accuracy(results, name)["value"] for name in results.tables}
    return max(accuracy, key=accuracy.__getitem__)


def difficulty(results: Results, *, confidence: float) -> list[dict[str, Any]]:
    """Mean accuracy on fifths of the problems, the hardest for the baseline first.

    A problem's difficulty is the baseline's accuracy over the samples of even number; what is shown
    is the accuracy over those of odd number. A problem that was lucky in the first half is as
    likely as ever to be right in the second; with the same samples on both sides the hardest
    problems would look harder than they are, and every other policy would seem to gain there.
    """
    baseline = next(iter(results.tables))
    even, _ = results.halves[baseline]
    order = np.argsort(even.mean(axis=0), kind="stable")
    groups = [part for part in np.array_split(order, NUM_GROUPS) if len(part) > 1]
    return [
        {
            "problems": len(places),
            "policies": differences.intervals(
                {name: odd[:, places] for name, (_, odd) in results.halves.items()},
                results.seeds,
                confidence=confidence,
            ),
        }
        for places in groups
    ]
