"""Search for solutions step by step, guided by a process reward model.

At each depth, every solution in the beam is continued by several samples of one step; the process
model scores the results, and the best of each tree are the beam of the next depth
(`selection/step_scores`, with the sources). A finished solution is not continued but stays in the
competition: it is in the beam while it is among the best, and returns if better ones turn out
worse later. Departure from both sources, which remove it from the beam, and so search on after a
success. A search ends when the beam has only finished solutions, or at `max_steps`.

Steps are split as by `rewards/step_solutions`, so their scores are those in the whole solution.
Sampling stops after any token with the separator in its text.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from pydantic import Field

from stages.algorithms.selection.step_scores import KINDS, Kind, select_beam
from stages.config import Params
from stages.loops.work import Step
from stages.models.process_head import ProcessScorer, TokenizedSolution
from stages.records.problems import Prompt
from stages.sampler import Sampler
from stages.seeding import derive_seed
from studies.search_results import Finish, SearchCost, SearchSolution

CHUNK = 128
"""Problems searched side by side: they fill an engine's batches."""
DECIMALS = 5
"""Decimals of a score: smaller differences are rounding, and would break ties at random."""


class SearchConfig(Params):
    """Beam search, diverse verifier tree search, or one in between."""

    trees: int = Field(ge=1)
    """Number of independent trees per problem; 1: beam search."""
    keep: int = Field(ge=1)
    """Beam size of each tree; 1, with several trees: diverse verifier tree search."""
    expand: int = Field(ge=1)
    """Samples of the next step per solution in the beam."""
    max_steps: int = Field(ge=1)
    """Depth at which the search ends, also with unfinished solutions."""
    max_new_tokens: int = Field(gt=0)
    """Length limit of a step; a longer one is truncated, and its solution ends there."""
    temperature: float = Field(gt=0)
    aggregate: Kind
    """Aggregation of step scores to a solution's score: `selection/step_scores`."""


@dataclass(kw_only=True, slots=True, eq=False)
class Candidate:
    """Partial or finished solution; two samples of the same tokens are two candidates."""

    tree: int
    ids: tuple[int, ...]
    """Tokens of the solution so far."""
    finish_reason: Finish
    step_scores: list[float] = field(default_factory=list)
    score: float = 0.0


@dataclass(kw_only=True, slots=True)
class Search:
    """State of the search on one problem."""

    prompt: Prompt
    live: list[Candidate] = field(default_factory=list)
    """Unfinished candidates in the beam, to be continued at the next depth."""
    beam: list[Candidate] = field(default_factory=list)
    """Candidates in the beam, finished or not."""
    finished: list[Candidate] = field(default_factory=list)
    """Finished candidates, also outside the beam, in the order in which they were found."""
    depth: int = 0
    generated_tokens: int = 0
    read_tokens: int = 0
    scored_tokens: int = 0

    def request(self) -> list[tuple[Candidate | None, list[int]]]:
        """Candidates to continue with their tokens, which count as read; None: only the prompt."""
        parents = self.live if self.depth else [None]
        contexts = [
            (candidate, [*self.prompt.prompt_ids, *(candidate.ids if candidate else ())])
            for candidate in parents
        ]
        self.read_tokens += sum(len(ids) for _, ids in contexts)
        return contexts

    def choose(self, children: Sequence[Candidate], *, keep: int) -> None:
        """Select the next beam: the best of the children and of the finished candidates."""
        competing = [*self.finished, *children]
        chosen = select_beam(
            np.array([candidate.score for candidate in competing]),
            np.array([candidate.tree for candidate in competing]),
            keep=keep,
        )
        self.beam = [competing[i] for i in chosen]
        self.live = [candidate for candidate in self.beam if candidate.finish_reason == "step"]
        self.finished += [candidate for candidate in children if candidate.finish_reason != "step"]
        self.depth += 1

    def solutions(self) -> list[Candidate]:
        """Solutions, finished or live, the best first; of equal scores those in the beam first."""
        candidates = [*self.finished, *self.live]
        return sorted(
            candidates, key=lambda candidate: (-candidate.score, candidate not in self.beam)
        )

    def cost(self) -> SearchCost:
        """Cost so far."""
        return SearchCost(
            id=self.prompt.id,
            depth=self.depth,
            generated_tokens=self.generated_tokens,
            read_tokens=self.read_tokens,
            scored_tokens=self.scored_tokens,
        )

    def rows(self, decode: Callable[[Sequence[int]], str]) -> list[SearchSolution]:
        """Rows of the solutions after the search."""
        return [
            SearchSolution(
                id=self.prompt.id,
                index=index,
                tree=solution.tree,
                completion=decode(solution.ids),
                completion_ids=list(solution.ids),
                step_scores=solution.step_scores,
                score=solution.score,
                kept=solution in self.beam,
                finish_reason=solution.finish_reason,
            )
            for index, solution in enumerate(self.solutions())
        ]


