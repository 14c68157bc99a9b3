"""Verdict of the report: its conclusions, the answer first; tables have each policy's numbers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stages.algorithms.statistics.crossed_means import MIN_SEEDS
from stages.report.estimates import BEST_OF, BEST_TEMPERATURE, MEAN
from stages.report.markdown import format_difference
from stages.report.sharpening import MIN_DEV_PROBLEMS
from stages.rewards.pool_scores import MEAN_LOGPROB

Metrics = Mapping[str, Any]


def write_verdict(metrics: Metrics) -> list[str]:
    """Sentences on `comparison.compare_policies`; with fewer than three seeds without a verdict."""
    no_choice = describe_no_choice(metrics["temperatures"])
    if too_few := describe_few_seeds(metrics["seeds"], "trained"):
        sentences = [too_few, describe_gains(metrics), no_choice]
    else:
        sentences = [
            describe_gains(metrics), no_choice, describe_parts(metrics), describe_pairs(metrics),
            describe_selection(metrics),
        ]  # fmt: skip
    return list(filter(None, sentences))


def describe_no_choice(temperatures: Metrics) -> str | None:
    """Sentence that dev problems are too few to choose each policy's temperature, or None."""
    number = temperatures["dev_problems"]
    if number >= MIN_DEV_PROBLEMS:
        return None
    return (
        f"No policy has a temperature chosen for it: that takes {MIN_DEV_PROBLEMS} dev problems, "
        f"and there are {number} (data.shares.dev). So part of a gain may be a narrower "
        f"distribution, which a lower temperature gives without training."
    )


def count_seeds(metrics: Metrics) -> str:
    """Number of seeds in words: `1 seed` or `3 seeds`."""
    return f"{len(metrics['seeds'])} seed{'s' * (len(metrics['seeds']) > 1)}"


def describe_few_seeds(seeds: Sequence[int], how: str) -> str | None:
    """Sentence that seeds are too few for a verdict, or None; `how`: `trained` or `played`."""
    if len(seeds) >= MIN_SEEDS:
        return None
    number = "One seed was" if len(seeds) == 1 else "Two seeds were"
    return f"{number} {how}, so no verdict over seeds is possible: it needs three or more."


def write_reward_verdict(metrics: Metrics) -> list[str]:
    """Policies that each reward prefers, as sentences (`reward_comparison`)."""
    if not metrics["gains"]:
        return [
            "No answer can be checked and no row of `rewards` is a model, so nothing tells which "
            "policy is better. Add a reward learned from people's or a judge's pairs."
        ]
    lines = ["No answer can be checked: this is what the reward models prefer, not what people do."]
    if too_few := describe_few_seeds(metrics["seeds"], "trained"):
        lines.append(too_few)
    baseline = metrics["baseline"]
    over = f"over {count_seeds(metrics)} and {metrics['num_problems']:,} test prompts"
    lines += [
        f"By {name.partition('/')[2]}, {over}, {list_gains(gains, baseline, are_points=False)}."
        for name, gains in metrics["gains"].items()
    ]
    return lines


def describe_gains(metrics: Metrics) -> str:
    """Answer: policies that differ from the baseline, as sampled and at best temperatures."""
    baseline, gains = metrics["baseline"], metrics["gains"]
    at_best = ""
    if gains.get(BEST_TEMPERATURE):
        listed = list_gains(gains[BEST_TEMPERATURE], baseline)
        at_best = f"; at the temperature that is best for each, {listed}"
    return (
        f"Over {count_seeds(metrics)} and {metrics['num_problems']:,} test problems, sampled at "
        f"temperature {metrics['temperatures']['sampled']:g}, {list_gains(gains[MEAN], baseline)}"
        f"{at_best}."
    )


def list_gains(differences: Metrics, baseline: str, *, are_points: bool = True) -> str:
    """Clauses: `grpo and dpo are significantly better than sft (+20.1 to +21.0 points), ppo is ..`.

    Sizes are left out if they are not in points.
    """
    better, worse, rest = split_by_significance(differences, rank_differences(differences))
    is_tested = all(differences[name]["significant"] is not None for name in rest)
    groups = {
        "significantly better than": better, "significantly worse than": worse,
        "not significantly different from" if is_tested else "not tested against": rest,
    }  # fmt: skip
    clauses = [
        f"{join_words(names)} {'is' if len(names) == 1 else 'are'} {how} {baseline}"
        + f" ({format_range(differences, names)} points)" * are_points
        for how, names in groups.items()
        if names
    ]
    return ", ".join(clauses) or f"there is no other policy to compare with {baseline}"


def describe_parts(metrics: Metrics) -> str | None:
    """Parts of the gains as sampled; one that is not significant is called undecided, not zero."""
    clauses = dict[str, str]()
    for part, differences in metrics["parts"].items():
        *decided, undecided = split_by_significance(differences, list(differences))
        texts = {f"{format_range(differences, names)} points": names for names in decided if names}
        texts |= {"undecided": undecided} if undecided else {}
        clauses[part] = ", ".join(
            text if len(names) == len(differences) else f"{text} for {join_words(names)}"
            for text, names in texts.items()
        )
    if not clauses:
        return None
    return (
        f"Parts of the differences as sampled: sharpening (what {metrics['baseline']} gains at its "
        f"best temperature, less what the policy gains at its own), {clauses['sharpening']}; the "
        f"format of the answer, {clauses['format']}; the rest, {clauses['rest']}."
    )


