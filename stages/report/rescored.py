"""The page on completions that were rewarded again: both rewards, and who changes sides."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from stages.records.metrics import round_metric
from stages.records.problems import Prompt
from stages.records.rescored import Rescored
from stages.report import page, plots
from stages.report.sections import CaptionedTable, Image, Section
from stages.report.tables import NOTHING
from stages.report.transcripts import Transcript, shorten

NUM_SHOWN = 20
"""Completions with their texts, of each kind."""
NUM_PARTS = 8
"""Parts of a training run in the table of means."""


def write_page(folder: Path, title: str, meaning: str, rows: Sequence[Rescored]) -> None:
    """Write report.html, report.md and plots/ to an empty folder.

    `title` says which completions are rewarded by what, `meaning` what the old reward is.
    """
    (folder / "plots").mkdir()
    images = list[Image]()
    if rows[-1].step > 0:  # of training
        draw_steps(folder / "plots" / "steps.svg", rows)
        images.append(Image("steps.svg", "Mean of both rewards at each step, one line per seed"))
    flips, checks = find_flips(rows), [row for row in rows if row.correct != row.correct_now]
    means = CaptionedTable(
        "Means of both rewards, their rank correlation (Spearman), and the share of completions "
        "that change sides, of each seed and of parts of its training",
        list(tabulate_means(rows, {id(row) for row in flips})),
    )
    sides = (
        "Above the mean of their group by one reward and below it by the other, so that the sign "
        "of a group advantage flips; the largest changes first."
    )
    sections = [
        Section("", [means, *images]),
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
    """The numbers of metrics.json: of all completions, or of those of a seed or a step."""
    correlation = correlate_ranks(rows)
    return {
        "completions": len(rows),
        "same_reward": sum(row.old == row.new for row in rows),
        "old": round_metric(float(np.mean([row.old for row in rows]))),
        "new": round_metric(float(np.mean([row.new for row in rows]))),
        "rank_correlation": None if correlation is None else round_metric(correlation),
        "change_sides": len(find_flips(rows)),
        "other_verdicts": sum(row.correct != row.correct_now for row in rows),
    }


def correlate_ranks(rows: Sequence[Rescored]) -> float | None:
    """Spearman's rank correlation; None where a reward does not vary."""
    old, new = (np.array([getattr(row, key) for row in rows]) for key in ("old", "new"))
    if len(old) < 2 or np.ptp(old) == 0 or np.ptp(new) == 0:
        return None
    result: Any = stats.spearmanr(old, new)
    return float(result.statistic)


def tabulate_means(rows: Sequence[Rescored], flips: set[int]) -> Iterator[dict[str, str]]:
    """A row for each seed, and for each part of its training."""
    for seed, of_seed in groupby(rows, key=lambda row: row.seed):
        batch = list(of_seed)
        yield tabulate_part(str(seed), "all", batch, flips)
        last = batch[-1].step
        edges = np.unique(np.linspace(0, last + 1, min(NUM_PARTS, last + 1) + 1).astype(int))
        for start, end in pairwise(edges) if last else ():
            part = [row for row in batch if start <= row.step < end]
            steps = str(end) if end == start + 1 else f"{start + 1}-{end}"
            yield tabulate_part(str(seed), steps, part, flips)


def tabulate_part(
    seed: str, steps: str, rows: Sequence[Rescored], flips: set[int]
) -> dict[str, str]:
    """A row of the table: means of both rewards, their correlation, the share that flips."""
    correlation = correlate_ranks(rows)
    share = sum(id(row) in flips for row in rows) / len(rows)
    return {
        "seed": seed,
        "steps": steps,
        "old, mean": f"{np.mean([row.old for row in rows]):.4f}",
        "new, mean": f"{np.mean([row.new for row in rows]):.4f}",
        "rank correlation": NOTHING if correlation is None else f"{correlation:.3f}",
        "change sides, %": f"{100 * share:.1f}",
    }


def find_flips(rows: Iterable[Rescored]) -> list[Rescored]:
    """Completions above the mean of their group by one reward and below it by the other.

    A group are the completions of a problem in a step: so the sign of a group advantage flips. The
    largest changes come first.
    """
    groups: dict[tuple[int, int, str], list[Rescored]] = {}
    for row in rows:
        groups.setdefault((row.seed, row.step, row.id), []).append(row)
    flips = list[Rescored]()
    for group in groups.values():
        old, new = (np.array([getattr(row, key) for row in group]) for key in ("old", "new"))
        # Rewards have six decimals: what remains where all are equal is the rounding of the mean.
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


def draw_steps(path: Path, rows: Sequence[Rescored]) -> None:
    """Mean of both rewards at each step, one line per seed."""
    of_steps: dict[tuple[int, int], list[Rescored]] = {}
    for row in rows:
        of_steps.setdefault((row.seed, row.step), []).append(row)
    seeds = sorted({seed for seed, _ in of_steps})
    colours = plots.assign_colours(["", *map(str, seeds)])
    with plots.save_figure(path, width=8.0, height=3.2) as figure:
        for axes, key in zip(figure.subplots(1, 2), ("old", "new"), strict=True):
            axes.set(title=f"{key} reward, mean", xlabel="step")
            for place, seed in enumerate(seeds):
                steps = sorted(step for seed_of_step, step in of_steps if seed_of_step == seed)
                means = [
                    np.mean([getattr(row, key) for row in of_steps[seed, step]]) for step in steps
                ]
                axes.plot(
                    [step + 1 for step in steps], means, color=colours[str(seed)],
                    linestyle=plots.DASHES[place % len(plots.DASHES)], label=f"seed {seed}",
                )  # fmt: skip
        figure.axes[0].legend()
