"""Search for solutions step by step, guided by a process reward model.

At each depth every solution that has a place is gone on with by several samples of one step;
the process model scores what came of it, and the best of each tree have the places of the next
depth (`selection/step_scores`, with the sources). A solution that has finished is not gone on
with but stays in the competition: it holds a place while it is among the best, and gets it back
when those before it turn out worse. Both sources take it out of the beam instead, and so go on
where they have already succeeded. A search ends when finished solutions hold every place, or at
`max_steps`.

A step is what `rewards/step_solutions` makes of the tokens, so its scores are those that the whole
solution would have. Sampling is broken off after any token with the separator in its text.
"""

from collections.abc import Iterator, Sequence

from pydantic import Field

from stages.algorithms.selection.step_scores import KINDS, Kind
from stages.loops.work import Step
from stages.models.process_head import ProcessScorer, Solution
from stages.params import Params
from stages.records.problems import Prompt
from stages.sampler import Sample, Sampler
from stages.seeding import derive
from stages.studies.search_tree import Candidate, Search

# Problems searched side by side: enough to fill an engine's batches.
CHUNK = 128

Parts = Sequence[Sequence[Prompt]]
"""Problems, part by part."""
Drawn = tuple[Candidate | None, int, Sample]
"""What a sample goes on with, its tree, and the sample."""


class SearchConfig(Params):
    """Beam search, diverse verifier tree search, or between."""

    trees: int = Field(ge=1)
    """Searches of a problem that do not compete with each other; 1: beam search."""
    keep: int = Field(ge=1)
    """Places in each tree; 1, and several trees: diverse verifier tree search."""
    distinct: bool
    """Whether equal solutions of a tree have one place together."""
    expand: int = Field(ge=1)
    """Samples of the next step for each place."""
    max_steps: int = Field(ge=1)
    """Depth at which a solution is taken as it is."""
    max_new_tokens: int = Field(gt=0)
    """Longest step; a longer one is cut, and its solution ends there."""
    temperature: float = Field(gt=0)
    aggregate: Kind
    """How the scores of its steps become a solution's, see `selection/step_scores`."""
    decimals: int = Field(ge=3, le=9)
    """Digits kept of a score: those below are rounding, and would break ties at random."""


def chunks(prompts: Sequence[Prompt]) -> Parts:
    """The problems, as many as are searched side by side."""
    return [prompts[start : start + CHUNK] for start in range(0, len(prompts), CHUNK)]


def longest(parts: Parts, config: SearchConfig) -> int:
    """Tokens of the longest prompt and the longest solution."""
    prompt = max(len(one.prompt_ids) for prompts in parts for one in prompts)
    return prompt + config.max_steps * config.max_new_tokens


def run(
    sampler: Sampler,
    scorer: ProcessScorer,
    parts: Parts,
    config: SearchConfig,
    seed: int,
    *,
    break_after: frozenset[int],
) -> Iterator[Step]:
    """The solutions of each part, and after them what each problem cost, as the rows of a step.

    A problem's search depends on `seed` and its id, not on the part it is in: each problem, depth
    and place has a random stream. `break_after`: see `ProcessScorer.step_ends`.
    """
    for index, prompts in enumerate(parts):
        searches = [Search(prompt=prompt) for prompt in prompts]
        for _ in range(config.max_steps):
            growing = [one for one in searches if one.live or not one.depth]
            if not growing:
                break
            drawn = grow(sampler, growing, config, seed, break_after)
            children = score(scorer, growing, drawn, config)
            for search, own in zip(growing, children, strict=True):
                search.choose(own, keep=config.keep, distinct=config.distinct)
        costs = [one.cost() for one in searches]
        metrics = {
            f"tokens/{name}": sum(getattr(cost, f"{name}_tokens") for cost in costs)
            for name in ("generated", "dropped", "read", "scored")
        } | {"search/depth": sum(cost.depth for cost in costs) / len(costs)}
        solutions = [row for one in searches for row in one.rows(scorer.decode)]
        yield Step(index=index, metrics=metrics, rows=[*solutions, *costs])


def grow(
    sampler: Sampler,
    searches: Sequence[Search],
    config: SearchConfig,
    seed: int,
    break_after: frozenset[int],
) -> list[list[Drawn]]:
    """Of each search, the samples that go on with it.

    All trees begin with one reading of the prompt and share its samples out.
    """
    requests = [(one, place) for one in searches for place in enumerate(one.request())]
    begins = not searches[0].depth
    found = sampler.sample(
        [ids for _, (_, (_, ids)) in requests],
        [derive(seed, "search", one.prompt.id, one.depth, place) for one, (place, _) in requests],
        num_samples=config.expand * (config.trees * config.keep if begins else 1),
        temperature=config.temperature,
        max_new_tokens=config.max_new_tokens,
        break_after=break_after,
    )
    drawn: dict[str, list[Drawn]] = {search.prompt.id: [] for search in searches}
    for (search, (_, (parent, _))), samples in zip(requests, found, strict=True):
        for number, sample in enumerate(samples):
            tree = number // (config.keep * config.expand) if parent is None else parent.tree
            drawn[search.prompt.id].append((parent, tree, sample))
    return list(drawn.values())


def score(
    scorer: ProcessScorer,
    searches: Sequence[Search],
    drawn: Sequence[Sequence[Drawn]],
    config: SearchConfig,
) -> list[list[Candidate]]:
    """The samples with the scores of their steps; equal ones of a problem are read once."""
    whole = [
        [(*(parent.ids if parent else ()), *sample.token_ids) for parent, _, sample in own]
        for own in drawn
    ]
    keys = list(dict.fromkeys((number, ids) for number, own in enumerate(whole) for ids in own))
    solutions = [
        Solution(prompt_ids=searches[number].prompt.prompt_ids, steps=scorer.split(ids))
        for number, ids in keys
    ]
    of_key = dict(zip(keys, zip(solutions, scorer(solutions), strict=True), strict=True))
    children: list[list[Candidate]] = []
    for number, search in enumerate(searches):
        own = [of_key[number, ids][0] for ids in dict.fromkeys(whole[number])]
        search.scored_tokens += scorer.num_positions(own)
        children.append([])
        for (parent, tree, sample), ids in zip(drawn[number], whole[number], strict=True):
            solution, scores = of_key[number, ids]
            step_scores = [round(one, config.decimals) for one in scores]
            child = Candidate(
                tree=tree,
                parent=parent,
                piece=sample.token_ids,
                ids=ids,
                finish_reason=sample.finish_reason,
                steps=[list(step) for step in solution.steps],
                step_scores=step_scores,
                score=round(KINDS[config.aggregate](step_scores), config.decimals),
            )
            children[number].append(child)
    return children
