"""Sections of the report, in order: text, tables and plots, the less important ones folded."""

from collections.abc import Sequence
from dataclasses import dataclass

from stages.report import tables, verdict
from stages.report.estimates import GREEDY, MAJORITY
from stages.report.tables import Rows
from stages.report.transcripts import RULE, Transcript
from stages.report.verdict import Metrics


@dataclass(frozen=True)
class Image:
    """A plot."""

    file: str
    """Its name in `plots/`."""
    alt: str
    """Alternative text, for readers who do not see the image."""


@dataclass(frozen=True)
class Section:
    """Text, tables and plots under a heading; a section inside of another one is folded."""

    title: str
    blocks: "list[Block]"


Block = str | Rows | Image | Section | Transcript


def build_sections(
    metrics: Metrics, transcripts: Sequence[Transcript], curves: Sequence[str]
) -> list[Section]:
    """The report on data/report/metrics.json; `curves`: policies with a plot of their training."""
    return [
        Section("Policies", _build_policies(metrics)),
        Section("Choosing among samples", _build_selection(metrics)),
        Section("Labels and rewards", _build_quality(metrics)),
        Section("Costs", _build_costs(metrics)),
        _build_training(curves), Section("Details", _build_details(metrics, transcripts)),
    ]  # fmt: skip


def build_reward_sections(
    metrics: Metrics, transcripts: Sequence[Transcript], curves: Sequence[str]
) -> list[Section]:
    """The report where no answer can be checked (`reward_comparison.compare_by_rewards`)."""
    confidence = f"In brackets {100 * metrics['confidence']:g} % intervals over seeds and prompts"
    policies: list[Block] = []
    for measure in metrics["gains"]:
        reward = measure.partition("/")[2]
        policies += [f"By the reward {reward}:", tables.tabulate_rewards(metrics, reward)]
    policies += [
        f"{confidence}; with one seed, over prompts. Differences are paired by both, p-values "
        f"adjusted by Holm's method for each reward. Wins: how often a sample is scored above one "
        f"of {metrics['baseline']}'s, ties half. A policy trained on a reward model learns what "
        f"that overrates, too.",
        tables.tabulate_lengths(metrics),
    ]
    return [
        Section("Policies", policies), Section("Labels and rewards", _build_quality(metrics)),
        Section("Costs", _build_costs(metrics)), _build_training(curves),
        Section("Details", [Section("Prompts, as each policy answers them", [*transcripts])]),
    ]  # fmt: skip


def _build_training(curves: Sequence[str]) -> Section:
    plots = [
        Section(name, [Image(f"training-{name}.svg", f"Training of {name}, by step")])
        for name in curves
    ]
    return Section("Training", ["A thin line a seed, a thick one their mean.", *plots])


def _build_policies(metrics: Metrics) -> list[Block]:
    n = metrics["n"]
    blocks: list[Block] = [tables.tabulate_accuracy(metrics), _explain_intervals(metrics)]
    if metrics["pairs"]:
        blocks += [
            "Every two of the other policies, mean accuracy:",
            tables.tabulate_pairs(metrics),
        ]
    if metrics["gains"][GREEDY]:
        labels = {
            GREEDY: "Greedy accuracy",
            f"{MAJORITY}/{n}": f"Majority of {n}",
            "mean_strict": "Mean accuracy, strict: the last line is #### n with the right n",
            "mean_lenient": "Mean accuracy, lenient: the last number of the text counts too",
        }
        other_measures = Section(f"Other measures against {metrics['baseline']}", [])
        for measure, label in labels.items():
            other_measures.blocks.extend([f"{label}:", tables.tabulate_gains(metrics, measure)])
        other_measures.blocks.append(
            "A gain under the strict reading that is not there under the lenient one is a gain in "
            "format."
        )
        blocks.append(other_measures)
    return blocks


