"""Sections of the report, in order: text, tables and plots, the less important ones folded.

A word in backticks is shown as code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stages.algorithms.statistics.crossed_means import MIN_SEEDS
from stages.report import conversations, tables, verdict
from stages.report.controls import KINDS, describe_controls, describe_warnings
from stages.report.conversations import Conversation
from stages.report.estimates import GREEDY, MAJORITY
from stages.report.experiment import Experiment
from stages.report.forecast import describe_comparison
from stages.report.tables import Rows
from stages.report.transcripts import Transcript, Transcripts
from stages.report.verdict import Metrics


@dataclass(frozen=True)
class Image:
    """A plot."""

    file: str
    """Its name in `plots/`."""
    alt: str
    """Alternative text, for readers who do not see the image."""


@dataclass(frozen=True)
class CaptionedTable:
    """A table with its caption, which says what the rows and numbers are."""

    caption: str
    rows: Rows

    @property
    def columns(self) -> list[str]:
        """The columns of all rows, in the order in which they first appear."""
        return list(dict.fromkeys(column for row in self.rows for column in row))

    @property
    def cells(self) -> list[list[str]]:
        """The rows' texts, by column."""
        columns = self.columns
        return [[row.get(column, "") for column in columns] for row in self.rows]

    @property
    def words(self) -> set[str]:
        """The columns of words; the others are of numbers."""
        return {name for row in self.rows for name, cell in row.items() if cell[:1].isalpha()}


@dataclass(frozen=True)
class Section:
    """Text, tables and plots under a heading; a section inside of another one is folded."""

    title: str
    blocks: "list[Block]"


Block = str | CaptionedTable | Image | Section | Transcript | Conversation


def drop_empty(blocks: Sequence[Block], *, transcripts: bool = True) -> list[Block]:
    """Blocks but for tables without rows, and sections that hold nothing but text.

    Args:
        blocks: The blocks of a page or of a section.
        transcripts: Whether these are content; without, they are dropped, too.
    """
    filled: list[Block] = []
    for block in blocks:
        if isinstance(block, Section):
            inner = drop_empty(block.blocks, transcripts=transcripts)
            if any(not isinstance(item, str) for item in inner):
                filled.append(Section(block.title, inner))
        elif isinstance(block, CaptionedTable):
            filled += [block] if block.rows else []
        elif transcripts or not isinstance(block, Transcript):
            filled.append(block)
    return filled


def build_sections(
    metrics: Metrics, experiment: Experiment, transcripts: Transcripts, curves: Sequence[str]
) -> list[Section]:
    """The report on data/report/metrics.json; `curves`: policies with a plot of their training."""
    return [
        Section("Policies", _build_policies(metrics)),
        *([build_control_section(metrics)] if "controls" in metrics else []),
        _build_methods(experiment), _build_training(curves),
        Section("Transcripts", _build_transcripts(transcripts, metrics)),
        Section("Choosing among samples", _build_selection(metrics)),
        Section("Labels and rewards", _build_quality(metrics)),
        Section("Costs", _build_costs(metrics)), Section("Details", _build_details(metrics)),
    ]  # fmt: skip


def build_reward_sections(
    metrics: Metrics, experiment: Experiment, transcripts: Transcripts, curves: Sequence[str]
) -> list[Section]:
    """The report where no answer can be checked (`reward_comparison.compare_by_rewards`)."""
    confidence = f"In brackets {100 * metrics['confidence']:g} % intervals over seeds and prompts"
    policies: list[Block] = []
    for measure in metrics["gains"]:
        reward = measure.partition("/")[2]
        rows = tables.tabulate_rewards(metrics, reward)
        policies.append(CaptionedTable(f"Mean score by the reward {reward}", rows))
    policies += [
        f"{confidence}; with one seed, over prompts. Differences are paired by both, p-values "
        f"adjusted by Holm's method for each reward. Wins: how often a sample is scored above one "
        f"of {metrics['baseline']}'s, ties half. A policy trained on a reward model learns what "
        f"that overrates, too.",
        CaptionedTable("Length of the samples", tables.tabulate_lengths(metrics)),
    ]
    return [
        Section("Policies", policies), _build_methods(experiment), _build_training(curves),
        Section("Transcripts", _build_transcripts(transcripts, metrics)),
        Section("Labels and rewards", _build_quality(metrics)),
        Section("Costs", _build_costs(metrics)),
    ]  # fmt: skip


