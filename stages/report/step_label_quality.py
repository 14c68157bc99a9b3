"""Step labels in numbers: how many, what they cost, how sure they are, and how right.

`audit` compares estimated labels with the truth, at every number of completions.

What is counted is the verdict "wrong": precision is the share of the steps labelled wrong that
are wrong, recall the share of the wrong steps that are labelled so, over the estimated labels
alone (after the last step the answer checker knows). The first error is that of a whole
solution, the known last label included: `agreement` over the solutions with any estimated label
(of a mere guess there is nothing to find out), `error_accuracy` over those of them with an
error (the very step must be found), `correct_accuracy` over those without, `f1` their harmonic
mean, as ProcessBench has them (Zheng et al. 2024, section 3.3,
https://arxiv.org/abs/2412.06559).

Wang et al. 2024 audited 160 steps by hand and found 86 % of hard labels right at K = 4, fewer
at larger K (section 5.3, figure 4). Here every step of every solution is known, K is varied on
the same completions, without chance (`statistics/step_label_audit`), and wrong steps and right
ones are told apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from stages.algorithms.statistics.intervals import Intervals, bootstrap_ratios
from stages.algorithms.statistics.step_label_audit import (
    first_error_probability,
    min_right,
    wrong_probability,
)
from stages.params import Params
from stages.records.steps import PrefixCount, StepLabels

DIGITS = 6
RATIOS = ("precision", "recall", "agreement", "error_accuracy", "correct_accuracy")


class AuditConfig(Params):
    """How estimated labels are compared with the truth, where it is known."""

    thresholds: list[Annotated[float, Field(gt=0, le=1)]]
    """Shares of right completions from which on a soft label says "right"."""
    num_bootstrap: int = Field(ge=100)
    """Resamples of the problems for each interval."""
    confidence: float = Field(gt=0, lt=1)
    """Coverage of the intervals."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Audited:
    """A solution whose truth is known, with the counts of its prefixes."""

    id: str
    """The problem's id: solutions of a problem are not independent evidence."""
    num_right: list[int]
    """Of each step but the last: completions that came out right."""
    correct: bool
    """The label after the last step."""
    true_labels: list[bool]


def sizes(num_completions: int) -> list[int]:
    """The powers of two up to K, and K."""
    powers = [2**power for power in range(num_completions.bit_length())]
    return sorted({*powers, num_completions})


def audit(
    solutions: Sequence[Audited], config: AuditConfig, *, num_completions: int, seed: int
) -> dict[str, dict[str, dict[str, Any]]]:
    """By rule and k, each of `RATIOS` with its interval over problems, and `f1`.

    The rule `hard` says "right" where any completion is; `soft_<t>` where at least a share t is.
    A ratio of nothing (no step is wrong) is null.
    """
    solutions = [one for one in solutions if one.num_right]
    assert solutions, "no estimated label"
    problems = {one.id: row for row, one in enumerate({one.id: one for one in solutions}.values())}
    rules = {"hard": 0.0} | {f"soft_{threshold}": threshold for threshold in config.thresholds}
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for rule, threshold in rules.items():
        found[rule] = {}
        for k in sizes(num_completions):
            sums = np.zeros((2, len(problems), len(RATIOS)))
            for one in solutions:
                sums[:, problems[one.id]] += _counts(one, num_completions, k, threshold)
            intervals = bootstrap_ratios(
                sums[0],
                sums[1],
                num_resamples=config.num_bootstrap,
                confidence=config.confidence,
                seed=seed,
            )
            found[rule][str(k)] = _named(intervals)
    return found


