"""The search for solutions of one problem: its candidates, what they cost, and its rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from stages.algorithms.selection.step_scores import survivors
from stages.records.problems import Prompt


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchCost:
    """Tokens that went through a model; the two `_once` are what would have with a prefix cache."""

    id: str
    """The problem's id."""
    depth: int
    """Rounds of sampling until no solution was left to go on with."""
    generated_tokens: int
    """Sampled from the policy, those of dropped candidates included."""
    dropped_tokens: int
    """Of these, in no solution that the search ended with."""
    read_tokens: int
    """The policy's: prompt and solution so far, once for each place at each depth. So the engine
    on transformers reads them; vLLM's prefix cache, which it has on, reads most of them once."""
    read_tokens_once: int
    """The prompt."""
    scored_tokens: int
    """The process model's: prompt, solution so far and step tokens, for each different candidate
    at each depth; candidates of one problem share a reading of the prompt."""
    scored_tokens_once: int
    """The prompt, and each different step with its step token."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSolution:
    """One row of `data/studies/search/rows/<seed>/<preset>.jsonl`."""

    id: str
    """The problem's id."""
    index: int
    """From 0 among the problem's solutions, best first."""
    tree: int
    """The tree that it grew in."""
    completion: str
    """Decoded text without special tokens."""
    completion_ids: list[int]
    step_scores: list[float]
    """The process model's P(right so far) after each step."""
    score: float
    """What the search compared it by: its step scores made one."""
    kept: bool
    """Whether it is among the best of its tree; others finished too, and lost their place."""
    finish_reason: Literal["stop", "length", "step"]
    """`length`: a step was cut at its limit; `step`: the limit on steps was reached."""


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
        yield self
        if self.parent is not None:
            yield from self.parent.line()


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

    def request(self) -> list[tuple[Candidate | None, list[int]]]:
        """What is gone on with and its tokens, which count as read; None: the prompt alone."""
        parents = self.live if self.depth else [None]
        found = [(one, [*self.prompt.prompt_ids, *(one.ids if one else ())]) for one in parents]
        self.read_tokens += sum(len(ids) for _, ids in found)
        return found

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
        return sorted(
            [*self.finished, *self.live], key=lambda one: (-one.score, one not in self.kept)
        )

    def cost(self) -> SearchCost:
        """What was spent."""
        used = {one for solution in self.solutions() for one in solution.line()}
        steps = {
            tuple(map(tuple, one.steps[: place + 1])): len(step) + 1
            for one in self.seen
            for place, step in enumerate(one.steps)
        }
        generated, prompt = sum(len(one.piece) for one in self.seen), len(self.prompt.prompt_ids)
        return SearchCost(
            id=self.prompt.id,
            depth=self.depth,
            generated_tokens=generated,
            dropped_tokens=generated - sum(len(one.piece) for one in used),
            read_tokens=self.read_tokens,
            read_tokens_once=prompt,
            scored_tokens=self.scored_tokens,
            scored_tokens_once=prompt + sum(steps.values()),
        )

    def rows(self, decode: Callable[[Sequence[int]], str]) -> list[SearchSolution]:
        """The solutions, when the search has ended."""
        return [
            SearchSolution(
                id=self.prompt.id,
                index=index,
                tree=one.tree,
                completion=decode(one.ids),
                completion_ids=list(one.ids),
                step_scores=one.step_scores,
                score=one.score,
                kept=one in self.kept,
                finish_reason=one.finish_reason,
            )
            for index, one in enumerate(self.solutions())
        ]
