"""The verdict in three sentences: gains over the baseline, pairs of policies, choice by rewards."""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.report.estimates import BEST_OF, MEAN
from stages.rewards.pool_scores import MEAN_LOGPROB

Metrics = Mapping[str, Any]


def sentences(metrics: Metrics) -> list[str]:
    """Three sentences; without several seeds they say that there is no verdict.

    Args:
        metrics: as `comparison.compare` returns them.
    """
    if len(metrics["seeds"]) == 1:
        return without_verdict(metrics)
    return [gains(metrics), pairs(metrics), selection(metrics)]


def without_verdict(metrics: Metrics) -> list[str]:
    """What can be said of one seed."""
    accuracy = {name: one[MEAN]["value"] for name, one in metrics["policies"].items()}
    ranked = sorted(accuracy, key=lambda name: -accuracy[name])
    listed = join([f"{name} {100 * accuracy[name]:.1f} %" for name in ranked])
    return [
        "One seed was trained, so no verdict over seeds is possible.",
        f"In this run mean accuracy is {listed}; another seed may order them otherwise.",
        "For a verdict set `seeds` in params.yaml to three or more.",
    ]


def gains(metrics: Metrics) -> str:
    """Each policy against the baseline."""
    baseline, found = metrics["baseline"], metrics["gains"][MEAN]
    over = (
        f"Over {len(metrics['seeds'])} seeds and {metrics['num_problems']:,} test problems, "
        f"{baseline} has a mean accuracy of {percent(metrics['policies'][baseline][MEAN])}"
    )
    if not found:
        return f"{over}; there is no other policy to compare with it."
    better, worse, rest = split(found, sorted(found, key=lambda name: -found[name]["value"]))
    kinds = (
        (better, "is significantly better", "are significantly better"),
        (worse, "is significantly worse", "are significantly worse"),
        (rest, "does not differ significantly", "do not differ significantly"),
    )
    parts = [f"{said(names, found)} {verb(names, *forms)}" for names, *forms in kinds if names]
    return f"{over}: {'; '.join(parts)}."


def pairs(metrics: Metrics) -> str:
    """The other policies against each other."""
    found = metrics["pairs"]
    if not found:
        return "There is no pair of other policies to compare."
    beaten: dict[str, list[str]] = {}
    for name, one in found.items():
        first, _, second = name.partition(" - ")
        if one["significant"]:
            beaten.setdefault(first, []).append(
                f"{second} (by {points(one).removeprefix('+')} points)"
            )
    if not beaten:
        return "Among the other policies no pairwise difference is significant."
    told = "; ".join(f"{first} is better than {join(below)}" for first, below in beaten.items())
    complete = sum(len(below) for below in beaten.values()) == len(found)
    end = "" if complete else "; no other pairwise difference is significant"
    return f"Among the other policies {told}{end}."


def selection(metrics: Metrics) -> str:
    """Choosing among the baseline's samples by rewards, against their majority."""
    n, found = metrics["n"], metrics["selection"][metrics["baseline"]]["over_majority"]
    better, worse, rest = split(found, sorted(found, key=lambda way: -found[way]["value"]))
    start = f"Against the majority of {n} samples of {metrics['baseline']}"
    if not better and not worse:
        return f"{start}, no way to choose by a reward differs significantly."
    parts = []
    if better:
        parts.append(
            f"{ways(better, found, n, better[0])} {verb(better, 'is', 'are')} significantly better"
        )
    if worse:
        parts.append(
            f"{ways(worse, found, n, worse[-1])} {verb(worse, 'is', 'are')} significantly worse"
        )
    if rest:
        others = "way does" if len(rest) == 1 else f"{len(rest)} ways do"
        parts.append(f"the other {others} not differ significantly")
    return f"{start}, {'; '.join(parts)}."


def ways(names: Sequence[str], found: Metrics, n: int, most: str) -> str:
    """One or two ways with what they gain; of more their number, and the most extreme."""
    named = {way: f"the {name(way, n)}" for way in names}
    if len(names) <= 2:
        return said(names, found, named)
    extreme = f"{named[most]} ({points(found[most])} points)"
    return f"{len(names)} ways to choose by a reward, most of all {extreme},"


def name(way: str, n: int | str) -> str:
    """`best_of/outcome` in words."""
    kind, _, reward = way.partition("/")
    by = "own log-probability" if reward == MEAN_LOGPROB else reward
    return f"best of {n} by {by}" if kind == BEST_OF else f"vote weighted by {by}"


def split(found: Metrics, names: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Significantly above zero, significantly below, and the rest."""
    significant = [one for one in names if found[one]["significant"]]
    above = [one for one in significant if found[one]["value"] > 0]
    below = [one for one in significant if found[one]["value"] <= 0]
    return above, below, [one for one in names if not found[one]["significant"]]


def said(names: Sequence[str], found: Metrics, named: Mapping[str, str] | None = None) -> str:
    """`dpo (+20.1 points) and grpo (+18.0 points)`."""
    return join([f"{(named or {}).get(one, one)} ({points(found[one])} points)" for one in names])


def verb(names: Sequence[str], one: str, many: str) -> str:
    """The form that agrees with so many subjects."""
    return one if len(names) == 1 else many


def join(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def percent(interval: Metrics) -> str:
    """A share, as a percentage."""
    return f"{100 * interval['value']:.1f} %"


def points(interval: Metrics) -> str:
    """A difference of shares, in percentage points."""
    return f"{100 * interval['value']:+.1f}"
