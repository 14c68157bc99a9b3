"""Metrics of retrained rows: accuracies, paired differences, spread over seeds."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from stages.records.metrics import round_metric
from stages.report import comparison
from stages.report.comparison import POWER
from stages.report.estimates import Results, Table

RUN = "run"
"""Variant of a row that is the run's."""
Cell = tuple[str, str]
"""`<table>/<row>` and variant."""
MEASURES = {"mean": "Mean accuracy", "greedy": "Greedy accuracy"}
Tables = dict[str, Table]
"""Tables `[seed, problem]` of a cell, by measure; for a reward only `mean`."""
Family = Mapping[str, tuple[Cell, Cell]]
"""Name of a difference -> the two cells, first minus second; adjusted together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedResult:
    """One row of `data/studies/retrain/<experiment>/rows/<seed>/<variant>/<row>.jsonl`."""

    id: str
    """Id of a test problem; for a reward `heldout`, all its held-out pairs."""
    accuracy: float
    """Share of the samples, or of the pairs, that are right."""
    greedy: float | None
    """1 if the greedy completion is right, else 0; None for a reward."""


def make_table(seeds: Sequence[Sequence[SeedResult]]) -> Tables:
    """Tables of a cell from its rows of each seed; a ValueError if the seeds' problems differ."""
    ids = [[row.id for row in rows] for rows in seeds]
    if any(seed_ids != ids[0] for seed_ids in ids):
        raise ValueError(
            "expected the same test problems for every seed, found others. They are made with "
            "`data_seed`: run the study again."
        )
    tables = {"mean": np.array([[row.accuracy for row in rows] for rows in seeds])}
    if all(row.greedy is not None for rows in seeds for row in rows):
        tables["greedy"] = np.array([[row.greedy for row in rows] for rows in seeds])
    return tables


def compare_cells(
    results: Mapping[Cell, Sequence[Sequence[SeedResult]]],
    seeds: Sequence[int],
    *,
    confidence: float,
    are_rivals: bool = False,
) -> dict[str, Any]:
    """The numbers of `data/studies/retrain/<experiment>/metrics.json`.

    Families of differences, each adjusted by Holm for each measure: for every row, its variants
    minus the run; for rivals (the first is the baseline), all pairs of the others, the larger
    accuracy first, and each minus the baseline. With fewer than `MIN_SEEDS` seeds nothing is
    tested.

    Returns:
        `accuracy`: row -> variant -> measure -> {value, low, high, seeds}. `spread`: row -> measure
        -> `measure_spread`, of rows with several variants. `differences`: family -> measure -> name
        -> {first, second, value, low, high, p, p_holm, significant, detectable}. Of a reward there
        is no result by problem: its accuracies have no bounds, and no differences. `ranking`: the
        rivals, if every two differ significantly; else None.
    """
    tables = {cell: make_table(rows) for cell, rows in results.items()}
    by_row, rivals = dict[str, dict[str, Tables]](), list[Cell]()
    for (row, variant), of_cell in tables.items():
        by_row.setdefault(row, {})[variant] = of_cell
    if are_rivals:
        baseline, *rivals = tables
        rivals.sort(key=lambda cell: -float(tables[cell]["mean"].mean()))
        pairs = itertools.combinations(rivals, 2)
        families: dict[str, Family] = {
            "pairs": {f"{a[0]} - {b[0]}": (a, b) for a, b in pairs},
            "gains": {f"{cell[0]} - {baseline[0]}": (cell, baseline) for cell in rivals},
        }
    else:
        families = {
            row: {
                f"{variant} - {RUN}": ((row, variant), (row, RUN))
                for variant in variants
                if variant != RUN
            }
            for row, variants in by_row.items()
        }
    differences = {
        name: {
            measure: compare_pairs(family, tables, measure, seeds, confidence)
            for measure in MEASURES
        }
        for name, family in families.items()
        if all(tables[cell]["mean"].shape[1] > 1 for pair in family.values() for cell in pair)
    }
    is_ranked = are_rivals and all(
        pair["significant"] for pair in differences["pairs"]["mean"].values()
    )
    return {
        "confidence": confidence,
        "power": POWER,
        "num_seeds": len(seeds),
        "num_problems": max(table["mean"].shape[1] for table in tables.values()),
        "accuracy": {
            row: {
                variant: {
                    measure: estimate_accuracy(table, seeds, confidence)
                    for measure, table in of_cell.items()
                }
                for variant, of_cell in variants.items()
            }
            for row, variants in by_row.items()
        },
        "spread": {
            row: {
                measure: measure_spread(
                    np.array([of_cell[measure].mean(axis=1) for of_cell in variants.values()])
                )
                for measure in next(iter(variants.values()))
            }
            for row, variants in by_row.items()
            if len(variants) > 1
        },
        "differences": differences,
        "ranking": [row for row, _ in rivals] if is_ranked else None,
    }


def estimate_accuracy(table: Table, seeds: Sequence[int], confidence: float) -> dict[str, Any]:
    """`{value, low, high, seeds}`; without bounds for a single problem."""
    if table.shape[1] > 1:
        results = _as_results(seeds, table, confidence)
        return comparison.estimate_intervals({"accuracy": table}, results)["accuracy"]
    of_seeds = {str(seed): round_metric(row[0]) for seed, row in zip(seeds, table, strict=True)}
    return {"value": round_metric(table.mean()), "low": None, "high": None, "seeds": of_seeds}


def compare_pairs(
    family: Family, tables: Mapping[Cell, Tables], measure: str, seeds: Sequence[int],
    confidence: float,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Each difference of a family, tested together."""
    values = {name: tables[a][measure] - tables[b][measure] for name, (a, b) in family.items()}
    table = next(iter(values.values()))
    tested = comparison.test_differences(values, _as_results(seeds, table, confidence))
    for name, difference in tested.items():
        (first, _), (second, _) = family[name]
        if first == second:
            first, second = (f"{row} ({variant})" for row, variant in family[name])
        difference.update(first=first, second=second)
    return tested


def measure_spread(table: Float[np.ndarray, "variant seed"]) -> dict[str, float | None]:
    """Standard deviation of accuracy between variants and between seeds.

    Between variants: the root of the mean over seeds of the variance (ddof 1) over a seed's
    variants; between seeds, with the two exchanged. None if there is only one variant or seed.
    """
    spread: dict[str, float | None] = {}
    for axis, name in enumerate(("between_variants", "between_seeds")):
        variance = table.var(axis=axis, ddof=1).mean() if table.shape[axis] > 1 else None
        spread[name] = None if variance is None else round_metric(variance**0.5)
    return spread


def _as_results(seeds: Sequence[int], table: Table, confidence: float) -> Results:
    """Results for `stages.report.comparison`."""
    ids = [str(place) for place in range(table.shape[1])]
    return Results(
        seeds=list(seeds), ids=ids, num_samples=1, ns=[], tables={}, halves={}, metrics={},
        confidence=confidence,
    )  # fmt: skip
