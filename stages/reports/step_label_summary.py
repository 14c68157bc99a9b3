"""Step labels in numbers: how many, what they cost, how sure they are, and how right."""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.records.steps import PrefixCount, StepLabels
from stages.reports import step_label_audit
from stages.reports.step_label_audit import AuditConfig, Audited

DIGITS = 6


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
    return step_label_audit.audit(solutions, config, num_completions=sizes.pop(), seed=seed)


def _share(flags: Sequence[bool]) -> float | None:
    return _ratio(sum(flags), len(flags))


def _ratio(above: int | float, below: int) -> float | None:
    return round(above / below, DIGITS) if below else None
