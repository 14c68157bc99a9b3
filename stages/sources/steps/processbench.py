"""ProcessBench: solutions in which people marked the first wrong step.

    {"id": "gsm8k-0", "problem": "...", "steps": ["...", "..."], "final_answer_correct": false,
     "label": 1}

`label` is the index of the first wrong step, -1 where every step is right. Steps before it are
right, it is wrong, and those after it are not labelled: people read no further. As the truth of
`true_labels`, whatever follows an error is not free of errors. A test set: not to train on.

"ProcessBench: Identifying Process Errors in Mathematical Reasoning" (Zheng et al. 2024),
https://arxiv.org/abs/2412.06559, section 3; its Table 2 has the counts that a test compares.
"""

from collections.abc import Mapping
from typing import Any, Literal

from stages.params import Params
from stages.records.steps import RawSteps
from stages.sources import raw_rows
from stages.sources.quarantine import RejectedError

SOURCE = "processbench"


class Config(Params):
    """ProcessBench has no numbers."""

    kind: Literal["processbench"]
    """Names this format."""


def solutions(fields: Mapping[str, Any], line: int) -> list[RawSteps]:
    """The one solution of a row.

    Raises:
        RejectedError: a column is missing or malformed, or the label is no index of a step.
    """
    steps, label = fields.get("steps"), fields.get("label")
    if not isinstance(steps, list) or not steps:
        raise RejectedError(f"no steps: 'steps' should be a list of texts and is {steps!r:.60}")
    if isinstance(label, bool) or not isinstance(label, int) or not -1 <= label < len(steps):
        raise RejectedError(
            f"no label: 'label' should be -1 or an index of the {len(steps)} steps and is "
            f"{label!r:.60}"
        )
    correct = fields.get("final_answer_correct")
    if correct is not None and not isinstance(correct, bool):
        raise RejectedError(
            f"wrong type: 'final_answer_correct' should be true or false and is {correct!r:.60}"
        )
    right = len(steps) if label == -1 else label
    wrong: list[float | None] = [] if label == -1 else [0.0]
    return [
        RawSteps(
            id=raw_rows.identifier(fields, "id", f"{SOURCE}-{line:06d}"),
            line=line,
            question=raw_rows.text(fields, "problem"),
            steps=[raw_rows.text({"steps": text}, "steps") for text in steps],
            labels=[*[1.0] * right, *wrong, *[None] * (len(steps) - right - len(wrong))],
            num_completions=[0] * len(steps),
            true_labels=[index < right for index in range(len(steps))],
            correct=correct,
            finished=True,
            source=SOURCE,
        )
    ]  # fmt: skip
