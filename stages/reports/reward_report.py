"""The comparison of everything that scores completions, in words and tables (Markdown)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.reports import markdown
from stages.reports.markdown import number, percent, points

NONE = "none"
Metrics = Mapping[str, Any]


def render(comparison: Metrics, *, images: Sequence[str]) -> str:
    """The report.

    Args:
        comparison: the content of `data/compare_rewards/metrics.json`.
        images: paths of the plots, relative to the report.
    """
    parts = [
        "# Rewards compared",
        f"In brackets {comparison['confidence']:.0%} confidence intervals over problems.",
        "## What scores completions, on the same pools",
        "\n\n".join(pool_table(name, one) for name, one in comparison["pools"].items()) or NONE,
        "AUC: how often a right completion is scored above a wrong one of the same problem, ties "
        "half, over the problems that have both. Best-of-n: the completion with the highest score "
        "of the whole pool; its differences in percentage points are paired by problem. **Bold**: "
        "the interval excludes zero.",
        "## Reward models on pairs that they have not seen",
        reward_models(comparison["reward_models"]),
        "Only models with the same held-out pairs can be compared. The labels of those pairs are "
        "their source's own: agreement with a judge is not truth. NLL in nats: a coin has 0.693, "
        "and the entropy of soft labels is the least there can be. ECE: of the confidence in the "
        "preferred completion. Matched: pairs of almost the same length. Flipped: per cent of the "
        "training labels, never of the held-out ones. Tokens: generated to label.",
        "## Outcome models on completions that they have not seen",
        outcome_models(comparison["outcome_models"]),
        "## Plots",
        "\n\n".join(f"![{Path(path).stem.replace('_', ' ')}]({path})" for path in images),
    ]
    return "\n\n".join(parts) + "\n"


def pool_table(name: str, pool: Metrics) -> str:
    """The scorers of one pool, each against what needs no scores."""
    n = pool["num_samples"]
    rows = [
        [
            f"{entry}: {one['scorer']}",
            number(one["auc"]),
            percent(one["best_of"]),
            points(one["best_of_minus_mean"]),
            points(one["best_of_minus_majority"]),
        ]
        for entry, one in pool["scorers"].items()
    ]
    heading = (
        f"### {name}\n\n{pool['num_problems']} problems, {n} completions of each. One random "
        f"sample: {percent(pool['mean'])}. Majority of {n}: {percent(pool['majority'])}."
    )
    header = ["scorer", "AUC", f"best-of-{n}", "minus one sample", f"minus majority of {n}"]
    return f"{heading}\n\n{markdown.table(header, rows)}"


def reward_models(models: Metrics) -> str:
    """A row a model."""
    if not models:
        return NONE
    header = ["model", "labels from", "pairs", "held out", "flipped", "accuracy", "ties", "NLL"]
    header += ["label entropy", "ECE", "matched accuracy", "tokens"]
    return markdown.table(
        header,
        (
            [
                name,
                one["source"],
                one["pairs"],
                one["heldout"],
                f"{one['flip']} %",
                percent(one["quality"]["accuracy"]),
                percent(one["quality"]["tie_rate"]),
                number(one["quality"]["negative_log_likelihood"]),
                number(one["quality"]["label_entropy"]),
                number(one["quality"]["expected_calibration_error"]),
                percent(one["quality"]["length_matched_accuracy"]),
                f"{one['label_tokens']:,}",
            ]
            for name, one in models.items()
        ),
    )


def outcome_models(models: Metrics) -> str:
    """A row a model."""
    if not models:
        return NONE
    header = ["model", "pool", "held out", "AUC", "accuracy", "one verdict for all", "NLL", "ECE"]
    return markdown.table(
        header,
        (
            [
                name,
                one["pool"],
                one["heldout"],
                number(one["quality"]["auc"]),
                percent(one["quality"]["accuracy"]),
                f"{one['quality']['one_verdict_accuracy']:.1%}".replace("%", " %"),
                number(one["quality"]["negative_log_likelihood"]),
                number(one["quality"]["expected_calibration_error"]),
            ]
            for name, one in models.items()
        ),
    )
