"""The verdict in three sentences: gains over the baseline, pairs of policies, choice by rewards."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stages.report.estimates import BEST_OF, MEAN
from stages.rewards.pool_scores import MEAN_LOGPROB

Metrics = Mapping[str, Any]


def sentences(metrics: Metrics) -> list[str]:
    """Three sentences on the numbers of `comparison.compare`; of one seed there is no verdict."""
    if len(metrics["seeds"]) > 1:
        return [gains(metrics), pairs(metrics), selection(metrics)]
    accuracy = {name: one[MEAN]["value"] for name, one in metrics["policies"].items()}
    ranked = sorted(accuracy, key=lambda name: -accuracy[name])
    listed = join(f"{name} {100 * accuracy[name]:.1f} %" for name in ranked)
    return [
        "One seed was trained, so no verdict over seeds is possible.",
        f"In this run mean accuracy is {listed}; another seed may order them otherwise.",
        "For a verdict set `seeds` in params.yaml to three or more.",
    ]


def by_rewards(metrics: Metrics) -> list[str]:
    """Of each reward what it prefers to the baseline (`reward_comparison.compare`)."""
    seeds, baseline = metrics["seeds"], metrics["baseline"]
    if not metrics["gains"]:
        return [
            "No answer can be checked and no row of `rewards` is a model, so nothing tells which "
            "policy is better. Add a reward learned from people's or a judge's pairs."
        ]
    said = ["No answer can be checked: this is what the reward models prefer, not what people do."]
    if len(seeds) == 1:
        said.append("One seed was trained, so no verdict over seeds is possible.")
    for measure, found in metrics["gains"].items():
        reward = measure.partition("/")[2]
        over = f"By {reward}, over {len(seeds)} seed{'s' * (len(seeds) > 1)}"
        parts = [f"{over} and {metrics['num_problems']:,} test prompts"]
        for name in ranked(found):
            won = 100 * metrics["policies"][name][f"wins/{reward}"]["value"]
            certain = {True: "significant", False: "not significant", None: "untested"}
            told = certain[found[name]["significant"]]
            parts.append(f"{name} scores {found[name]['value']:+.3f} ({told}; wins {won:.1f} %)")
        said.append(f"{', '.join(parts)} against {baseline}." if found else f"{over} none differ.")
    return said


def gains(metrics: Metrics) -> str:
    """Each policy against the baseline."""
    baseline, found = metrics["baseline"], metrics["gains"][MEAN]
    before = metrics["policies"][baseline][MEAN]["value"]
    over = (
        f"Over {len(metrics['seeds'])} seeds and {metrics['num_problems']:,} test problems, "
        f"{baseline} has a mean accuracy of {100 * before:.1f} %"
    )
    if not found:
        return f"{over}; there is no other policy to compare with it."
    better, worse, rest = split(found, ranked(found))
    kinds = (
        (better, "is significantly better", "are significantly better"),
        (worse, "is significantly worse", "are significantly worse"),
        (rest, "does not differ significantly", "do not differ significantly"),
    )
    parts = [
        f"{join(said(name, found[name]) for name in names)} {one if len(names) == 1 else many}"
        for names, one, many in kinds
        if names
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
            gap = points(one).removeprefix("+")
            beaten.setdefault(first, []).append(f"{second} (by {gap} points)")
    if not beaten:
        return "Among the other policies no pairwise difference is significant."
    told = "; ".join(f"{first} is better than {join(below)}" for first, below in beaten.items())
    complete = sum(map(len, beaten.values())) == len(found)
    end = "" if complete else "; no other pairwise difference is significant"
    return f"Among the other policies {told}{end}."


def selection(metrics: Metrics) -> str:
    """Choosing among the baseline's samples by rewards, against their majority."""
    n, found = metrics["n"], metrics["selection"][metrics["baseline"]]["over_majority"]
    better, worse, rest = split(found, ranked(found))
    start = f"Against the majority of {n} samples of {metrics['baseline']}"
    if not better and not worse:
        return f"{start}, no way to choose by a reward differs significantly."
    parts = [
        f"{ways(names, found, n, most)} {'is' if len(names) == 1 else 'are'} significantly {how}"
        for names, most, how in ((better, 0, "better"), (worse, -1, "worse"))
        if names
    ]
    if rest:
        others = "way does" if len(rest) == 1 else f"{len(rest)} ways do"
        parts.append(f"the other {others} not differ significantly")
    return f"{start}, {'; '.join(parts)}."


def ways(names: Sequence[str], found: Metrics, n: int, most: int) -> str:
    """One or two ways with what they gain; of more their number, and the most extreme."""
    listed = [said(f"the {name(way, n)}", found[way]) for way in names]
    if len(names) <= 2:
        return join(listed)
    return f"{len(names)} ways to choose by a reward, most of all {listed[most]},"


def name(way: str, n: int | str) -> str:
    """`best_of/outcome` in words."""
    kind, _, reward = way.partition("/")
    by = "own log-probability" if reward == MEAN_LOGPROB else reward
    return f"best of {n} by {by}" if kind == BEST_OF else f"vote weighted by {by}"


def ranked(found: Metrics) -> list[str]:
    """The names of differences, the largest first."""
    return sorted(found, key=lambda name: -found[name]["value"])


def split(found: Metrics, names: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Significantly above zero, significantly below, and the rest."""
    significant = [one for one in names if found[one]["significant"]]
    above = [one for one in significant if found[one]["value"] > 0]
    below = [one for one in significant if found[one]["value"] <= 0]
    return above, below, [one for one in names if not found[one]["significant"]]


def said(name: str, difference: Metrics) -> str:
    """`dpo (+20.1 points)`."""
    return f"{name} ({points(difference)} points)"


def points(difference: Metrics) -> str:
    """In percentage points."""
    return f"{100 * difference['value']:+.1f}"


def join(words: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
