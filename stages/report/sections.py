"""What the report says, in order: text, tables and plots, the less important ones folded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from stages.report import tables, verdict
from stages.report.estimates import GREEDY, MAJORITY
from stages.report.transcripts import RULE, Transcript

Metrics = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Image:
    """A plot."""

    file: str
    """Its name in `plots/`."""
    alt: str
    """What it shows, for those who do not see it."""


@dataclass(frozen=True, kw_only=True)
class Folded:
    """Something that is shown when asked for."""

    summary: str
    blocks: "list[Block]"


Block = str | pd.DataFrame | Image | Folded | Transcript


@dataclass(frozen=True, kw_only=True)
class Section:
    """What stands under one heading; the first has none."""

    title: str
    blocks: list[Block] = field(default_factory=list)


def sections(
    metrics: Metrics, transcripts: Sequence[Transcript], curves: Sequence[str]
) -> list[Section]:
    """The report.

    Args:
        metrics: the content of data/report/metrics.json.
        transcripts: problems that are shown in full.
        curves: policies with a plot of their training.
    """
    return [
        policies(metrics),
        selection(metrics),
        made(metrics),
        costs(metrics),
        training(curves),
        details(metrics, transcripts),
    ]


def policies(metrics: Metrics) -> Section:
    """Accuracies and differences."""
    n, baseline = metrics["n"], metrics["baseline"]
    blocks: list[Block] = [tables.accuracy(metrics), what_intervals_are(metrics)]
    if metrics["pairs"]:
        blocks += ["Every two of the other policies, mean accuracy:", tables.pairs(metrics)]
    if metrics["gains"][GREEDY]:
        more = [GREEDY, f"{MAJORITY}/{n}", "mean_strict", "mean_lenient"]
        named = {
            GREEDY: "Greedy accuracy",
            f"{MAJORITY}/{n}": f"Majority of {n}",
            "mean_strict": "Mean accuracy, strict: the last line is #### n with the right n",
            "mean_lenient": "Mean accuracy, lenient: the last number of the text counts too",
        }
        inside: list[Block] = []
        for measure in more:
            inside += [f"{named[measure]}:", tables.gains(metrics, measure)]
        inside.append(
            "A gain under the strict reading that is not there under the lenient one is a gain in "
            "format."
        )
        blocks.append(Folded(summary=f"Other measures against {baseline}", blocks=inside))
    return Section(title="Policies", blocks=blocks)


def what_intervals_are(metrics: Metrics) -> str:
    """One paragraph."""
    level = f"{100 * metrics['confidence']:g} %"
    best = (
        f" On the dev problems, by which a policy is chosen, {metrics['best_on_dev']} is the most "
        f"accurate."
    )
    if len(metrics["seeds"]) == 1:
        return (
            f"In brackets {level} intervals over problems. They say how another set of such "
            f"problems would differ for these very models, and nothing of another training run."
        ) + best
    few = " Two seeds leave one degree of freedom; train three or more."
    return (
        f"In brackets {level} intervals over seeds and problems; differences are paired by both."
        f"{few if len(metrics['seeds']) == 2 else ''} "
        f"p-values are adjusted by Holm's method within each column; up to "
        f"{1 - metrics['confidence']:.2g} a difference is significant. One whose interval excludes "
        f"0 and whose p-value is larger would be significant alone, but not among so many. "
        f"Detectable: the smallest true difference that would be found with a probability of 80 %."
    ) + best


def selection(metrics: Metrics) -> Section:
    """Choosing among samples."""
    baseline, *others = metrics["policies"]
    n = metrics["n"]
    blocks: list[Block] = [
        f"What {n} samples of {baseline} are worth: the expectation over random subsets of the "
        f"{metrics['num_samples']} samples of each problem.",
        tables.selection(metrics, baseline),
        *what_holds(metrics),
        Image(file="accuracy_by_n.svg", alt="Accuracy by the number of samples, for each policy"),
        Folded(
            summary=f"How well each reward orders the samples of {baseline}",
            blocks=[
                tables.scoring(metrics, baseline),
                "AUC: how often a right sample is scored above a wrong one of the same problem, "
                "ties half, over the problems that have both; in the format: among samples in the "
                "format of the demonstrations. Over format: against choosing any sample in that "
                "format, or the majority of those, which needs no model.",
            ],
        ),
        *(
            Folded(summary=f"The samples of {name}", blocks=[tables.selection(metrics, name)])
            for name in others
        ),
    ]
    return Section(title="Choosing among samples", blocks=blocks)


def what_holds(metrics: Metrics) -> list[str]:
    """Which rewards choose better than the majority over seeds, and which do not."""
    if len(metrics["seeds"]) == 1:
        return ["With one seed none of these differences from the majority is tested."]
    n, found = metrics["n"], metrics["selection"][metrics["baseline"]]["over_majority"]
    better, worse, rest = verdict.split(found, list(found))
    named = {
        "Better than the majority over seeds": better,
        "Worse than the majority over seeds": worse,
        "No significant difference from the majority": rest,
    }
    return [
        f"{label}: {'; '.join(verdict.name(way, n) for way in ways) or 'none'}."
        for label, ways in named.items()
    ]


def made(metrics: Metrics) -> Section:
    """Labels and rewards."""
    titles = {
        "pairs": "Pairs of completions:",
        "steps": "Labelled steps:",
        "rewards": "Rewards that are models, on held-out labels of their own source:",
    }
    blocks: list[Block] = []
    for table, title in titles.items():
        frame = tables.made(metrics, table)
        if len(frame):
            blocks += [title, frame]
    blocks.append(
        "Means over seeds. The answer checker is the truth where it can be asked. Negative "
        "log-likelihood in nats: a coin has 0.693. Accuracy of a process model: the mean of that "
        "on right and on wrong steps. At equal length: on pairs of almost the same length."
    )
    return Section(title="Labels and rewards", blocks=blocks)


def costs(metrics: Metrics) -> Section:
    """Tokens and operations."""
    return Section(
        title="Costs",
        blocks=[
            f"Of one seed, the mean over seeds. What {metrics['baseline']} needed is not counted "
            f"for the others; what several need counts in full for each.",
            tables.costs(metrics),
            Folded(
                summary="Every row",
                blocks=[
                    tables.rows(metrics),
                    "Operations are computed, not measured: 2 for each number of a model's "
                    "matrices and position read or sampled, 6 where it was trained; attention's "
                    "own products are left out (stages/algorithms/flops.py).",
                ],
            ),
        ],
    )


def training(curves: Sequence[str]) -> Section:
    """A plot a policy."""
    blocks: list[Block] = ["A thin line a seed, a thick one their mean."]
    blocks += [
        Folded(
            summary=name,
            blocks=[Image(file=f"training-{name}.svg", alt=f"Training of {name}, by step")],
        )
        for name in curves
    ]
    return Section(title="Training", blocks=blocks)


def details(metrics: Metrics, transcripts: Sequence[Transcript]) -> Section:
    """Completions, difficulty, transcripts."""
    baseline = metrics["baseline"]
    return Section(
        title="Details",
        blocks=[
            Folded(
                summary="Format and length of the samples", blocks=[tables.completions(metrics)]
            ),
            Folded(
                summary="Accuracy by difficulty",
                blocks=[
                    tables.difficulty(metrics),
                    f"Fifths of the problems by the accuracy of half of {baseline}'s samples; "
                    f"shown is the accuracy of the other half, so that luck in the first does not "
                    f"count as a gain.",
                ],
            ),
            Folded(
                summary="The same problems, as each policy answers them",
                blocks=[RULE.format(baseline=baseline), *transcripts],
            ),
        ],
    )