def _counts(one: Audited, num_completions: int, k: int, threshold: float) -> np.ndarray:
    """Numerators and denominators of `RATIOS`, expected over the subsets of k completions."""
    needed = min_right(threshold, k)
    estimated = [
        wrong_probability(count, num_completions, subset_size=k, needed=needed)
        for count in one.num_right
    ]
    wrong = [not right for right in one.true_labels]
    hits = sum(p for p, is_wrong in zip(estimated, wrong, strict=False) if is_wrong)
    first = wrong.index(True) if any(wrong) else -1
    agrees = first_error_probability([*estimated, float(not one.correct)], first)
    has_error = float(any(wrong))
    return np.array(
        [
            [hits, hits, agrees, agrees * has_error, agrees * (1 - has_error)],
            [sum(estimated), sum(wrong[:-1]), 1.0, has_error, 1 - has_error],
        ]
    )


def _named(intervals: Intervals) -> dict[str, Any]:
    columns = zip(RATIOS, *intervals, strict=True)
    named: dict[str, Any] = {
        name: None
        if np.isnan(value)
        else {
            bound: round(float(number), 6)
            for bound, number in zip(("value", "low", "high"), (value, low, high), strict=True)
        }
        for name, value, low, high in columns
    }
    return named | {"f1": _harmonic(named["error_accuracy"], named["correct_accuracy"])}


def _harmonic(first: dict[str, float] | None, second: dict[str, float] | None) -> float | None:
    if first is None or second is None:
        return None
    a, b = first["value"], second["value"]
    return round(2 * a * b / (a + b), 6) if a + b else 0.0


def summarise(
    rows: Sequence[tuple[StepLabels, Sequence[PrefixCount]]],
    config: AuditConfig,
    *,
    num_cut: int,
    seed: int,
) -> dict[str, Any]:
    """The content of metrics.json; `audit` is empty where nothing was estimated or is known.

    Args:
        rows: each solution with the counts of its prefixes, of which equal ones stand for the
            same completions.
        config: how labels are audited.
        num_cut: completions of the problems' pools that were cut and therefore left out.
        seed: of the bootstrap.
    """
    solutions = [row for row, _ in rows]
    estimates = [count for _, counts in rows for count in counts]
    sampled = {(count.id, tuple(count.prefix_ids)): count for count in estimates}.values()
    num_steps = sum(len(row.steps) for row in solutions)
    generated = sum(count.generated_tokens for count in sampled)
    metrics: dict[str, Any] = {
        "problems": len({row.id for row in solutions}),
        "solutions": len(solutions),
        "cut_completions": num_cut,
        "answers_right": _share([bool(row.correct) for row in solutions]),
        "steps": num_steps,
        "estimated_labels": len(estimates),
        "completed_prefixes": len(sampled),
        "tokens_per_label": _ratio(generated, len(estimates)),
        "interval_width": _ratio(sum(one.high - one.low for one in estimates), len(estimates)),
        "labelled_right": _share(
            [label >= 0.5 for row in solutions for label in row.labels if label is not None]
        ),
    }
    known = [(row, counts) for row, counts in rows if row.true_labels is not None]
    truths = [row.true_labels or [] for row, _ in known]
    right_answers = [truth for (row, _), truth in zip(known, truths, strict=True) if row.correct]
    metrics |= {
        "truly_right": _share([right for truth in truths for right in truth]),
        "right_answers_with_a_wrong_step": _share([not all(truth) for truth in right_answers]),
        "audit": _audit(known, config, seed) if known and estimates else {},
    }
    return metrics


def _audit(
    known: Sequence[tuple[StepLabels, Sequence[PrefixCount]]], config: AuditConfig, seed: int
) -> dict[str, Any]:
    sizes = {count.num_completions for _, counts in known for count in counts}
    assert len(sizes) == 1, sizes
    solutions = [
        Audited(
            id=row.id,
            num_right=[count.num_right for count in counts],
            correct=bool(row.correct),
            true_labels=row.true_labels or [],
        )
        for row, counts in known
    ]
    return audit(solutions, config, num_completions=sizes.pop(), seed=seed)


def _share(flags: Sequence[bool]) -> float | None:
    return _ratio(sum(flags), len(flags))


def _ratio(above: int | float, below: int) -> float | None:
    return round(above / below, DIGITS) if below else None
