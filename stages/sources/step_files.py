r"""Files of step labels, by `format.kind`: reading, splitting, counting.

`prm800k` and `math_aps` are in other modules. In the formats here a row is one solution.

ProcessBench: people marked the first wrong step.

    {"id": "gsm8k-0", "problem": "...", "steps": ["...", "..."], "final_answer_correct": false,
     "label": 1}

`label` is its index, -1 if every step is right. Steps before it are right, it is wrong, and later
ones are not labelled: people read no further. In `true_labels` all steps after an error are wrong.
It is a test set: do not train on it. "ProcessBench: Identifying Process Errors in Mathematical
Reasoning" (Zheng et al. 2024), https://arxiv.org/abs/2412.06559, section 3; its Table 2 has the
counts that a test compares.

Math-Shepherd: steps end with a marker, and the same text has + or - in its place.

    {"input": "Ann has 2 ... Step 1: 2+3 = 5 ки\nStep 2: The answer is: 5 ки",
     "label": "Ann has 2 ... Step 1: 2+3 = 5 +\nStep 2: The answer is: 5 -", "task": "GSM8K"}

A + means that at least one of N completions from there reached the right answer (the paper's hard
estimate). Each label is estimated separately, so a + may follow a -. The label of the last step is
the correctness of the final answer. Both texts must be equal except for the markers.
"Math-Shepherd" (Wang et al. 2024), https://arxiv.org/abs/2312.08935, section 3.2.

`stepwise`: TRL's form, true or false for each step, or 1 or 0, or 1 or -1, or + or -.

    {"prompt": "...", "completions": ["...", "..."], "labels": [true, false]}

Fields of the format set other names for these columns, or paths (`question`, `steps`, `labels`):
`steps: steps.text` and `labels: steps.label` for a list of objects.

A step that contains the separator is divided there, as when a policy samples the text, so that a
model always reads a text in the same way (`cut_steps`). The label of the whole step goes to the
last part, and the other parts have none: in a wrong step the wrong part is unknown, and if only the
parts of right steps had labels, a position inside a step would reveal the label.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import add
from statistics import fmean
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from stages.config import Params, Where
from stages.records.problems import BadRow
from stages.records.steps import RawSteps, StepLabels, split_steps
from stages.sources import columns as columns_of
from stages.sources import containers, math_aps, prm800k, raw_rows, splitting
from stages.sources.containers import Place
from stages.sources.quarantine import RejectedError, bad_row
from stages.sources.unread import SourceReport, Unread


class ProcessBench(Params):
    """Format of ProcessBench, without settings."""

    columns: ClassVar = ("id", "problem", "steps", "label", "final_answer_correct")
    kind: Literal["processbench"]

    def solutions(self, fields: Mapping[str, Any], line: int, file: str = "") -> list[RawSteps]:
        """The single solution of a row."""
        steps, label = raw_rows.read_list(fields, "steps", "no steps"), fields.get("label")
        if isinstance(label, bool) or not isinstance(label, int) or not -1 <= label < len(steps):
            expected = f"-1 or an index of the {len(steps)} steps"
            raise RejectedError(f"no label: 'label' should be {expected} and is {label!r:.60}")
        correct = fields.get("final_answer_correct")
        if not isinstance(correct, bool | None):
            raise RejectedError(f"wrong type: 'final_answer_correct' is {correct!r:.60}, no bool")
        right = len(steps) if label == -1 else label
        return [RawSteps(
            id=raw_rows.check_id(fields.get("id"), "id", f"{self.kind}-{line:06d}"), line=line,
            file=file, question=raw_rows.read_text(fields, "problem"), source=self.kind,
            steps=[raw_rows.read_text({"steps": text}, "steps") for text in steps],
            labels=[*[1.0] * right, 0.0, *[None] * len(steps)][: len(steps)],
            num_completions=[0] * len(steps), correct=correct,
            true_labels=[index < right for index in range(len(steps))],
        )]  # fmt: skip


FIRST = "Step 1:"
MARKER = "ки"
SIGNS = {"+": 1.0, "-": 0.0}


class MathShepherd(Params):
    """Format of Math-Shepherd."""

    columns: ClassVar = ("input", "label")
    kind: Literal["math_shepherd"]
    num_completions: int = Field(gt=0)
    """N, number of completions per label: 8 in the paper."""

    def solutions(self, fields: Mapping[str, Any], line: int, file: str = "") -> list[RawSteps]:
        """The single solution of a row."""
        text, labelled = (raw_rows.read_verbatim(fields, name) for name in ("input", "label"))
        *marked, remainder = text.split(MARKER)
        if not marked or remainder.strip():
            raise RejectedError(f"no marker: 'input' should end in {MARKER!r}, not {text[-40:]!r}")
        ends = accumulate(len(step) + 1 for step in marked)
        signs = [labelled[end - 1 : end] for end in ends]
        signed = "".join(map(add, marked, signs))
        if not SIGNS.keys() >= set(signs) or labelled.rstrip() != signed.rstrip():
            expected = f"'label' to be 'input' with + or - for each of its {len(marked)} markers"
            raise RejectedError(f"markers and labels: expected {expected}, not {labelled[-40:]!r}")
        question, marker, first = marked[0].rpartition(FIRST)
        if not marker or not question.strip():
            raise RejectedError(f"no question: nothing stands before {FIRST!r} in {text[:40]!r}")
        steps = [f"{FIRST}{first}".strip(), *(step.strip() for step in marked[1:])]
        if not all(steps):
            raise RejectedError(f"empty step: nothing stands before one of {len(steps)} markers")
        labels = [SIGNS[sign] for sign in signs]
        return [RawSteps(
            line=line, file=file, question=question.strip(), steps=steps, labels=[*labels],
            num_completions=[self.num_completions] * len(steps),
            correct=labels[-1] == SIGNS["+"], source=self.kind,
        )]  # fmt: skip


def _read_flag(label: Any) -> float | None:
    """1 for a right step, 0 for a wrong one; None: not a valid label."""
    flag, text = columns_of.read_flag(label), str(label).strip()
    return {**SIGNS, "-1": 0.0}.get(text) if flag is None else float(flag)


class Stepwise(Params):
    """TRL's format, a label for each step; the source of the labels is unknown."""

    kind: Literal["stepwise"]
    question: str = "prompt"
    steps: str = "completions"
    """The column of the lists of steps."""
    labels: str = "labels"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return self.question, self.steps, self.labels

    def solutions(self, fields: Mapping[str, Any], line: int, file: str = "") -> list[RawSteps]:
        """The single solution of a row."""
        values = {name: columns_of.find(fields, name) for name in self.columns}
        fields = {**fields, **{k: v for k, v in values.items() if v is not columns_of.MISSING}}
        steps = raw_rows.read_list(fields, self.steps, "no steps")
        labels = raw_rows.read_list(fields, self.labels, "no labels")
        flags = [_read_flag(label) for label in labels]
        if len(labels) != len(steps) or None in flags:
            expected = f"true or false, 1 or 0 (or -1), + or - for each of the {len(steps)} steps"
            raise RejectedError(
                f"no labels: '{self.labels}' should be {expected} and is {labels!r:.60}"
            )
        return [RawSteps(
            line=line, file=file, question=raw_rows.read_text(fields, self.question),
            steps=[raw_rows.read_text({self.steps: text}, self.steps) for text in steps],
            labels=flags, num_completions=[0] * len(steps), source=self.kind,
        )]  # fmt: skip