def describe_success(environment: str, metrics: Metrics) -> str:
    """Policies against the baseline in an environment, or the reason for no verdict."""
    if metrics["baseline"] is None:
        return (
            f"In {environment} there is no verdict, because the baseline has played no episodes on "
            f"its test starts (a row of `episodes`, `from` the baseline)."
        )
    gains = list_gains(metrics["gains"]["success"], metrics["baseline"])
    over = f"over {count_seeds(metrics)} and {metrics['num_starts']:,} test starts"
    too_few = describe_few_seeds(metrics["seeds"], "played")
    return " ".join(filter(None, [f"In {environment}, {over}, success: {gains}.", too_few]))


def describe_pairs(metrics: Metrics) -> str | None:
    """Differences between the policies other than the baseline."""
    better: dict[str, list[str]] = {}
    for name, difference in metrics["pairs"].items():
        first, _, second = name.partition(" - ")
        if difference["significant"]:
            better.setdefault(first, []).append(second)
    if not metrics["pairs"]:
        return None
    if not better:
        return "Among the other policies no difference is significant."
    clauses = (
        f"{first} is significantly better than {join_words(rest)}" for first, rest in better.items()
    )
    return f"Among the other policies, as sampled, {'; '.join(clauses)}."


def describe_selection(metrics: Metrics) -> str | None:
    """Result of reranking: the best sample by each reward model, against a single sample."""
    clauses: dict[str, list[str]] = {
        "significantly better": [], "significantly worse": [], "undecided": [],
    }  # fmt: skip
    for policy, selection in metrics["selection"].items():
        over = selection["over_single"]
        ways = [way for way in over if way.startswith(f"{BEST_OF}/")]
        better, worse, undecided = split_by_significance(over, ways)
        for how, names in zip(clauses, (better, worse), strict=False):
            if names:
                share = f"{len(names)} of {len(ways)} rewards, " * (len(names) < len(ways))
                clauses[how].append(f"{policy} ({share}{format_range(over, names)} points)")
        if undecided and undecided == ways:
            clauses["undecided"].append(policy)
    parts = [f"{how} for {join_words(of)}" for how, of in clauses.items() if of]
    if not parts:
        return None
    at_best = " at the policy's best temperature" * (BEST_TEMPERATURE in metrics["gains"])
    return (
        f"Reranking (the best of {metrics['n']} samples by a reward model, against one sample"
        f"{at_best}) is {', '.join(parts)}."
    )


def describe_judges(pairs: Metrics, rows: Metrics) -> list[str]:
    """Sentences on the length bias of each judge, and of each labeller of the user's.

    `pairs`: the table of `stage_metrics.read_quality`; `rows`: the rows of that table.
    """
    clauses = {
        "the longer is right": "; the longer is right in {:.0f} %",
        "agree at equal length": "; of equally long ones it prefers the right one in {:.0f} %",
    }
    sentences: list[str] = []
    for name, quality in pairs.items():
        if (preferred := quality.get("the longer is preferred")) is None:
            continue
        # With gold answers, both shares are of pairs of a right and a wrong answer.
        longer = "longer of a right and a wrong" if "the longer is right" in quality else "longer"
        who = "judge" if rows[name]["by"] == "judge" else "labeller"
        texts = [f" prefers the {longer} answer in {100 * preferred['value']:.0f} % of pairs"]
        texts += [
            text.format(100 * quality[label]["value"])
            for label, text in clauses.items()
            if label in quality
        ]
        sentences.append(f"The {who} of pairs/{name}{''.join(texts)}.")
    return sentences


def name_choice(way: str, n: int | str) -> str:
    """Name of a choice, such as `best_of/outcome`, in words."""
    kind, _, reward = way.partition("/")
    by = "own log-probability" if reward == MEAN_LOGPROB else reward
    return f"best of {n} by {by}" if kind == BEST_OF else f"vote weighted by {by}"


def rank_differences(differences: Metrics) -> list[str]:
    """Names of differences, the largest first."""
    return sorted(differences, key=lambda name: -differences[name]["value"])


def split_by_significance(
    differences: Metrics, names: Sequence[str]
) -> tuple[list[str], list[str], list[str]]:
    """Names of differences significantly above zero, significantly below, and the rest."""
    significant = [key for key in names if differences[key]["significant"]]
    above = [key for key in significant if differences[key]["value"] > 0]
    below = [key for key in significant if differences[key]["value"] <= 0]
    return above, below, [key for key in names if not differences[key]["significant"]]


def format_points(difference: Metrics) -> str:
    """Difference in percentage points."""
    return format_difference(100 * difference["value"])


def format_range(differences: Metrics, names: Iterable[str]) -> str:
    """Range `+17.1 to +29.6`: the smallest to the largest difference, in percentage points."""
    values = sorted((differences[name] for name in names), key=lambda each: each["value"])
    return " to ".join(dict.fromkeys(format_points(values[at]) for at in (0, -1)))


def join_words(words: Iterable[str]) -> str:
    """Enumeration: `a`, `a and b`, `a, b and c`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