def build_episode_section(
    metrics: Metrics, shown: Mapping[str, Mapping[str, Sequence[Conversation]]]
) -> Section:
    """Success in each environment; `shown`: environment -> title -> conversations."""
    confidence = next(iter(metrics.values()))["confidence"]
    return Section(
        "Episodes",
        [
            *(
                block
                for environment, played in metrics.items()
                for block in _build_environment(environment, played)
            ),
            f"In brackets {100 * confidence:g} % intervals over seeds and starts, with one seed "
            f"over starts; differences are paired by both, and p-values adjusted by Holm's method "
            f"within each table. An episode is a success if its rewards add up to `success_reward` "
            f"of the environment's preset. Failed: the environment raised an error, hung or paid "
            f"no number; such episodes are in no mean.",
            conversations.RULE,
            *(
                Section(f"{title}, {environment}", [*chosen])
                for environment, groups in shown.items()
                for title, chosen in groups.items()
            ),
        ],
    )


def _build_environment(environment: str, played: Metrics) -> list[Block]:
    of_starts = f"{played['num_episodes']:,} from each of {played['num_starts']:,} test starts"
    blocks: list[Block] = [
        CaptionedTable(
            f"Episodes in {environment}: {of_starts} with each seed",
            tables.tabulate_episodes(played),
        ),
        played["verdict"],
        CaptionedTable(
            f"Success in {environment} against {played['baseline']}",
            tables.tabulate_gains(played, "success"),
        ),
        CaptionedTable(
            f"Success in {environment}, every two of the other policies",
            tables.tabulate_pairs(played),
        ),
    ]
    if played["num_problems"] < played["num_starts"]:
        blocks.append(
            f"These starts pose {played['num_problems']:,} different problems. "
            + (
                "In intervals and tests, starts with the same problem count as one cluster."
                if played["num_problems"] > 1
                else "Intervals and tests are of this problem, and say nothing of others."
            )
        )
    if played["left_out"]:
        blocks.append(
            f"{played['left_out']:,} more starts are left out: from each of them the "
            f"environment failed in all episodes of a policy with a seed."
        )
    return blocks


def build_control_section(metrics: Metrics) -> Section:
    """Rows marked as controls: trainings that must not make a policy more skilful."""
    controls = metrics["controls"]
    no_effect, no_skill = (controls["differences"].get(kind, {}) for kind in KINDS)
    return Section(
        "Controls",
        [
            *describe_warnings(controls),
            *describe_controls(controls),
            CaptionedTable(
                "Nothing to learn: mean accuracy against the policy that training started from",
                tables.tabulate_controls(controls, no_effect),
            ),
            CaptionedTable(
                "Paid for no skill: mean accuracy against the policy that training started from",
                tables.tabulate_controls(controls, no_skill),
            ),
            CaptionedTable(
                "Mean accuracy of the other policies beyond controls that are paid for no skill",
                tables.tabulate_beyond(controls),
            ),
            CaptionedTable(
                "Format and length of the samples of controls",
                tables.tabulate_completions(controls),
            ),
            f"Controls are in no other table, test or ranking. Differences have intervals and "
            f"p-values as above, adjusted by Holm's method within each of these tables. That "
            f"a difference is not significant is no proof that there is none; one whose "
            f"{100 * metrics['confidence']:g} % interval lies within "
            f"±{100 * controls['margin']:g} points is called none.",
        ],
    )


def _build_methods(experiment: Experiment) -> Section:
    return Section(
        "Methods",
        [
            CaptionedTable("How each policy was trained, one seed", experiment.methods),
            "Preset: the method with its numbers, in `stages/presets.yaml`. From: the initial "
            "policy. On: the data or reward that it learned from, below `data/`. A step is one "
            "optimizer step, of PPO and GRPO one batch of rollouts. The learning rate is the "
            "highest of its schedule. Tokens are means over seeds.",
        ],
    )


def _build_training(curves: Sequence[str]) -> Section:
    plots = [
        Section(name, [Image(f"training-{name}.svg", f"Training of {name}, by step")])
        for name in curves
    ]
    return Section(
        "Training", ["A thin line a seed, with a mark at its end; a thick one their mean.", *plots]
    )


def _build_policies(metrics: Metrics) -> list[Block]:
    baseline = metrics["baseline"]
    return [
        CaptionedTable(
            f"Accuracy on {metrics['num_problems']:,} test problems, of an answer sampled at "
            f"temperature {metrics['temperatures']['sampled']:g} unless it says otherwise",
            tables.tabulate_accuracy(metrics),
        ),
        explain_intervals(metrics),
        *describe_comparison(metrics),
        CaptionedTable(
            "The gains' p-values; accuracy by seed, greedy, and by majority"
            if len(metrics["seeds"]) >= MIN_SEEDS
            else "Accuracy, greedy and by majority",
            tables.tabulate_estimates(metrics),
        ),
        *_build_parts(metrics),
        CaptionedTable(
            "Every two of the other policies, mean accuracy", tables.tabulate_pairs(metrics)
        ),
        *_build_coverage(metrics),
        Section(f"Other measures against {baseline}", _build_other_measures(metrics)),
    ]