Format = Annotated[
    prm800k.Prm800kConfig | MathShepherd | math_aps.MathApsConfig | ProcessBench | Stepwise,
    Field(discriminator="kind"),
]

GOLD = (
    "answer", "final_answer", "ground_truth", "solution", "question.ground_truth_answer",
    "question.ground_truth_solution", "question.pre_generated_steps",
    "question.pre_generated_answer",
)  # fmt: skip
"""Columns from which step labels were made, which add nothing to them."""


def read_solutions(
    place: Place,
    form: Format,
    ignore: Sequence[str] = (),
    *,
    where: Mapping[str, Where] | None = None,
    report: SourceReport | None = None,
) -> Iterator[list[RawSteps] | BadRow]:
    """The solutions of each row of files or of the hub, or the reason for rejecting it.

    Args:
        place: File, folder, or split of the hub.
        form: Format of the rows.
        ignore: Columns that may be dropped.
        where: Column -> value, or values, by which rows are selected.
        report: Filled in with the columns that are read and the unread ones.

    Raises:
        ValueError: files that are not there, a column that says something and is not read
            (`Unread`), or labels of which one may be neutral.
    """
    report = report or SourceReport(path="")
    report.form, report.rows = f"labelled steps ({form.kind})", {"unsplit": 0}
    names, where = form.columns, where or {}
    rows, lines = columns_of.keep_rows(containers.open_rows(place), where), dict[str, int]()
    for row in Unread(used=names, ignore=[*ignore, *GOLD], where=where).watch(rows, report):
        if isinstance(row, BadRow):
            yield row
            continue
        labels = columns_of.find(row.fields, form.labels) if isinstance(form, Stepwise) else None
        if isinstance(labels, list):
            lines |= {str(label): row.line for label in labels}
        if {"0", "-1"} <= lines.keys():
            raise ValueError(
                f"{row.file}: labels: expected 1 and 0, or 1 and -1, found 0 (row {lines['0']}) "
                f"and -1 (row {lines['-1']}), of which 0 may be neutral: write 1 for it if such a "
                f"step is right, else -1"
            )
        report.columns |= {name: name for name in names if name.partition(".")[0] in row.fields}
        yield raw_rows.parse_row(row, form.solutions)


