"""The verdict on policies compared at equal tokens, in words and tables (Markdown)."""

from collections.abc import Mapping
from typing import Any

from stages.report import markdown
from stages.report.markdown import format_percent
from stages.studies.token_verdict import MEASURES

Metrics = Mapping[str, Any]
SPENT = ("before", "generated", "trained", "total")


def render_report(verdict: Metrics) -> str:
    """The content of report.md, from that of `data/studies/equal_tokens/metrics.json`."""
    totals = [row["total"] for row in verdict["spent"]]
    spent = [
        [f"{row['policy']}, {row['seed']}", *(f"{row[key]:,}" for key in SPENT),
         f"{100 * row['overshoot']:+.1f} %"]
        for row in verdict["spent"]
    ]  # fmt: skip
    parts = [
        "# " + " against ".join(verdict["budgets"]),
        f"Budget: {verdict['tokens']:,} tokens for each policy and seed; spent: {min(totals):,} to "
        f"{max(totals):,}. {list_seeds(verdict)}, {verdict['num_problems']:,} test problems, "
        f"paired by seed and problem. In brackets {verdict['confidence']:.0%} confidence "
        f"intervals.",
        "\n".join(f"- {describe_pair(row, verdict)}" for row in verdict["pairs"]["mean"]),
        describe_ranking(verdict),
        "## The policies",
        render_accuracy_table(verdict),
        "## All differences",
        "Points, the larger first; p adjusted by Holm within each family of comparisons (pairs of "
        "policies, and policies with the baseline, each measure by itself). Detectable: the "
        f"smallest true difference that this experiment shows with probability "
        f"{verdict['power']:.0%}, at the level that Holm asks of the smallest p.",
        *(
            f"{name.capitalize()}:\n\n{render_difference_table(verdict, measure)}"
            for measure, name in MEASURES.items()
        ),
        "## What was spent",
        markdown.render_table(["policy, seed", *SPENT, "above the budget"], spent),
        f"Tokens generated and trained on beyond what {verdict['baseline']} needed: `before` is "
        "what a policy's pairs, reward models and parents cost, each counted in full for every "
        "policy that needs it. Training ends with the step that reaches the budget, so it ends "
        "above it. Passes without a gradient (reference, scores) and the value model's own updates "
        "are no tokens here.",
        "## How to read it",
        explain_intervals(verdict["num_seeds"]),
    ]
    return "\n\n".join(parts) + "\n"


def list_seeds(verdict: Metrics) -> str:
    """`1 seed`, `3 seeds`."""
    return f"{verdict['num_seeds']} seed" + ("s" if verdict["num_seeds"] > 1 else "")


def describe_pair(row: Metrics, verdict: Metrics) -> str:
    """Sentence on a pair: the better policy and by how much, or the sample size to resolve it."""
    points = f"{100 * row['value']:.1f} points [{100 * row['low']:.1f}, {100 * row['high']:.1f}]"
    p = f"p = {row['p_holm']:.2g} by Holm" if row["p_holm"] >= 1e-4 else "p < 0.0001 by Holm"
    if row["resolved"]:
        return f"**{row['first']} beats {row['second']}** by {points} at equal tokens ({p})."
    alone = row["low"] > 0 or row["high"] < 0
    why = "its interval by itself excludes 0, among so many comparisons it may be chance; "
    return (
        f"The difference between {row['first']} and {row['second']} is **not resolved**: {points} "
        f"({why if alone else ''}{p}). {describe_remedy(row, verdict)}"
    )


