"""PRM800K: people's ratings of a model's steps and of alternative steps.

    {"question": {"problem": "..."}, "label": {"finish_reason": "solution", "steps": [
        {"completions": [{"text": "...", "rating": 1, "flagged": false}],
         "human_completion": null, "chosen_completion": 0}]}}

The path follows the chosen completion of each step, or else the one that the person wrote. If a
step has neither, the path ends with its first completion, the model's (as after an error). A step
without any completion ends it, too.

Labels. Rating 1 is right and -1 wrong. `neutral` decides rating 0: right in Lightman et al. and
Qwen, while TRL's converter silently makes it wrong. A step that was not rated (written by the
person) or was flagged has no label. Steps after the first wrong step of the path have none:
Lightman et al. learn only up to the first error.

Alternatives. A rated completion off the path becomes another solution, the path up to it and then
the completion, or is dropped. Its earlier steps are those of the path: `shared_steps` decides
whether their labels count again.

"Let's Verify Step by Step" (Lightman et al. 2023), https://arxiv.org/abs/2305.20050, sections
2.4 and 2.6; the meaning of the fields from the data set's own README.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from stages.config import Params
from stages.records.steps import RawSteps
from stages.sources import raw_rows
from stages.sources.quarantine import RejectedError

ANSWER = "# Answer"
"""Text in the last step of a complete solution."""
Step = tuple[str, float | None]
"""Its text and label."""


class Prm800kConfig(Params):
    """Rules from ratings to labels."""

    columns: ClassVar = ("question.problem", "label.steps", "label.finish_reason")
    kind: Literal["prm800k"]
    neutral: Literal["right", "wrong", "unlabelled"]
    alternatives: Literal["rows", "drop"]
    shared_steps: Literal["once", "repeat"]

    def solutions(self, fields: Mapping[str, Any], line: int, file: str = "") -> list[RawSteps]:
        """The path and its alternatives; those without any label are left out."""
        question = raw_rows.check_type(fields.get("question"), dict, "'question'")
        label = raw_rows.check_type(fields.get("label"), dict, "'label'")
        problem, finish = raw_rows.read_text(question, "problem"), label.get("finish_reason")
        if finish == "bad_problem":
            raise RejectedError("bad problem: 'finish_reason' says so")
        path: list[Step] = []
        solutions: list[list[Step]] = [path]
        for followed, alternatives in self._steps(label):
            is_wrong = any(value == 0.0 for _, value in path)
            if self.alternatives == "rows" and not is_wrong:
                repeat = self.shared_steps == "repeat"
                before = [(text, value if repeat else None) for text, value in path]
                solutions += [[*before, alternative] for alternative in alternatives]
            path.append((followed[0], None) if is_wrong else followed)
        rows = []
        for steps in solutions:
            texts, labels = [text for text, _ in steps], [value for _, value in steps]
            if any(value is not None for value in labels):
                finished = ANSWER in texts[-1]
                # Only the path is known to be accepted as a complete solution.
                accepted = steps is path and finished and finish == "solution"
                rows.append(RawSteps(
                    line=line, file=file, question=problem, steps=texts, labels=labels,
                    num_completions=[0] * len(steps), correct=True if accepted else None,
                    finished=finished, source=self.kind,
                ))  # fmt: skip
        if not rows:
            raise RejectedError("no labels: none of its steps is rated")
        return rows

    def _steps(self, label: Mapping[str, Any]) -> Iterator[tuple[Step, list[Step]]]:
        """For each step of the path, the step and its alternatives."""
        ended = False
        for number, step in enumerate(raw_rows.read_list(label, "steps", "no steps")):
            entry = raw_rows.check_type(step, dict, f"step {number}")
            completions = entry.get("completions") or []
            offered = raw_rows.check_type(completions, list, f"what step {number} offers")
            seen = [self._rated(completion, number) for completion in offered]
            chosen, written = entry.get("chosen_completion"), entry.get("human_completion")
            if chosen is None and written is not None:
                seen.insert(0, self._rated(written, number))
            if chosen is not None and type(chosen) is not int:
                raise RejectedError(f"wrong type: step {number} chose {chosen!r:.60}, no number")
            if chosen is not None and not 0 <= chosen < len(seen):
                raise RejectedError(f"no completion: step {number} chose {chosen} of {len(seen)}")
            if seen and ended:
                raise RejectedError(f"no path: step {number} follows one where nothing was chosen")
            if seen:
                yield seen.pop(chosen or 0), seen
            ended = ended or chosen is written is None

    def _rated(self, completion: Any, number: int) -> Step:
        fields = raw_rows.check_type(completion, dict, f"a completion of step {number}")
        rating = fields.get("rating")
        neutral = {"right": 1.0, "wrong": 0.0, "unlabelled": None}[self.neutral]
        labels = {1: 1.0, 0: neutral, -1: 0.0, None: None}
        if isinstance(rating, bool) or not isinstance(rating, int | None) or rating not in labels:
            raise RejectedError(f"no rating: step {number} has a completion rated {rating!r:.60}")
        return raw_rows.read_text(fields, "text"), None if fields.get("flagged") else labels[rating]
