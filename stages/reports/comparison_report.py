"""The comparison of policies in words and tables (Markdown)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.reports import (
    accuracy_tables,
    difference_tables,
    reranking_verdict,
    stage_times,
)

Metrics = Mapping[str, Any]


def render(comparison: Metrics, evaluations: Metrics, *, costs: str, images: Sequence[str]) -> str:
    """The report.

    Args:
        comparison: the content of `data/compare_policies/metrics.json`.
        evaluations: for each policy, the content of its `data/evaluate_policy` metrics.
        costs: the tables of `cost_tables`.
        images: paths of the plots, relative to the report.
    """
    baseline, n = comparison["baseline"], comparison["n"]
    policies = comparison["policies"]
    parts = [
        "# Policies compared",
        f"{comparison['num_problems']} test problems; {comparison['num_samples']} sampled "
        f"completions of each and a greedy one. In brackets {comparison['confidence']:.0%} "
        f"confidence intervals over problems (bootstrap; for greedy decoding Wilson's). Everything "
        f"said of n samples is an expectation over random draws from these completions, without "
        f"bias; n is at most {n}, a quarter of them.",
        accuracy_tables.without_scores(evaluations),
        "Mean: one random sample. Majority: the most frequent answer. Pass: any of n is right, "
        "which no one can choose without the gold answer.",
        f"## Against {baseline}",
        f"Percentage points above {baseline} on the same problems. **Bold**: the interval excludes "
        "zero. p: McNemar's exact test for greedy decoding, a paired test for the others, adjusted "
        "by Holm over this table. Detectable: the smallest difference of mean accuracy that so "
        "many problems would show four times out of five.",
        difference_tables.against_baseline(policies, n),
        "## Each against each",
        "Mean accuracy, in percentage points, p adjusted by Holm over this table.",
        difference_tables.each_against_each(comparison["pairs"]),
        "## Format or skill?",
        "Strict: the last line is `#### n` and n is right. Lenient: right by the checker, or the "
        "last number of the text is. What a policy gains under the strict reading alone, it gained "
        "in format.",
        accuracy_tables.readings(evaluations),
        f"Mean accuracy above {baseline}, in percentage points:",
        difference_tables.format_or_skill(policies),
        f"## Choosing among {n} samples",
        f"The sample of {n} that scores best. Reward models, an ensemble of them, outcome and "
        "process models score; the policy's own mean log-prob of a token, any completion in the "
        "format, the longest and the shortest need none. A scorer that cannot beat these has "
        "learned nothing worth its cost.",
        accuracy_tables.by_scorer(evaluations, "best_of"),
        "The answer whose samples have the highest sum of weights:",
        accuracy_tables.by_scorer(evaluations, "weighted"),
        "## Does reranking beat the majority?",
        f"Of {baseline}'s samples, paired by problem:",
        reranking_verdict.sentences(evaluations, baseline),
        reranking_verdict.why(evaluations, baseline),
        f"Points above the majority of {n}, the best-scored sample:",
        reranking_verdict.table(evaluations, "best_of"),
        "The weighted vote:",
        reranking_verdict.table(evaluations, "weighted"),
        "## What the completions look like",
        accuracy_tables.shapes(evaluations),
        "## What it cost",
        f"Beyond what {baseline} cost: every stage that a policy was trained or "
        "sampled by, with the pools that its pairs or demonstrations came from, its reward model "
        "and the policies that it started from. Seconds are those of the machine that executed "
        "the stages.",
        costs,
        "## How long each stage took",
        stage_times.table({name: one["seconds"] for name, one in comparison["stages"].items()}),
        stage_times.LEGEND,
        "## Plots",
        "\n\n".join(f"![{Path(path).stem.replace('_', ' ')}]({path})" for path in images),
    ]
    return "\n\n".join(parts) + "\n"
