"""What every policy of every seed did on every test problem, as tables of seeds and problems."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from stages.records import lines
from stages.records.results import ProblemResult
from stages.report import estimates

Table = Float[np.ndarray, "seed problem"]


@dataclass(frozen=True, kw_only=True)
class Results:
    """Of all policies, the same seeds and the same problems."""

    seeds: list[int]
    ids: list[str]
    """Of the problems."""
    num_samples: int
    ns: list[int]
    """The numbers of samples for which votes and best-of-n are estimated, rising."""
    tables: dict[str, dict[str, Table]]
    """Policy -> estimate (`estimates.columns`) -> its table; the baseline is the first."""
    halves: dict[str, tuple[Table, Table]]
    """Policy -> mean accuracy of the samples of even, and of odd number."""
    metrics: dict[str, dict[int, dict[str, Any]]]
    """Policy -> seed -> its metrics.json."""

    @property
    def largest(self) -> int:
        """The largest n."""
        return self.ns[-1]

    def methods(self, policy: str, way: str) -> list[str]:
        """What completions of a policy are chosen by (`best_of`) or weighed by (`weighted`)."""
        ends = [name.split("/") for name in self.tables[policy]]
        return list(dict.fromkeys(parts[1] for parts in ends if parts[0] == way))


def read(folder: Path, policies: Sequence[str], seeds: Sequence[int], baseline: str) -> Results:
    """The results of the policies, as `evaluate` wrote them below `folder`.

    Raises:
        ValueError: they are of different problems.
    """
    ordered = [baseline, *(name for name in policies if name != baseline)]
    rows = {
        policy: [
            list(lines.read(folder / policy / str(seed) / "per_problem.jsonl", ProblemResult))
            for seed in seeds
        ]
        for policy in ordered
    }
    first = rows[baseline][0]
    ids = [row.id for row in first]
    for policy, of_seeds in rows.items():
        for seed, one in zip(seeds, of_seeds, strict=True):
            if [row.id for row in one] != ids:
                raise ValueError(
                    f"expected results on the same problems in the same order, found {len(ids)} "
                    f"of {baseline} and {len(one)} of {policy}, seed {seed}, that differ. They "
                    f"come from different runs: rerun `dvc repro`."
                )
    return Results(
        seeds=list(seeds),
        ids=ids,
        num_samples=first[0].num_samples,
        ns=sorted(int(n) for n in first[0].accuracy_at[estimates.MAJORITY]),
        tables={policy: _tables(of_seeds) for policy, of_seeds in rows.items()},
        halves={policy: _halves(of_seeds) for policy, of_seeds in rows.items()},
        metrics={
            policy: {
                seed: read_json(folder / policy / str(seed) / "metrics.json") for seed in seeds
            }
            for policy in ordered
        },
    )


def read_json(path: Path) -> dict[str, Any]:
    """The content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def _tables(of_seeds: Sequence[Sequence[ProblemResult]]) -> dict[str, Table]:
    found: list[Mapping[str, Float[np.ndarray, " problem"]]] = [
        estimates.columns(rows) for rows in of_seeds
    ]
    return {name: np.stack([columns[name] for columns in found]) for name in found[0]}


def _halves(of_seeds: Sequence[Sequence[ProblemResult]]) -> tuple[Table, Table]:
    even = np.array([[row.even_correct for row in rows] for rows in of_seeds], dtype=np.float64)
    right = np.array([[row.num_correct for row in rows] for rows in of_seeds], dtype=np.float64)
    num_samples = of_seeds[0][0].num_samples
    num_even = (num_samples + 1) // 2
    return even / num_even, (right - even) / max(1, num_samples - num_even)