def describe_remedy(row: Metrics, verdict: Metrics) -> str:
    """Sample size that would resolve a difference, in words."""
    if row["value"] == 0.0:
        return "None was found, and no experiment shows that there is none."
    if "more_problems" not in row:
        return ""
    size = f"a true difference of {100 * row['value']:.1f} points with {verdict['power']:.0%} power"
    problems, more = row["more_problems"], row["more_seeds"]
    now = list_seeds(verdict)
    if problems is None:
        first = f"No number of problems would resolve {size} with {now}, which differ too much"
    elif problems == 0:
        first = f"An experiment of this size should resolve {size}, and this one did not"
    else:
        first = f"To resolve {size}, {problems:,} more problems would be needed with {now}"
    if row["seed_deviation"] is None:
        return f"{first}; for these checkpoints: of other seeds one seed says nothing."
    if more is None:
        return f"{first}; no number of seeds would do with these problems."
    return f"{first}; with these problems, {more:,} more seeds." if more else f"{first}."


def describe_ranking(verdict: Metrics) -> str:
    """Ranking of all policies, where every pair is resolved; else the resolved pairs."""
    rows = verdict["pairs"]["mean"]
    names = sorted(verdict["budgets"], key=lambda name: -verdict["policies"][name]["mean"]["value"])
    if all(row["resolved"] for row in rows):
        return f"Ranking: {' > '.join(names)}."
    beaten = {
        name: [row["second"] for row in rows if row["resolved"] and row["first"] == name]
        for name in names
    }
    statements = [f"{name} above {' and '.join(below)}" for name, below in beaten.items() if below]
    return f"No full ranking: {'; '.join(statements) if statements else 'no pair is resolved'}."


def render_accuracy_table(verdict: Metrics) -> str:
    """Table of each policy's accuracies, and its gain over the baseline."""
    baseline, rows = verdict["baseline"], []
    gains = {row[side]: row for row in verdict["gains"]["mean"] for side in ("first", "second")}
    for name, estimates in verdict["policies"].items():
        above = "" if name == baseline else format_gain(gains[name], name)
        rows.append([name, *(format_percent(estimates[measure]) for measure in MEASURES), above])
    return markdown.render_table(["policy", *MEASURES.values(), f"mean above {baseline}"], rows)


def format_gain(row: Metrics, policy: str) -> str:
    """A difference from the baseline, whoever is ahead; bold where it is resolved."""
    value, low, high = row["value"], row["low"], row["high"]
    if row["first"] != policy:
        value, low, high = -value, -high, -low
    text = f"{100 * value:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
    return f"**{text}**" if row["resolved"] else text


def render_difference_table(verdict: Metrics, measure: str) -> str:
    """Table of both families of one measure."""
    header = ["comparison", "points", "p", "p by Holm", "seeds' share", "seeds' spread"]
    rows = [
        [
            f"{row['first']} − {row['second']}",
            format_gain(row, row["first"]),
            *(f"{row[p]:.2g}" for p in ("p", "p_holm")),
            f"{row['seed_share']:.0%}",
            "unknown" if row["seed_deviation"] is None else f"{100 * row['seed_deviation']:.1f}",
            f"{100 * row['detectable']:.1f}",
        ]
        for row in [*verdict["pairs"][measure], *verdict["gains"][measure]]
    ]
    return markdown.render_table([*header, "detectable"], rows)


def explain_intervals(num_seeds: int) -> str:
    """Explanation of the intervals."""
    if num_seeds == 1:
        return (
            "One seed: the intervals are over problems only (t). They say how another set of such "
            "problems would differ for these very checkpoints, and nothing of another training run."
        )
    warning = (
        "Two seeds leave one degree of freedom, and resolve next to nothing: train three or more."
    )
    return (
        "The intervals are over seeds and problems, both drawn anew, by the test of the report "
        "(stages/algorithms/statistics/crossed_means). With few seeds they are wide, as they must "
        "be: a bootstrap over three seeds that differ holds the truth 77 times of a hundred where "
        "it says 95. "
        f"{warning + ' ' if num_seeds == 2 else ''}Every seed trains all anew, what the policies "
        "start from too, on the same problems. The numbers of the methods are those of "
        "params.yaml and presets.yaml, not tuned for this budget."
    )
