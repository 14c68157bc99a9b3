"""The report page's own sections: numbers, plots, and words, put together in one order."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages import seeding
from stages.records.problems import Prompt
from stages.reports import (
    difficulty,
    difficulty_plot,
    difficulty_section,
    lengths,
    lengths_plot,
    lengths_section,
    plot_style,
    score_shifts,
    score_shifts_plot,
    score_shifts_section,
    training_plot,
    training_section,
    transcript_choice,
    transcript_section,
)
from stages.reports.page import markdown_section, transcripts
from stages.reports.page.markdown_section import slug
from stages.reports.page.section import Section
from stages.reports.policy_samples import PolicySamples
from stages.reports.problem_interval import QualityConfig
from stages.reports.score_shifts import Scores
from stages.reports.training_series import Series

Policies = Mapping[str, PolicySamples]
"""The baseline first."""
Runs = Mapping[str, Mapping[str, Series]]
"""Each entry that trained a policy, with its quantities by step."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """The numbers of the sections."""

    confidence: float
    difficulty: list[dict[str, Any]]
    lengths: dict[str, Any]
    scores: Mapping[str, Scores]
    score_shifts: dict[str, dict[str, Any]]
    verdict_changes: dict[str, tuple[int, int, int, int]]

    def metrics(self) -> dict[str, Any]:
        """The content of `data/write_report/metrics.json`."""
        kinds = ("right_under_both", "gained", "lost", "wrong_under_both")
        return {
            "difficulty": self.difficulty,
            "lengths": self.lengths,
            "score_shifts": self.score_shifts,
            "verdict_changes": {
                name: dict(zip(kinds, counts, strict=True))
                for name, counts in self.verdict_changes.items()
            },
        }


def measure(
    policies: Policies, scores: Mapping[str, Scores], config: QualityConfig, *, seed: int
) -> Found:
    """All numbers; `scores` has for each scorer those of the policies that it scored."""
    greedy_right = {name: policy.greedy_right for name, policy in policies.items()}
    return Found(
        confidence=config.confidence,
        difficulty=difficulty.measure(policies, config, seed=seed),
        lengths=lengths.measure(policies, config, seed=seed),
        scores=scores,
        score_shifts={
            scorer: score_shifts.measure(one, policies, config, seed=seed)
            for scorer, one in scores.items()
        },
        verdict_changes=transcript_choice.transitions(greedy_right, next(iter(policies))),
    )


def draw(folder: Path, policies: Policies, found: Found, runs: Runs) -> None:
    """Write all plots and their numbers into a new folder."""
    folder.mkdir()
    colours = plot_style.colours(policies)
    difficulty_plot.draw(folder / "difficulty.png", found.difficulty, colours)
    difficulty_plot.write(folder / "difficulty.csv", found.difficulty)
    lengths_plot.draw(folder / "lengths.png", policies)
    lengths_plot.write(folder / "lengths.csv", policies)
    for scorer, scores in found.scores.items():
        shifts = score_shifts.shifts(scores)
        score_shifts_plot.draw(folder / f"scores-{slug(scorer)}.png", shifts, policies)
    for entry, quantities in runs.items():
        training_plot.draw(folder / f"{slug(entry)}.png", quantities)
    training_plot.write(folder / "training.csv", runs)


def own(
    folder: Path,
    prompts: Sequence[Prompt],
    policies: Policies,
    found: Found,
    runs: Runs,
    *,
    disagreeing: int,
    drawn: int,
    seed: int,
) -> list[Section]:
    """The sections, in the order of the page; `folder` has the plots in `plots/`."""
    baseline = next(iter(policies))
    greedy_right = {name: policy.greedy_right for name, policy in policies.items()}
    chosen = transcript_choice.choose(
        [prompt.id for prompt in prompts],
        greedy_right,
        baseline,
        disagreeing=disagreeing,
        drawn=drawn,
        seed=seeding.derive(seed, "transcripts"),
    )
    texts = {
        "transcripts": transcript_section.render(greedy_right, baseline),
        "difficulty": difficulty_section.render(found.difficulty, confidence=found.confidence),
        "lengths": lengths_section.render(found.lengths, confidence=found.confidence),
        "rewards": score_shifts_section.render(
            found.score_shifts,
            {scorer: f"plots/scores-{slug(scorer)}.png" for scorer in found.scores},
            baseline=baseline,
            confidence=found.confidence,
        ),
        "training": training_section.render(
            runs, {entry: f"plots/{slug(entry)}.png" for entry in runs}
        ),
    }
    sections = {
        anchor: markdown_section.convert(text, folder=folder, anchor=anchor)
        for anchor, text in texts.items()
    }
    above = sections["transcripts"]
    below = transcripts.cards(chosen, prompts, policies)
    sections["transcripts"] = dataclasses.replace(above, body=above.body + below)
    return list(sections.values())


def introduction(policies: Policies) -> str:
    """What the page is about, in a sentence or two."""
    baseline, *others = policies
    num_problems, num_samples = policies[baseline].right.shape
    against = f"{', '.join(others)} against {baseline}" if others else baseline
    return (
        f"{against}: {num_problems} test problems, {num_samples} sampled completions of each and "
        f"a greedy one. Right means right by the answer checker. The page is one file and needs "
        f"no network."
    )
