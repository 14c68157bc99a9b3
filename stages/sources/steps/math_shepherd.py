r"""Math-Shepherd: steps that end with a marker, and the same text with + or - in its place.

    {"input": "Ann has 2 ... Step 1: 2+3 = 5 ки\nStep 2: The answer is: 5 ки",
     "label": "Ann has 2 ... Step 1: 2+3 = 5 +\nStep 2: The answer is: 5 -", "task": "GSM8K"}

A + says that at least one of N completions from there reached the right answer (the paper's hard
estimate; N is 8 there), so a + may follow a -: each label is an estimate of its own and is kept
as it is. After the last step nothing is left to complete: its label says whether the final
answer is right. Both texts must be equal but for the markers: as many labels as markers.

"Math-Shepherd" (Wang et al. 2024), https://arxiv.org/abs/2312.08935, section 3.2.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from stages.params import Params
from stages.records.steps import RawSteps
from stages.sources import raw_rows
from stages.sources.quarantine import RejectedError

SOURCE = "math_shepherd"
MARKER = "ки"
FIRST = "Step 1:"
SIGNS = {"+": 1.0, "-": 0.0}


class Config(Params):
    """How the labels were made."""

    kind: Literal["math_shepherd"]
    """Names this format."""
    num_completions: int = Field(gt=0)
    """N, completions behind each label: 8 in the paper."""


def solutions(fields: Mapping[str, Any], config: Config, line: int) -> list[RawSteps]:
    """The one solution of a row.

    Raises:
        RejectedError: a column is missing, no step is marked, the question is not told from the
            first step, or the labels are not one for each marker.
    """
    text, labelled = raw_rows.verbatim(fields, "input"), raw_rows.verbatim(fields, "label")
    *marked, rest = text.split(MARKER)
    if not marked or rest.strip():
        raise RejectedError(
            f"no marker: 'input' should end with {MARKER!r} after its last step, found "
            f"{text[-40:]!r}"
        )
    labels = _labels(marked, labelled)
    question, found, first = marked[0].rpartition(FIRST)
    if not found or not question.strip():
        raise RejectedError(f"no question: nothing stands before {FIRST!r} in {text[:40]!r}")
    steps = [f"{FIRST}{first}".strip(), *(step.strip() for step in marked[1:])]
    if not all(steps):
        raise RejectedError(f"empty step: nothing stands before one of the {len(steps)} markers")
    return [
        RawSteps(
            id=None,
            line=line,
            question=question.strip(),
            steps=steps,
            labels=[*labels],
            num_completions=[config.num_completions] * len(steps),
            true_labels=None,
            correct=labels[-1] == SIGNS["+"],
            finished=True,
            source=SOURCE,
        )
    ]


def _labels(marked: list[str], labelled: str) -> list[float]:
    labels: list[float] = []
    place = 0
    for step in marked:
        sign = labelled[place + len(step) : place + len(step) + 1]
        if not labelled.startswith(step, place) or sign not in SIGNS:
            break
        labels.append(SIGNS[sign])
        place += len(step) + 1
    if len(labels) != len(marked) or labelled[place:].strip():
        raise RejectedError(
            f"markers and labels: expected 'label' to be 'input' with + or - for each of the "
            f"{len(marked)} markers, which it is up to {labelled[place : place + 40]!r}"
        )
    return labels