def _build_parts(metrics: Metrics) -> list[Block]:
    """What each gain is made of, and what the readings of an answer have to do with it."""
    baseline = metrics["baseline"]
    if not metrics["parts"]:
        return []
    blocks: list[Block] = [
        CaptionedTable(
            f"Where each gain at temperature {metrics['temperatures']['sampled']:g} comes from, "
            f"points",
            tables.tabulate_parts(metrics),
        ),
        f"The parts add up to the gain. Sharpening: what {baseline} gains at its best temperature, "
        f"without any training, less what the policy still gains at its best temperature. Format: "
        f"the gain that vanishes if the last number of a text counts as its answer, stated or not. "
        f"Rest: the gain that remains. The best temperature of a policy is the one with the most "
        f"accurate samples on the dev problems, over all seeds; of equal ones the highest.",
    ]
    if tables.readings_differ(metrics):
        blocks.append(
            "Strict: the last line is `#### n` with the right n. Lenient: the last number of the "
            "text counts too. Gain by format: the share of the strict gain that comes from answers "
            "that were right under the lenient reading already."
        )
    return blocks


def _build_coverage(metrics: Metrics) -> list[Block]:
    """pass@k, and the problems that only one of two policies ever solves."""
    num_samples = metrics["num_samples"]
    missed = 100 * (1 - 1 / num_samples) ** num_samples
    return [
        CaptionedTable(
            f"Problems with any right answer among k samples (pass@k), and, of "
            f"{metrics['num_problems']:,}, those solved in any of {num_samples}",
            tables.tabulate_coverage(metrics),
        ),
        f"Counts are means over seeds. pass@{num_samples} is estimated without bias, but from a "
        f"single pool for each problem and seed, so that it varies more than at smaller k. A "
        f"problem never solved in {num_samples} samples may be solved in more: one that is solved "
        f"once in {num_samples} tries is missed by {missed:.0f} % of such pools.",
    ]


def _build_other_measures(metrics: Metrics) -> list[Block]:
    labels = {
        GREEDY: "Greedy accuracy",
        f"{MAJORITY}/{metrics['n']}": f"Majority of {metrics['n']}",
        "mean_strict": "Mean accuracy, strict: the last line is `#### n` with the right n",
        "mean_lenient": "Mean accuracy, lenient: the last number of the text counts too",
    }
    return [
        CaptionedTable(label, tables.tabulate_gains(metrics, measure))
        for measure, label in labels.items()
    ]


def explain_intervals(metrics: Metrics) -> str:
    """Sentences on the intervals, p-values and detectable differences of the tables."""
    num_seeds, brackets = len(metrics["seeds"]), f"In brackets {100 * metrics['confidence']:g} %"
    best, policies = metrics["best_on_dev"], metrics["policies"]
    accuracies = {name: each["dev_accuracy"]["value"] for name, each in policies.items()}
    ties = sum(accuracy == accuracies[best] for accuracy in accuracies.values())
    is_best = (
        f"{best} is the most accurate."
        if ties == 1
        else f"{ties} policies are equally accurate, and {best}, the first, counts as the best."
    )
    end = f" On the dev problems, by which a policy is chosen, {is_best}"
    if num_seeds == 1:
        return (
            f"{brackets} intervals over problems. They say how another set of such problems would "
            f"differ for these very models, and nothing of another training run.{end}"
        )
    over = f"{brackets} intervals over seeds and problems; differences are paired by both."
    if num_seeds < MIN_SEEDS:
        return f"{over} With two seeds no difference is tested: train three or more.{end}"
    return (
        f"{over} p-values are adjusted by Holm's method within each column; up to "
        f"{1 - metrics['confidence']:.2g} a difference is significant. One whose interval excludes "
        f"0 and whose p-value is larger would be significant alone, but not among so many. "
        f"Detectable: the smallest true difference that would be found with a probability of "
        f"80 %.{end}"
    )


