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
    ranked = sorted(found, key=lambda name: -found[name]["value"])
    better, worse, rest = split(found, ranked)
    parts = [
        *phrase(better, found, "gains", "gain"),
        *phrase(worse, found, "loses", "lose"),
        *([insignificant(listed(rest, found))] if rest else []),
    ]
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
            beaten.setdefault(first, []).append(f"{second} (by {points(one, sign=False)} points)")
    if not beaten:
        return "Among the other policies no pairwise difference is significant."
    said = "; ".join(f"{first} is better than {join(below)}" for first, below in beaten.items())
    complete = sum(len(below) for below in beaten.values()) == len(found)
    end = "" if complete else "; no other pairwise difference is significant"
    return f"Among the other policies {said}{end}."


def selection(metrics: Metrics) -> str:
    """Choosing among the baseline's samples by rewards, against their majority."""
    baseline, n = metrics["baseline"], metrics["n"]
    found = metrics["selection"][baseline]["over_majority"]
    ranked = sorted(found, key=lambda way: -found[way]["value"])
    better, worse, rest = split(found, ranked)
    named = {way: name(way, n) for way in found}
    parts = [
        *phrase(better, found, "gains", "gain", named),
        *phrase(worse, found, "loses", "lose", named),
    ]
    start = f"Against the majority of {n} samples of {baseline}"
    if not parts:
        return f"{start} no way to choose among them by a reward differs significantly."
    if rest:
        which = (
            join([named[way] for way in rest]) if len(rest) < 3 else f"the other {len(rest)} ways"
        )
        parts.append(f"{which} {verb(rest, 'does', 'do')} not differ significantly from it")
    return f"{start}, {'; '.join(parts)}."


def name(way: str, n: int) -> str:
    """`best_of/outcome` in words."""
    kind, _, reward = way.partition("/")
    by = "the policy's own log-probability" if reward == MEAN_LOGPROB else reward
    return f"best-of-{n} by {by}" if kind == BEST_OF else f"the vote weighted by {by}"


def split(found: Metrics, names: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Significantly above zero, significantly below, and the rest."""
    significant = [one for one in names if found[one]["significant"]]
    above = [one for one in significant if found[one]["value"] > 0]
    below = [one for one in significant if found[one]["value"] <= 0]
    return above, below, [one for one in names if not found[one]["significant"]]


def insignificant(listed: Sequence[str]) -> str:
    """`the difference of ppo (+1.2 points) is not significant`."""
    if len(listed) == 1:
        return f"the difference of {listed[0]} is not significant"
    return f"the differences of {join(listed)} are not significant"


def phrase(
    names: Sequence[str],
    found: Metrics,
    one: str,
    many: str,
    named: Mapping[str, str] | None = None,
) -> list[str]:
    """`dpo (+20.1) and grpo (+18.0) gain significantly`, or nothing."""
    if not names:
        return []
    return [f"{join(listed(names, found, named))} {verb(names, one, many)} significantly"]


def listed(
    names: Sequence[str], found: Metrics, named: Mapping[str, str] | None = None
) -> list[str]:
    """Each with its difference in percentage points."""
    return [f"{(named or {}).get(one, one)} ({points(found[one])} points)" for one in names]


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


def points(interval: Metrics, *, sign: bool = True) -> str:
    """A difference of shares, in percentage points."""
    value = 100 * interval["value"]
    return f"{value:+.1f}" if sign else f"{value:.1f}"
