"""What a search found and spent, part by part: as records, in files, and by problem again."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from stages.loops.search_tree import Search
from stages.loops.step import Step
from stages.records import lines
from stages.records.search_cost import SearchCost
from stages.records.search_solution import SearchSolution

KINDS = {"solutions": SearchSolution, "costs": SearchCost}
"""The files of a part, and of what their rows are."""


def rows(search: Search, decode: Callable[[Sequence[int]], str]) -> list[SearchSolution]:
    """The solutions of a search that has ended."""
    kept = set(map(id, search.kept))
    return [
        SearchSolution(
            id=search.prompt.id,
            index=index,
            tree=one.tree,
            completion=decode(one.ids),
            completion_ids=list(one.ids),
            step_scores=one.step_scores,
            score=one.score,
            kept=id(one) in kept,
            finish_reason=one.finish_reason,
        )
        for index, one in enumerate(search.solutions())
    ]


def by_problem(
    steps: Iterable[Step],
) -> tuple[dict[str, list[SearchSolution]], dict[str, SearchCost]]:
    """All parts by the problem's id: its solutions, and what they cost."""
    solutions: dict[str, list[SearchSolution]] = {}
    costs: dict[str, SearchCost] = {}
    for row in (row for step in steps for row in step.rows):
        if isinstance(row, SearchCost):
            costs[row.id] = row
        else:
            solutions.setdefault(row.id, []).append(row)
    return solutions, costs


def part(index: int, solutions: Sequence[SearchSolution], costs: Sequence[SearchCost]) -> Step:
    """What was found and spent in one part, with its numbers."""
    metrics = {
        f"tokens/{name}": sum(getattr(cost, f"{name}_tokens") for cost in costs)
        for name in ("generated", "dropped", "read", "scored")
    } | {"search/depth": sum(cost.depth for cost in costs) / len(costs)}
    return Step(index=index, metrics=metrics, rows=[*solutions, *costs])


def write(path: Path, step: Step) -> None:
    """A part to a folder."""
    for name, kind in KINDS.items():
        lines.write(path / f"{name}.jsonl", (row for row in step.rows if isinstance(row, kind)))


def read(index: int, path: Path) -> Step:
    """A part that `write` wrote."""
    solutions, costs = (list(lines.read(path / f"{name}.jsonl", KINDS[name])) for name in KINDS)
    return part(index, solutions, costs)
