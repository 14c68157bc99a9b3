"""The verdict: gains as sampled and at best temperatures, pairs of policies, choice by rewards."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stages.algorithms.statistics.crossed_means import MIN_SEEDS
from stages.report.estimates import BEST_OF, BEST_TEMPERATURE, MEAN
from stages.report.sharpening import MIN_DEV_PROBLEMS
from stages.rewards.pool_scores import MEAN_LOGPROB

Metrics = Mapping[str, Any]


def write_verdict(metrics: Metrics) -> list[str]:
    """Sentences on `comparison.compare_policies`; with fewer than three seeds, without verdict."""
    if (too_few := describe_few_seeds(metrics["seeds"], "trained")) is None:
        return [
            describe_gains(metrics), describe_gains_at_best(metrics), describe_pairs(metrics),
            describe_selection(metrics),
        ]  # fmt: skip
    sampled, best = (list_accuracies(metrics, measure) for measure in (MEAN, BEST_TEMPERATURE))
    no_choice = describe_no_choice(metrics["temperatures"])
    at_best = "" if no_choice else f", and at each policy's best temperature {best}"
    return [
        too_few,
        f"In this run mean accuracy is {sampled}{at_best}; other seeds may order them otherwise.",
        *([no_choice] if no_choice else []),
        "For a verdict set `seeds` in params.yaml to three or more.",
    ]


def describe_no_choice(temperatures: Metrics) -> str | None:
    """The sentence that dev problems are too few to choose each policy's temperature by."""
    number = temperatures["dev_problems"]
    if number >= MIN_DEV_PROBLEMS:
        return None
    return (
        f"No policy has a temperature chosen for it: that takes {MIN_DEV_PROBLEMS} dev problems, "
        f"and there are {number} (data.shares.dev). So part of a gain may be a narrower "
        f"distribution, which a lower temperature gives without training."
    )


def describe_few_seeds(seeds: Sequence[int], how: str) -> str | None:
    """The sentence that seeds are too few for a verdict; `how`: `trained` or `played`."""
    if len(seeds) >= MIN_SEEDS:
        return None
    number = "One seed was" if len(seeds) == 1 else "Two seeds were"
    return f"{number} {how}, so no verdict over seeds is possible: it needs three or more."


def list_accuracies(metrics: Metrics, measure: str) -> str:
    """`grpo 93.7 % and sft 64.2 %`, the highest first."""
    accuracy = {name: of[measure]["value"] for name, of in metrics["policies"].items()}
    ranked = sorted(accuracy, key=lambda name: -accuracy[name])
    return join_words(f"{name} {100 * accuracy[name]:.1f} %" for name in ranked)


def write_reward_verdict(metrics: Metrics) -> list[str]:
    """Policies that each reward prefers, as sentences (`reward_comparison`)."""
    seeds, baseline = metrics["seeds"], metrics["baseline"]
    if not metrics["gains"]:
        return [
            "No answer can be checked and no row of `rewards` is a model, so nothing tells which "
            "policy is better. Add a reward learned from people's or a judge's pairs."
        ]
    lines = ["No answer can be checked: this is what the reward models prefer, not what people do."]
    if too_few := describe_few_seeds(seeds, "trained"):
        lines.append(too_few)
    for measure, differences in metrics["gains"].items():
        reward = measure.partition("/")[2]
        over = f"By {reward}, over {len(seeds)} seed{'s' * (len(seeds) > 1)}"
        parts = [f"{over} and {metrics['num_problems']:,} test prompts"]
        for name in rank_differences(differences):
            won = 100 * metrics["policies"][name][f"wins/{reward}"]["value"]
            certain = {True: "significant", False: "not significant", None: "untested"}
            certainty = certain[differences[name]["significant"]]
            parts.append(
                f"{name} scores {differences[name]['value']:+.3f} ({certainty}; wins {won:.1f} %)"
            )
        lines.append(
            f"{', '.join(parts)} against {baseline}." if differences else f"{over} none differ."
        )
    return lines


def describe_gains(metrics: Metrics) -> str:
    """Sentences that compare each policy with the baseline."""
    baseline, differences = metrics["baseline"], metrics["gains"][MEAN]
    before = metrics["policies"][baseline][MEAN]["value"]
    over = (
        f"Over {len(metrics['seeds'])} seeds and {metrics['num_problems']:,} test problems, "
        f"{baseline} has a mean accuracy of {100 * before:.1f} % when it is sampled at temperature "
        f"{metrics['temperatures']['sampled']:g}"
    )
    if not differences:
        return f"{over}; there is no other policy to compare with it."
    return f"{over}: {list_gains(differences)}."


def describe_gains_at_best(metrics: Metrics) -> str:
    """The same where each is sampled at the temperature that is best for it on dev problems."""
    if no_choice := describe_no_choice(metrics["temperatures"]):
        return no_choice
    baseline, differences = metrics["baseline"], metrics["gains"][BEST_TEMPERATURE]
    accuracy = metrics["policies"][baseline][BEST_TEMPERATURE]["value"]
    best = {name: of["best"] for name, of in metrics["temperatures"]["policies"].items()}
    listed = (
        f"{best[baseline]:g} for all"
        if len(set(best.values())) == 1 and differences
        else join_words(f"{name} {temperature:g}" for name, temperature in best.items())
    )
    over = (
        f"At the temperature that is best for each on the dev problems ({listed}), {baseline} has "
        f"a mean accuracy of {100 * accuracy:.1f} %"
    )
    return f"{over}: {list_gains(differences)}." if differences else f"{over}."


