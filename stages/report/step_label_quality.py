"""Metrics of step labels: number, cost, precision of the estimates, and agreement with the truth.

`audit_labels` compares estimated labels with the true ones, also for fewer completions than were
sampled. Labels are made of K completions of a prefix, of which c reach the right answer. Any k of
the K are k completions too, so the label from k completions follows exactly from c: the average
over all subsets of size k.

The positive class is the verdict "wrong": precision is the share of the steps labelled wrong that
are wrong, recall the share of the wrong steps that are labelled so. Both count only estimated
labels, since the answer checker knows the label after the last step. The first error is that of a
whole solution, the known last label included: `agreement` over the solutions with any estimated
label (a mere guess has none), `error_accuracy` over those with an error (the exact step must be
found), `correct_accuracy` over those without, `f1` their harmonic mean, as in ProcessBench (Zheng
et al. 2024, section 3.3, https://arxiv.org/abs/2412.06559).

Wang et al. 2024 (https://arxiv.org/abs/2312.08935) audited 160 steps manually and found 86 % of
hard labels right at K = 4, fewer at larger K (section 5.3, figure 4).
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float
from pydantic import Field

from stages.algorithms.statistics.intervals import bootstrap_ratios, problem_numbers
from stages.records.metrics import round_metric, with_interval
from stages.records.steps import PrefixCount, StepLabels
from stages.report.evaluation_config import Intervals

RATIOS = ("precision", "recall", "agreement", "error_accuracy", "correct_accuracy")


class AuditConfig(Intervals):
    """Comparison of estimated labels with the truth, if it is known."""

    thresholds: list[Annotated[float, Field(gt=0, le=1)]]
    """Shares of right completions from which on a soft label says "right"."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditedSolution:
    """A solution whose truth is known, with the counts of its prefixes."""

    id: str
    """The problem's id: solutions of a problem are not independent evidence."""
    num_right: list[int]
    """Right completions of the prefix that ends with each step but the last."""
    correct: bool
    """The label after the last step."""
    true_labels: list[bool]


def subset_sizes(num_completions: int) -> list[int]:
    """Powers of two up to K, and K."""
    powers = [2**power for power in range(num_completions.bit_length())]
    return sorted({*powers, num_completions})


def audit_labels(
    solutions: Sequence[AuditedSolution], config: AuditConfig, *, num_completions: int, seed: int
) -> dict[str, dict[str, dict[str, Any]]]:
    """By rule and k, each of `RATIOS` with its interval over problems, and `f1`.

    The rule `hard` says "right" if any completion is, `soft_<t>` if at least a share t is. A ratio
    without cases (no step is wrong) is null.
    """
    solutions = [solution for solution in solutions if solution.num_right]
    problems = problem_numbers([solution.id for solution in solutions])
    rules = {"hard": 0.0} | {f"soft_{threshold}": threshold for threshold in config.thresholds}
    ratios_by_rule: dict[str, dict[str, dict[str, Any]]] = {rule: {} for rule in rules}
    for (rule, threshold), k in itertools.product(rules.items(), subset_sizes(num_completions)):
        sums = np.zeros((2, int(problems.max()) + 1, len(RATIOS)))
        for problem, solution in zip(problems, solutions, strict=True):
            sums[:, problem] += _count_verdicts(solution, num_completions, k, threshold)
        intervals = bootstrap_ratios(
            *sums, num_resamples=config.num_bootstrap, confidence=config.confidence, seed=seed
        )
        ratios: dict[str, Any] = {
            name: None if np.isnan(bounds[0]) else with_interval(*bounds)
            for name, *bounds in zip(RATIOS, *intervals, strict=True)
        }
        ratios["f1"] = None
        if ratios["error_accuracy"] and ratios["correct_accuracy"]:
            e, c = (ratios[f"{kind}_accuracy"]["value"] for kind in ("error", "correct"))
            ratios["f1"] = round_metric(2 * e * c / (e + c)) if e + c else 0.0
        ratios_by_rule[rule][str(k)] = ratios
    return ratios_by_rule


def _count_verdicts(
    solution: AuditedSolution, num_completions: int, k: int, threshold: float
) -> Float[np.ndarray, "2 ratio"]:
    """Numerators and denominators of `RATIOS`, expected over the subsets of k completions."""
    sizes = {"subset_size": k, "needed": min_right(threshold, k)}
    estimated = [wrong_probability(count, num_completions, **sizes) for count in solution.num_right]
    wrong = [not right for right in solution.true_labels]
    hits = sum(p for p, is_wrong in zip(estimated, wrong, strict=False) if is_wrong)
    first = wrong.index(True) if any(wrong) else -1
    agrees = first_error_probability([*estimated, float(not solution.correct)], first)
    error = float(any(wrong))
    above = [hits, hits, agrees, agrees * error, agrees * (1 - error)]
    return np.array([above, [sum(estimated), sum(wrong[:-1]), 1.0, error, 1 - error]])


