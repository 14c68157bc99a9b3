"""Page on rescored completions: both rewards, and the completions that change sides."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from stages.records.metrics import round_metric
from stages.records.problems import Prompt
from stages.records.rescored import Rescored
from stages.report import page
from stages.report.sections import CaptionedTable, Section
from stages.report.transcripts import Transcript, shorten

NUM_SHOWN = 20
"""Completions shown with their texts, of each kind."""
NUM_PARTS = 8
"""Parts of a training run in the table of means."""


def write_page(folder: Path, title: str, meaning: str, rows: Sequence[Rescored]) -> None:
    """Write report.html and report.md to an empty folder.

    `title` says which completions are rewarded by what, `meaning` what the old reward is.
    """
    flips, checks = find_flips(rows), [row for row in rows if row.correct != row.correct_now]
    means = CaptionedTable(
        "Means of both rewards, their rank correlation (Spearman), and the share of completions "
        "that change sides, of each seed and of parts of its training",
        list(tabulate_means(rows)),
    )
    sides = (
        "Above the mean of their group by one reward and below it by the other, so that the sign "
        "of a group advantage flips; the largest changes first."
    )
    sections = [
        Section("", [means]),
        Section("Completions that change sides", [sides, *show(flips)]),
        Section(
            "Other verdicts",
            ["The answer checker judges their answers otherwise than at the time.", *show(checks)],
        ),
    ]
    numbers = summarise(rows)
    correlation = numbers["rank_correlation"]
    in_words = "not defined, since a reward is the same for all"
    page.write_report(
        folder,
        f"Rewards compared: {title}",
        [
            f"{numbers['same_reward']:,} of {len(rows):,} completions have the same reward; rank "
            f"correlation (Spearman) {in_words if correlation is None else f'{correlation:.3f}'}.",
            f"{len(flips):,} completions change sides: above the mean of their group by one "
            f"reward, below it by the other.",
            f"{len(checks):,} answers are judged otherwise than at the time.",
        ],
        {"Old reward": meaning},
        sections,
    )


def summarise(rows: Sequence[Rescored]) -> dict[str, Any]:
    """Means and counts of these completions, and Spearman's rank correlation of both rewards.

    The correlation is None if a reward does not vary.
    """
    old, new = (np.array([getattr(row, key) for row in rows]) for key in ("old", "new"))
    varies = np.ptp(old) > 0 and np.ptp(new) > 0
    correlation: Any = stats.spearmanr(old, new) if varies else None
    return {
        "completions": len(rows),
        "same_reward": int((old == new).sum()),
        "old": round_metric(old.mean()),
        "new": round_metric(new.mean()),
        "rank_correlation": round_metric(correlation.statistic) if varies else None,
        "change_sides": len(find_flips(rows)),
        "other_verdicts": sum(row.correct != row.correct_now for row in rows),
    }


def tabulate_means(rows: Sequence[Rescored]) -> Iterator[dict[str, str]]:
    """A row for each seed, and for each part of its training."""
    for seed, of_seed in groupby(rows, key=lambda row: row.seed):
        batch = list(of_seed)
        yield {"seed": str(seed), "steps": "all"} | format_means(batch)
        last = batch[-1].step
        edges = np.unique(np.linspace(0, last + 1, min(NUM_PARTS, last + 1) + 1).astype(int))
        for start, end in pairwise(edges) if last else ():
            part = [row for row in batch if start <= row.step < end]
            steps = str(end) if end == start + 1 else f"{start + 1}-{end}"
            yield {"seed": str(seed), "steps": steps} | format_means(part)


def format_means(rows: Sequence[Rescored]) -> dict[str, str]:
    """Means of both rewards, their correlation, the share that changes sides."""
    numbers = summarise(rows)
    correlation = numbers["rank_correlation"]
    return {
        "old, mean": f"{numbers['old']:.4f}",
        "new, mean": f"{numbers['new']:.4f}",
        "rank correlation": "" if correlation is None else f"{correlation:.3f}",
        "change sides, %": f"{100 * numbers['change_sides'] / len(rows):.1f}",
    }


def find_flips(rows: Iterable[Rescored]) -> list[Rescored]:
    """Completions above the mean of their group by one reward and below it by the other.

    A group is the completions of a problem in a step, so the sign of a group advantage flips. The
    largest changes come first.
    """
    groups: dict[tuple[int, int, str], list[Rescored]] = {}
    for row in rows:
        groups.setdefault((row.seed, row.step, row.id), []).append(row)
    flips = list[Rescored]()
    for group in groups.values():
        old, new = (np.array([getattr(row, key) for row in group]) for key in ("old", "new"))
        # Rewards have six decimals: if all are equal, the rest is rounding of the mean.
        changes = (old - old.mean()).round(6) * (new - new.mean()).round(6) < 0
        flips += [row for row, is_flip in zip(group, changes, strict=True) if is_flip]
    return sorted(flips, key=lambda row: (-abs(row.new - row.old), row.seed, row.step))


def show(rows: Sequence[Rescored]) -> Iterator[Transcript]:
    """The first of these completions, each with its problem and both rewards."""
    for row in rows[:NUM_SHOWN]:
        prompt = Prompt(
            id=row.id, task="", question=row.question, prompt="", prompt_ids=[], answer=row.answer
        )
        was = {True: "right", False: "wrong", None: "not judged"}[row.correct]
        place = f"seed {row.seed}, step {row.step + 1}, sample {row.index}; {was} at the time"
        reward = f"{row.old:g} → {row.new:g}"
        yield Transcript(prompt, place, [(reward, shorten(row.completion), row.correct_now)])