def _build_transcripts(transcripts: Transcripts, metrics: Metrics) -> list[Block]:
    num_pairs = f"{len(metrics['seeds']):,} × {metrics['num_problems']:,}"
    return [
        transcripts.rule,
        CaptionedTable(
            f"Greedy completions that one policy has right and another wrong, of {num_pairs} seeds "
            f"and problems",
            transcripts.disagreements,
        ),
        *(Section(title, [*chosen]) for title, chosen in transcripts.groups.items()),
    ]


def _build_selection(metrics: Metrics) -> list[Block]:
    baseline, *trained = metrics["policies"]
    caption = f"Ways to choose among {metrics['n']} samples of"
    return [
        f"What {metrics['n']} samples of {baseline} are worth: the expectation over random subsets "
        f"of the {metrics['num_samples']} samples of each problem.",
        CaptionedTable(f"{caption} {baseline}", tables.tabulate_selection(metrics, baseline)),
        *list_significant_choices(metrics),
        Image("accuracy_by_n.svg", "Accuracy by the number of samples, for each policy"),
        Section(
            f"How well each reward orders the samples of {baseline}",
            [
                CaptionedTable(
                    f"Rewards as a way to order samples of {baseline}",
                    tables.tabulate_scoring(metrics, baseline),
                ),
                "AUC: how often a right sample is scored above a wrong one of the same problem, "
                "ties half, over the problems that have both; in the format: among samples in the "
                "format of the demonstrations. Over format: against choosing any sample in that "
                "format, or the majority of those, which needs no model.",
            ],
        ),
        *(
            Section(
                f"The samples of {name}",
                [CaptionedTable(f"{caption} {name}", tables.tabulate_selection(metrics, name))],
            )
            for name in trained
        ),
    ]


def list_significant_choices(metrics: Metrics) -> list[str]:
    """Sentences on the rewards that choose better than the majority, and those that do not."""
    if len(metrics["seeds"]) < MIN_SEEDS:
        return ["With fewer than three seeds no difference from the majority is tested."]
    n, over_majority = metrics["n"], metrics["selection"][metrics["baseline"]]["over_majority"]
    better, worse, undecided = (
        "; ".join(verdict.name_choice(way, n) for way in ways) or "none"
        for ways in verdict.split_by_significance(over_majority, list(over_majority))
    )
    return [
        f"Better than the majority over seeds: {better}.",
        f"Worse than the majority over seeds: {worse}.",
        f"No significant difference from the majority: {undecided}.",
    ]


def _build_quality(metrics: Metrics) -> list[Block]:
    captions = {
        "pairs": "Pairs of completions", "steps": "Labelled steps",
        "rewards": "Rewards that are models, on held-out labels of their own source",
    }  # fmt: skip
    return [
        *(
            CaptionedTable(caption, tables.tabulate_quality(metrics, table))
            for table, caption in captions.items()
        ),
        "Means over seeds. Where there are gold answers, the answer checker's verdict is the "
        "truth. Negative log-likelihood in nats: a coin has 0.693. Accuracy of a process model: "
        "the mean of that on right and on wrong steps. At equal length: on pairs of almost the "
        "same length.",
    ]


def _build_costs(metrics: Metrics) -> list[Block]:
    return [
        f"Costs are of one seed, means over seeds. What {metrics['baseline']} needed is not "
        f"counted for the others; a row that several policies need counts in full for each.",
        CaptionedTable(
            "What each policy cost, with all that was made for it",
            tables.tabulate_policy_costs(metrics),
        ),
        Section(
            "Every row",
            [
                CaptionedTable("What each row cost", tables.tabulate_row_costs(metrics)),
                "Operations are computed, not measured: 2 for each number of a model's "
                "matrices and position read or sampled, 6 where it was trained; attention's "
                "own products are left out (`stages/algorithms/flops.py`).",
            ],
        ),
    ]


def _build_details(metrics: Metrics) -> list[Block]:
    baseline = metrics["baseline"]
    fifths = (
        f"Fifths of the problems by the accuracy of half of {baseline}'s samples; shown is the "
        f"accuracy of the other half, so that luck in the first does not count as a gain."
    )
    formats = "Format and length of the samples"
    return [
        Section(formats, [CaptionedTable(formats, tables.tabulate_completions(metrics))]),
        Section(
            "Accuracy by temperature",
            [
                CaptionedTable(
                    "Accuracy by temperature (0: greedy) on dev and test problems, %",
                    tables.tabulate_temperatures(metrics),
                ),
                "A temperature is chosen by the columns of dev problems alone.",
            ],
        ),
        Section(
            "Accuracy by difficulty",
            [
                CaptionedTable("Accuracy by difficulty", tables.tabulate_difficulty(metrics)),
                fifths,
            ],
        ),
    ]
