"""The state of the search for solutions of one problem: its candidates, and what they cost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from stages.algorithms.selection.survivors import survivors
from stages.records.prompt import Prompt
from stages.records.search_cost import SearchCost


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Candidate:
    """A solution so far; two of the same tokens are still two samples."""

    tree: int
    parent: "Candidate | None"
    piece: list[int]
    """The tokens that were sampled after the parent's."""
    ids: tuple[int, ...]
    """All tokens."""
    finish_reason: Literal["stop", "length", "step"]
    steps: list[list[int]]
    """`ids`, as the process model reads them."""
    step_scores: list[float]
    score: float

    def line(self) -> Iterator["Candidate"]:
        """Itself, its parent, and so on."""
        one: Candidate | None = self
        while one is not None:
            yield one
            one = one.parent


@dataclass(kw_only=True, slots=True)
class Search:
    """One problem, while it is searched."""

    prompt: Prompt
    live: list[Candidate] = field(default_factory=list)
    """Have a place and are gone on with at the next depth."""
    kept: list[Candidate] = field(default_factory=list)
    """Have a place, finished or not."""
    finished: list[Candidate] = field(default_factory=list)
    """In the order in which they were found."""
    depth: int = 0
    seen: list[Candidate] = field(default_factory=list)
    """Everything that was sampled."""
    read_tokens: int = 0
    scored_tokens: int = 0

    def request(self) -> list[Candidate | None]:
        """What is gone on with; None is the prompt alone, at the beginning."""
        return list(self.live) if self.depth else [None]

    def read(self) -> None:
        """Count what the policy reads to go on."""
        self.read_tokens += sum(
            len(self.prompt.prompt_ids) + (0 if one is None else len(one.ids))
            for one in self.request()
        )

    def choose(self, children: Sequence[Candidate], *, keep: int, distinct: bool) -> None:
        """Give the places away: to the best of the children and of what has finished before."""
        competing = [*self.finished, *children]
        first: dict[tuple[int, ...], int] = {}
        same = [first.setdefault(one.ids, number) for number, one in enumerate(competing)]
        chosen = survivors(
            np.array([one.score for one in competing]),
            np.array([one.tree for one in competing]),
            np.array(same if distinct else range(len(competing))),
            keep=keep,
        )
        self.kept = [competing[i] for i in chosen]
        self.live = [one for one in self.kept if one.finish_reason == "step"]
        self.finished += [one for one in children if one.finish_reason != "step"]
        self.seen += children
        self.depth += 1

    def solutions(self) -> list[Candidate]:
        """What finished, and what had a place when the limit on steps was reached; best first.

        Of equal scores the one that has a place, then the one that was found first.
        """
        found = [*self.finished, *self.live]
        kept = set(map(id, self.kept))
        return sorted(found, key=lambda one: (-one.score, id(one) not in kept))

    def cost(self) -> SearchCost:
        """What was spent."""
        used = {id(one): one for solution in self.solutions() for one in solution.line()}
        generated = sum(len(one.piece) for one in self.seen)
        steps = {
            tuple(map(tuple, one.steps[: place + 1])): len(step) + 1
            for one in self.seen
            for place, step in enumerate(one.steps)
        }
        return SearchCost(
            id=self.prompt.id,
            depth=self.depth,
            generated_tokens=generated,
            dropped_tokens=generated - sum(len(one.piece) for one in used.values()),
            read_tokens=self.read_tokens,
            read_tokens_once=len(self.prompt.prompt_ids),
            scored_tokens=self.scored_tokens,
            scored_tokens_once=len(self.prompt.prompt_ids) + sum(steps.values()),
        )