def run_searches(
    sampler: Sampler,
    scorer: ProcessScorer,
    parts: Sequence[Sequence[Prompt]],
    config: SearchConfig,
    seed: int,
    *,
    break_after: frozenset[int],
) -> Iterator[Step]:
    """One step per part; its rows are the solutions, and after them the cost of each problem.

    A problem's search depends on `seed` and its id, not on its part: each problem, depth and place
    in the beam has a random stream. `break_after`: see `ProcessScorer.find_separator_tokens`.
    """
    for index, prompts in enumerate(parts):
        searches = [Search(prompt=prompt) for prompt in prompts]
        for _ in range(config.max_steps):
            if not (growing := [search for search in searches if search.live or not search.depth]):
                break
            children = grow_searches(sampler, growing, config, seed, break_after)
            score_candidates(scorer, growing, children, config)
            for search, candidates in zip(growing, children, strict=True):
                search.choose(candidates, keep=config.keep)
        costs = [search.cost() for search in searches]
        metrics = {
            f"tokens/{name}": sum(getattr(cost, f"{name}_tokens") for cost in costs)
            for name in ("generated", "read", "scored")
        } | {"search/depth": sum(cost.depth for cost in costs) / len(costs)}
        solutions = [row for search in searches for row in search.rows(scorer.decode)]
        yield Step(index=index, metrics=metrics, rows=[*solutions, *costs])


def grow_searches(
    sampler: Sampler,
    searches: Sequence[Search],
    config: SearchConfig,
    seed: int,
    break_after: frozenset[int],
) -> list[list[Candidate]]:
    """Samples that continue each search, unscored.

    At the start the prompt is prefilled once, and its samples are divided among the trees.
    """
    requests = [(search, place) for search in searches for place in enumerate(search.request())]
    begins = not searches[0].depth
    samples = sampler.sample(
        [ids for _, (_, (_, ids)) in requests],
        [
            derive_seed(seed, "search", search.prompt.id, search.depth, place)
            for search, (place, _) in requests
        ],
        num_samples=config.expand * (config.trees * config.keep if begins else 1),
        temperature=config.temperature,
        max_new_tokens=config.max_new_tokens,
        break_after=break_after,
    )
    children: dict[str, list[Candidate]] = {search.prompt.id: [] for search in searches}
    for (search, (_, (parent, _))), pieces in zip(requests, samples, strict=True):
        search.generated_tokens += sum(len(sample.token_ids) for sample in pieces)
        children[search.prompt.id] += [
            Candidate(
                tree=parent.tree if parent else number // (config.keep * config.expand),
                ids=(*(parent.ids if parent else ()), *sample.token_ids),
                finish_reason=sample.finish_reason,
            )
            for number, sample in enumerate(pieces)
        ]
    return list(children.values())


def score_candidates(
    scorer: ProcessScorer,
    searches: Sequence[Search],
    children: Sequence[Sequence[Candidate]],
    config: SearchConfig,
) -> None:
    """Set the scores of the samples and their steps; equal samples of a problem are scored once."""
    different = [
        {
            ids: TokenizedSolution(prompt_ids=search.prompt.prompt_ids, steps=scorer.split(ids))
            for ids in dict.fromkeys(child.ids for child in candidates)
        }
        for search, candidates in zip(searches, children, strict=True)
    ]
    scores = iter(scorer([ids for solutions in different for ids in solutions.values()]))
    for search, candidates, solutions in zip(searches, children, different, strict=True):
        search.scored_tokens += scorer.num_positions(list(solutions.values()))
        rounded = {ids: [round(score, DECIMALS) for score in next(scores)] for ids in solutions}
        for child in candidates:
            child.step_scores = rounded[child.ids]
            child.score = round(KINDS[config.aggregate](child.step_scores), DECIMALS)
