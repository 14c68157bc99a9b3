"""PRM800K: people's ratings of a model's steps, with the alternatives that they saw.

    {"question": {"problem": "..."}, "label": {"finish_reason": "solution", "steps": [
        {"completions": [{"text": "...", "rating": 1, "flagged": false}],
         "human_completion": null, "chosen_completion": 0}]}}

The path. Of each step the chosen completion is followed; where none was chosen, the one that the
person wrote; where there is neither, the path ends with the first completion, which is the
model's own (so it does where an error was found). A step without any completion ends it too.

Labels. Rating 1 is right and -1 wrong. Rating 0, neutral, is what `neutral` says: right in
Lightman et al. and Qwen, while TRL's converter turns it into wrong without a word. A step that
was not rated (a person's own) or was flagged has no label. After the first wrong step of the
path nothing is labelled: Lightman et al. learn to the first error only.

Alternatives. A rated completion that was not followed is a solution of its own, the path up to
it with it at the end, or is dropped. Its earlier steps are those of the path: `shared_steps`
says whether their labels count again.

"Let's Verify Step by Step" (Lightman et al. 2023), https://arxiv.org/abs/2305.20050, sections
2.4 and 2.6; the meaning of the fields from the data set's own README.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from stages.params import Params
from stages.records.steps import RawSteps
from stages.sources import raw_rows
from stages.sources.quarantine import RejectedError

SOURCE = "prm800k"
ANSWER = "# Answer"
"""What the last step of a whole solution holds."""
Step = tuple[str, float | None]
"""Its text and label."""


class Config(Params):
    """How ratings become labels."""

    kind: Literal["prm800k"]
    """Names this format."""
    neutral: Literal["right", "wrong", "unlabelled"]
    """What a rating of 0 counts as."""
    alternatives: Literal["rows", "drop"]
    """Whether completions that were not followed become solutions of their own."""
    shared_steps: Literal["once", "repeat"]
    """once: the steps that an alternative shares with the path are labelled in the path alone."""


def solutions(fields: Mapping[str, Any], config: Config, line: int) -> list[RawSteps]:
    """The path and its alternatives; those without any label are left out."""
    question, label = _object(fields, "question"), _object(fields, "label")
    problem = raw_rows.text(question, "problem")
    if label.get("finish_reason") == "bad_problem":
        raise RejectedError("bad problem: 'finish_reason' says so")
    path: list[Step] = []
    found: list[list[Step]] = []
    for taken, others in _steps(label, config):
        is_wrong = any(value == 0.0 for _, value in path)
        if config.alternatives == "rows" and not is_wrong:
            before = path if config.shared_steps == "repeat" else [(text, None) for text, _ in path]
            found += [[*before, other] for other in others]
        path.append((taken[0], None) if is_wrong else taken)
    labelled = [steps for steps in [path, *found] if any(value is not None for _, value in steps)]
    if not labelled:
        raise RejectedError("no labels: none of its steps is rated")
    rows = [_solution(problem, steps, line) for steps in labelled]
    # Of the path alone is it known that it was accepted as a whole.
    if labelled[0] is path and rows[0].finished and label.get("finish_reason") == "solution":
        rows[0] = replace(rows[0], correct=True)
    return rows


def _solution(problem: str, steps: list[Step], line: int) -> RawSteps:
    return RawSteps(
        id=None,
        line=line,
        question=problem,
        steps=[text for text, _ in steps],
        labels=[value for _, value in steps],
        num_completions=[0] * len(steps),
        true_labels=None,
        correct=None,
        finished=ANSWER in steps[-1][0],
        source=SOURCE,
    )


def _steps(label: Mapping[str, Any], config: Config) -> Iterator[tuple[Step, list[Step]]]:
    """Of each step what was followed, and what else the person saw."""
    entries = label.get("steps")
    if not isinstance(entries, list) or not entries:
        raise RejectedError(f"no steps: 'label.steps' should be a list and is {entries!r:.60}")
    ended = False
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise RejectedError(
                f"wrong type: step {number} should be an object and is {entry!r:.60}"
            )
        seen = [_rated(one, number, config) for one in entry.get("completions") or []]
        chosen, written = entry.get("chosen_completion"), entry.get("human_completion")
        is_chosen = chosen is not None
        if is_chosen and type(chosen) is not int:
            raise RejectedError(f"wrong type: step {number} chose {chosen!r:.60}, no number")
        if is_chosen and not 0 <= chosen < len(seen):
            raise RejectedError(
                f"no completion: step {number} has {len(seen)}, and {chosen} was chosen"
            )
        if not is_chosen and written is not None:
            seen.insert(0, _rated(written, number, config))
        if seen and ended:
            raise RejectedError(f"no path: step {number} follows one where nothing was chosen")
        if seen:
            taken = seen.pop(chosen if is_chosen else 0)
            yield taken, seen
        ended = ended or not (is_chosen or written is not None)


def _rated(completion: Any, number: int, config: Config) -> Step:
    if not isinstance(completion, dict):
        raise RejectedError(f"wrong type: a completion of step {number} is {completion!r:.60}")
    rating = completion.get("rating")
    neutral = {"right": 1.0, "wrong": 0.0, "unlabelled": None}[config.neutral]
    labels = {1: 1.0, 0: neutral, -1: 0.0, None: None}
    if isinstance(rating, bool) or not isinstance(rating, int | None) or rating not in labels:
        raise RejectedError(f"no rating: step {number} has a completion rated {rating!r:.60}")
    value = None if completion.get("flagged") else labels[rating]
    return raw_rows.text(completion, "text"), value


def _object(fields: Mapping[str, Any], column: str) -> Mapping[str, Any]:
    value = fields.get(column)
    if not isinstance(value, dict):
        raise RejectedError(f"wrong type: '{column}' should be an object and is {value!r:.60}")
    return value
