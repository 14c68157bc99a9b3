"""What each row cost: tokens generated and trained on, and floating-point operations.

All of it is counted, not measured, so it is the same on every machine. Seconds and memory stand in
the run records, data/runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stages.algorithms import flops
from stages.algorithms.flops import Matrices, Passes
from stages.report.results import read_json
from stages.rows import BASE

Plan = Mapping[str, Mapping[str, Mapping[str, str]]]
"""data/plan.json: table -> name -> the words of the row."""
Cost = dict[str, int | float]
"""`generated_tokens`, `trained_tokens` and `flops` of one seed, the mean over seeds."""
PLACES = {
    "policies": "policies/{}/training",
    "pools": "pools/{}",
    "pairs": "pairs/{}",
    "steps": "steps/{}",
    "rewards": "rewards/{}",
    "samples": "samples/{}",
    "evaluations": "evaluations/{}",
}
"""Where the folder of each seed with its metrics.json is, below data/."""
KINDS = ("generated_tokens", "trained_tokens", "flops")


def of_rows(data: Path, plan: Plan, seeds: Sequence[int]) -> dict[str, Cost]:
    """`policies/dpo`, `samples/dpo`, ... -> its cost."""
    tables = {table: list(rows) for table, rows in plan.items()}
    tables |= {"samples": tables["policies"], "evaluations": tables["policies"]}
    return {
        f"{table}/{name}": of_row(data / place.format(name), seeds)
        for table, place in PLACES.items()
        for name in tables[table]
    }


def of_row(folder: Path, seeds: Sequence[int]) -> Cost:
    """The mean over seeds."""
    paths = [folder / str(seed) / "metrics.json" for seed in seeds]
    found = [of_metrics(read_json(path)) for path in paths if path.exists()]
    return {kind: float(np.mean([one[kind] for one in found])) if found else 0.0 for kind in KINDS}


def of_metrics(metrics: Mapping[str, Any]) -> Cost:
    """What a stage's metrics.json tells of its cost."""

    def count(kind: str) -> int:
        # What labels training and held-out problems tells of each.
        parts = [metrics.get(side, {}).get(kind, 0) for side in ("train", "heldout")]
        return metrics.get(kind, sum(parts))

    return {
        "generated_tokens": count("generated_tokens"),
        "trained_tokens": count("trained_tokens"),
        "flops": sum(operations(done) for done in metrics.get("work", {}).values()),
    }


def operations(done: Mapping[str, Any]) -> int:
    """All passes of a model: 2 operations a number of a matrix forward, 6 where it is trained."""
    names = ("body", "output", "trained_body", "trained_output")
    matrices = Matrices(**{name: done[name] for name in names})
    passes = {
        kind: Passes(**done.get(kind, {"positions": 0, "outputs": 0}))
        for kind in ("sampled", "read", "trained")
    }
    forward = flops.read(matrices, passes["sampled"]) + flops.read(matrices, passes["read"])
    return forward + flops.trained(matrices, passes["trained"])


def of_policies(plan: Plan, baseline: str, costs: Mapping[str, Cost]) -> dict[str, dict[str, Any]]:
    """Policy -> `rows` that were made for it, and their cost together.

    Whatever the baseline needed is left out of the others: what is compared is what a method costs
    beyond it. A row that several policies need counts in full for each.
    """
    shared = set(ancestors(plan, f"policies/{baseline}"))
    found: dict[str, dict[str, Any]] = {}
    for policy in plan["policies"]:
        rows = list(ancestors(plan, f"policies/{policy}"))
        if policy != baseline:
            rows = [row for row in rows if row not in shared]
        together = {kind: sum(costs[row][kind] for row in rows) for kind in KINDS}
        found[policy] = {"rows": rows} | together
    return found


def ancestors(plan: Plan, row: str) -> Iterator[str]:
    """The rows that make what a row reads, before it, each once; then the row."""
    seen: dict[str, None] = {}

    def visit(place: str) -> None:
        table, _, name = place.partition("/")
        if place in seen or name == BASE or name not in plan.get(table, {}):
            return
        words = plan[table][name]
        visit(f"policies/{words.get('from')}")
        visit(words.get("on", ""))
        seen[place] = None

    visit(row)
    yield from seen