def _explain_intervals(metrics: Metrics) -> str:
    num_seeds, brackets = len(metrics["seeds"]), f"In brackets {100 * metrics['confidence']:g} %"
    best = (
        f" On the dev problems, by which a policy is chosen, {metrics['best_on_dev']} is the most "
        f"accurate."
    )
    if num_seeds == 1:
        return (
            f"{brackets} intervals over problems. They say how another set of such problems would "
            f"differ for these very models, and nothing of another training run.{best}"
        )
    warning = (
        " Two seeds leave one degree of freedom; train three or more." if num_seeds == 2 else ""
    )
    return (
        f"{brackets} intervals over seeds and problems; differences are paired by both.{warning} "
        f"p-values are adjusted by Holm's method within each column; up to "
        f"{1 - metrics['confidence']:.2g} a difference is significant. One whose interval excludes "
        f"0 and whose p-value is larger would be significant alone, but not among so many. "
        f"Detectable: the smallest true difference that would be found with a probability of "
        f"80 %.{best}"
    )


def _build_selection(metrics: Metrics) -> list[Block]:
    baseline, *trained = metrics["policies"]
    return [
        f"What {metrics['n']} samples of {baseline} are worth: the expectation over random subsets "
        f"of the {metrics['num_samples']} samples of each problem.",
        tables.tabulate_selection(metrics, baseline),
        *list_significant_choices(metrics),
        Image("accuracy_by_n.svg", "Accuracy by the number of samples, for each policy"),
        Section(
            f"How well each reward orders the samples of {baseline}",
            [
                tables.tabulate_scoring(metrics, baseline),
                "AUC: how often a right sample is scored above a wrong one of the same problem, "
                "ties half, over the problems that have both; in the format: among samples in the "
                "format of the demonstrations. Over format: against choosing any sample in that "
                "format, or the majority of those, which needs no model.",
            ],
        ),
        *(
            Section(f"The samples of {name}", [tables.tabulate_selection(metrics, name)])
            for name in trained
        ),
    ]


def list_significant_choices(metrics: Metrics) -> list[str]:
    """Sentences on the rewards that choose better than the majority, and those that do not."""
    if len(metrics["seeds"]) == 1:
        return ["With one seed none of these differences from the majority is tested."]
    n, over_majority = metrics["n"], metrics["selection"][metrics["baseline"]]["over_majority"]
    better, worse, rest = (
        "; ".join(verdict.name_choice(way, n) for way in ways) or "none"
        for ways in verdict.split_by_significance(over_majority, list(over_majority))
    )
    return [
        f"Better than the majority over seeds: {better}.",
        f"Worse than the majority over seeds: {worse}.",
        f"No significant difference from the majority: {rest}.",
    ]


def _build_quality(metrics: Metrics) -> list[Block]:
    titles = {
        "pairs": "Pairs of completions:", "steps": "Labelled steps:",
        "rewards": "Rewards that are models, on held-out labels of their own source:",
    }  # fmt: skip
    tables_by_title = {
        title: tables.tabulate_quality(metrics, table) for table, title in titles.items()
    }
    return [
        *(block for title, rows in tables_by_title.items() if rows for block in (title, rows)),
        "Means over seeds. The answer checker is the truth where it can be asked. Negative "
        "log-likelihood in nats: a coin has 0.693. Accuracy of a process model: the mean of that "
        "on right and on wrong steps. At equal length: on pairs of almost the same length.",
    ]


def _build_costs(metrics: Metrics) -> list[Block]:
    return [
        f"Of one seed, the mean over seeds. What {metrics['baseline']} needed is not counted "
        f"for the others; what several need counts in full for each.",
        tables.tabulate_policy_costs(metrics),
        Section(
            "Every row",
            [
                tables.tabulate_row_costs(metrics),
                "Operations are computed, not measured: 2 for each number of a model's "
                "matrices and position read or sampled, 6 where it was trained; attention's "
                "own products are left out (stages/algorithms/flops.py).",
            ],
        ),
    ]


def _build_details(metrics: Metrics, transcripts: Sequence[Transcript]) -> list[Block]:
    baseline = metrics["baseline"]
    fifths = (
        f"Fifths of the problems by the accuracy of half of {baseline}'s samples; shown is the "
        f"accuracy of the other half, so that luck in the first does not count as a gain."
    )
    return [
        Section("Format and length of the samples", [tables.tabulate_completions(metrics)]),
        Section("Accuracy by difficulty", [tables.tabulate_difficulty(metrics), fifths]),
        Section(
            "The same problems, as each policy answers them",
            [RULE.format(baseline=baseline), *transcripts],
        ),
    ]