def cut_steps(raw: RawSteps, separator: str) -> RawSteps:
    """The solution with each step divided as `split_steps` would divide its tokens."""
    steps: list[str] = []
    places: list[int | None] = []
    for place, text in enumerate(raw.steps):
        parts = _parts(text, separator)
        steps += parts
        places += [*[None] * (len(parts) - 1), place]
    truth = raw.true_labels
    return replace(
        raw, steps=steps, labels=[None if i is None else raw.labels[i] for i in places],
        num_completions=[0 if i is None else raw.num_completions[i] for i in places],
        true_labels=truth and [None if i is None else truth[i] for i in places],
    )  # fmt: skip


def drop_first_step(raw: RawSteps) -> RawSteps:
    """The solution from its second step on."""
    truth = raw.true_labels
    return replace(
        raw, steps=raw.steps[1:], labels=raw.labels[1:], num_completions=raw.num_completions[1:],
        true_labels=truth and truth[1:],
    )  # fmt: skip


def _parts(text: str, separator: str) -> list[str]:
    pieces = [piece + separator for piece in text.split(separator)]
    steps = split_steps(range(len(pieces)), lambda ids: "".join(pieces[i] for i in ids), separator)
    # Tokenisation adds the separator again.
    return ["".join(pieces[i] for i in step).removesuffix(separator) for step in steps]


def split_solutions(
    rows: Sequence[StepLabels], heldout_share: float
) -> dict[str, list[StepLabels]]:
    """Solutions by side; all solutions of a prompt are on the same side."""
    by_prompt = [(splitting.normalise_question(row.prompt), row) for row in rows]
    return splitting.hold_out(by_prompt, heldout_share, "steps_people")


def left_out_solutions(left_out: Iterable[tuple[RawSteps, str]]) -> list[BadRow]:
    """Records of solutions that are left out, for the quarantine file."""
    return [bad_row(raw.file, raw.line, reason, "\n".join(raw.steps)) for raw, reason in left_out]


def describe_solutions(rows: Sequence[StepLabels]) -> dict[str, dict[str, int | float]]:
    """Counts of solutions, with and without errors, and of labels; a ValueError if all are 0."""
    if not rows:
        raise ValueError(
            "no solution is left: expected labelled ones of at most max_tokens. Use another file, "
            "or raise max_tokens (and the model's positions)."
        )
    labels = [label for row in rows for label in row.labels if label is not None]
    erroneous = [any(label is not None and label < 0.5 for label in row.labels) for row in rows]
    return {
        "solutions": {
            "all": len(rows),
            "problems": len({row.prompt for row in rows}),
            "erroneous": sum(erroneous),
            "without_error": len(rows) - sum(erroneous),
            "mean_steps": round(fmean(len(row.steps) for row in rows), 4),
            "mean_tokens": round(fmean(sum(map(len, row.step_ids)) for row in rows), 2),
        },
        "labels": {
            "steps": sum(len(row.steps) for row in rows),
            "labelled": len(labels),
            "wrong": sum(label < 0.5 for label in labels),
            "mean": round(fmean(labels), 6),
        },
    }