def min_right(threshold: float, num_completions: int) -> int:
    """Fewest right completions for a label "right": a share of at least `threshold`, and one.

    Threshold 0 is Math-Shepherd's hard estimation, "any completion reaches the answer" (Wang et al.
    2024, eq. 3); any other is applied to the soft estimation (eq. 4). With threshold 0.5 and 5
    completions: 3.
    """
    # The threshold as it is written: the binary 0.1 times 10 would be more than 1.
    return max(1, math.ceil(Fraction(repr(threshold)) * num_completions))


def wrong_probability(
    num_right: int, num_completions: int, *, subset_size: int, needed: int
) -> float:
    """P(the label says "wrong") with k = `subset_size` of the K completions, c of them right.

        P(X < needed),   X hypergeometric: P(X = x) = C(c, x) C(K - c, k - x) / C(K, k)

    The expectation over all subsets, without bias for what fresh completions would say, as
    pass@k is (Chen et al. 2021, eq. 1, https://arxiv.org/abs/2107.03374), which is 1 minus
    this for `needed` 1. With c = 1, K = 4, k = 2, `needed` 1: C(3, 2) / C(4, 2) = 0.5.
    """
    fewer = sum(
        math.comb(num_right, x) * math.comb(num_completions - num_right, subset_size - x)
        for x in range(min(needed, subset_size + 1))
    )
    return fewer / math.comb(num_completions, subset_size)


def first_error_probability(wrong: Sequence[float], first: int) -> float:
    """P(the first step labelled "wrong" is step `first`); -1: none is.

        wrong[first] prod_{i < first} (1 - wrong[i]),   or prod_i (1 - wrong[i])

    The labels of one solution come from completions of different prefixes, so they are
    independent. With wrong = [0.5, 0.2]: 0.5 for 0, 0.5 times 0.2 = 0.1 for 1, 0.4 for -1.
    """
    before = wrong if first == -1 else wrong[:first]
    return math.prod(1.0 - probability for probability in before) * (
        1.0 if first == -1 else wrong[first]
    )


def summarise_labels(
    rows: Sequence[tuple[StepLabels, Sequence[PrefixCount]]], config: AuditConfig, *, num_cut: int,
    seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Content of metrics.json; `audit` is empty without estimates or truth.

    `rows` are solutions with the counts of their prefixes; equal ones are the same completions.
    `num_cut`: truncated completions of the problems' pools, which are left out.
    """
    solutions = [row for row, _ in rows]
    estimates = [count for _, counts in rows for count in counts]
    sampled = {(count.id, tuple(count.prefix_ids)): count for count in estimates}.values()
    tokens = sum(count.generated_tokens for count in sampled)
    labels = [label for row in solutions for label in row.labels if label is not None]
    audited = [
        AuditedSolution(
            id=row.id,
            num_right=[count.num_right for count in counts],
            correct=bool(row.correct),
            true_labels=[bool(right) for right in row.true_labels],
        )
        for row, counts in rows
        if row.true_labels is not None
    ]
    audited_counts = [counts for row, counts in rows if row.true_labels is not None]
    num_completions = {count.num_completions for counts in audited_counts for count in counts}
    of_right = [not all(solution.true_labels) for solution in audited if solution.correct]
    return {
        "problems": len({row.id for row in solutions}), "solutions": len(solutions),
        "cut_completions": num_cut,
        "answers_right": _mean([bool(row.correct) for row in solutions]),
        "steps": sum(len(row.steps) for row in solutions), "estimated_labels": len(estimates),
        "completed_prefixes": len(sampled),
        "tokens_per_label": round_metric(tokens / len(estimates)) if estimates else None,
        "interval_width": _mean([count.high - count.low for count in estimates]),
        "labelled_right": _mean([label >= 0.5 for label in labels]),
        "truly_right": _mean([right for solution in audited for right in solution.true_labels]),
        "right_answers_with_a_wrong_step": _mean(of_right),
        "audit": audit_labels(audited, config, num_completions=num_completions.pop(), seed=seed)
        if num_completions
        else {},
    }  # fmt: skip


def _mean(values: Sequence[bool] | Sequence[float]) -> float | None:
    return round_metric(sum(values) / len(values)) if values else None
