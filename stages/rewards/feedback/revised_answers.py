"""What is learned from answers and their revisions: demonstrations and preferences.

Bai et al. 2022 (Constitutional AI), https://arxiv.org/abs/2212.08073: section 3 fine-tunes on the
revisions. Departures: on those of the last round only; and pairs that prefer the last revision
to the first answer, which the paper leaves to a judge. Such a pair's label is the
constitution's claim, not known to be right.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stages.records.pools import Completion
from stages.records.preferences import Preference, Revision
from stages.records.problems import Demonstration, Prompt
from stages.rewards.preference_pairs import distinct

SOURCE = "constitution"

Outcome = Literal["pair", "unchanged", "empty", "cut", "too_long"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What is to be revised."""

    prompt: Prompt
    completion: Completion


@dataclass(frozen=True, kw_only=True, slots=True)
class Revised:
    """An answer with its revisions."""

    prompt: Prompt
    original: Completion
    revisions: list[Revision]
    """Of its rounds, in order."""
    num_rounds: int
    """That it was to have; with fewer revisions, a request grew too long."""

    @property
    def outcome(self) -> Outcome:
        """What becomes of it: a pair, or why none."""
        if len(self.revisions) < self.num_rounds:
            return "too_long"
        last = self.revisions[-1]
        if "length" in (self.original.finish_reason, last.revision_finish):
            return "cut"
        if not last.revision.strip():
            return "empty"
        return "unchanged" if last.revision == self.original.completion else "pair"

    def preference(self) -> Preference | None:
        """The last revision over the first answer, where they are two whole answers."""
        if self.outcome != "pair":
            return None
        last = self.revisions[-1]
        return Preference(
            id=self.prompt.id,
            prompt=self.prompt.prompt,
            prompt_ids=self.prompt.prompt_ids,
            chosen=last.revision,
            chosen_ids=last.revision_ids,
            rejected=self.original.completion,
            rejected_ids=self.original.completion_ids,
            probability=1.0,
            source=SOURCE,
        )

    def demonstration(self) -> Demonstration | None:
        """The problem answered by the last revision, unless that is empty, cut or missing."""
        if self.outcome in ("too_long", "empty") or self.revisions[-1].revision_finish == "length":
            return None
        return Demonstration(
            id=self.prompt.id,
            task=self.prompt.task,
            prompt=self.prompt.prompt,
            prompt_ids=self.prompt.prompt_ids,
            completion=self.revisions[-1].revision,
            completion_ids=self.revisions[-1].revision_ids,
        )


def choose(
    problems: Sequence[tuple[Prompt, list[Completion]]], max_per_problem: int
) -> list[Answer]:
    """At most so many different completions of each problem, in the order in which they were drawn.

    One of each problem is a fair sample of the policy; of several, those it says often are rarer
    than in its pool.
    """
    return [
        Answer(prompt, completion)
        for prompt, pool in problems
        for completion in sorted(distinct(pool), key=lambda row: row.index)[:max_per_problem]
    ]


def gather(answers: Sequence[Answer], rows: Sequence[Revision], num_rounds: int) -> list[Revised]:
    """Each answer with its revisions, in the order of `answers`."""
    found: dict[tuple[str, int], list[Revision]] = {}
    for row in sorted(rows, key=lambda row: row.round):
        found.setdefault((row.id, row.index), []).append(row)
    return [
        Revised(
            prompt=answer.prompt,
            original=answer.completion,
            revisions=found.get((answer.completion.id, answer.completion.index), []),
            num_rounds=num_rounds,
        )
        for answer in answers
    ]