def list_gains(differences: Metrics) -> str:
    """`grpo (+20.1 points) is significantly better; ...`."""
    better, worse, undecided = split_by_significance(differences, rank_differences(differences))
    kinds = (
        (better, "is significantly better", "are significantly better"),
        (worse, "is significantly worse", "are significantly worse"),
        (undecided, "does not differ significantly", "do not differ significantly"),
    )
    return "; ".join(
        f"{join_words(describe_gain(policy, differences[policy]) for policy in names)} "
        f"{singular if len(names) == 1 else plural}"
        for names, singular, plural in kinds
        if names
    )


def describe_success(environment: str, metrics: Metrics) -> str:
    """Policies against the baseline in an environment, or why there is no verdict."""
    seeds, baseline, policies = metrics["seeds"], metrics["baseline"], metrics["policies"]
    success = {name: f"{100 * policies[name]['success']['value']:.1f} %" for name in policies}
    listed = join_words(f"{name} {share}" for name, share in success.items())
    if too_few := describe_few_seeds(seeds, "played"):
        return f"{too_few} In {environment} success is {listed}."
    if baseline is None:
        return (
            f"In {environment} there is no verdict, because the baseline has played no episodes on "
            f"its test starts (a row of `episodes`, `from` the baseline); success is {listed}."
        )
    over = (
        f"In {environment}, over {len(seeds)} seeds and {metrics['num_starts']:,} test starts, "
        f"{baseline} succeeds in {success[baseline]} of its episodes"
    )
    differences = metrics["gains"]["success"]
    if not differences:
        return f"{over}; there is no other policy to compare with it."
    return f"{over}: {list_gains(differences)}."


def describe_pairs(metrics: Metrics) -> str:
    """The other policies against each other."""
    differences = metrics["pairs"]
    if not differences:
        return "There is no pair of other policies to compare."
    beaten: dict[str, list[str]] = {}
    for name, difference in differences.items():
        first, _, second = name.partition(" - ")
        if difference["significant"]:
            gap = format_points(difference).removeprefix("+")
            beaten.setdefault(first, []).append(f"{second} (by {gap} points)")
    if not beaten:
        return "Among the other policies no pairwise difference is significant."
    comparisons = "; ".join(
        f"{first} is better than {join_words(below)}" for first, below in beaten.items()
    )
    complete = sum(map(len, beaten.values())) == len(differences)
    end = "" if complete else "; no other pairwise difference is significant"
    return f"Among the other policies {comparisons}{end}."


def describe_selection(metrics: Metrics) -> str:
    """Choosing among each policy's samples by a reward, against their majority.

    Whoever reranks what he ships reads it of that policy. Its own log-probability is no reward.
    """
    clauses: dict[str, list[str]] = {"better": [], "worse": []}
    for policy, selection in metrics["selection"].items():
        ways = {
            way: difference
            for way, difference in selection["over_majority"].items()
            if way.partition("/")[2] != MEAN_LOGPROB
        }
        better, worse, _ = split_by_significance(ways, rank_differences(ways))
        for how, names, limit, at in (("better", better, "up", 0), ("worse", worse, "down", -1)):
            if names:
                share = f"{len(names)} of {len(ways)} ways"
                points = format_points(ways[names[at]])
                clauses[how].append(f"{policy} ({share}, {limit} to {points} points)")
    start = f"Choosing among {metrics['n']} samples by a reward, against their majority,"
    parts = [f"significantly {how} for {join_words(of)}" for how, of in clauses.items() if of]
    if not parts:
        return f"{start} makes no significant difference."
    return f"{start} is {join_words(parts)}."


def name_choice(way: str, n: int | str) -> str:
    """`best_of/outcome` in words."""
    kind, _, reward = way.partition("/")
    by = "own log-probability" if reward == MEAN_LOGPROB else reward
    return f"best of {n} by {by}" if kind == BEST_OF else f"vote weighted by {by}"


def rank_differences(differences: Metrics) -> list[str]:
    """The names of differences, the largest first."""
    return sorted(differences, key=lambda name: -differences[name]["value"])


def split_by_significance(
    differences: Metrics, names: Sequence[str]
) -> tuple[list[str], list[str], list[str]]:
    """Significantly above zero, significantly below, and the rest."""
    significant = [key for key in names if differences[key]["significant"]]
    above = [key for key in significant if differences[key]["value"] > 0]
    below = [key for key in significant if differences[key]["value"] <= 0]
    return above, below, [key for key in names if not differences[key]["significant"]]


def describe_gain(name: str, difference: Metrics) -> str:
    """`dpo (+20.1 points)`."""
    return f"{name} ({format_points(difference)} points)"


def format_points(difference: Metrics) -> str:
    """Difference in percentage points."""
    return f"{100 * difference['value']:+.1f}"


def join_words(words: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
