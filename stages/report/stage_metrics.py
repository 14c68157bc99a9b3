"""What stages measured of their own rows: how good labels and rewards are, and what each row cost.

Quality is on held-out problems. Costs, tokens and floating-point operations, are counted, not
measured, so they are the same on every machine; seconds and memory stand in data/runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np

from stages.algorithms import flops
from stages.algorithms.flops import Matrices, Passes
from stages.report.estimates import read_json, rounded
from stages.rows import BASE

Plan = Mapping[str, Mapping[str, Mapping[str, str]]]
"""data/plan.json: table -> name -> the words of the row."""
Kind = Literal["count", "percent", "number"]
MEASURES: dict[str, dict[str, tuple[Kind, list[str]]]] = {
    "pairs": {
        "pairs": ("count", ["train/pairs"]),
        "held out": ("count", ["heldout/pairs"]),
        "agree with the answer checker": ("percent", ["train/agreement/averaged"]),
        "same verdict in both orders": ("percent", ["train/swap_consistency"]),
        "the first is preferred": ("percent", ["train/first_position_rate"]),
        "the longer is preferred": ("percent", ["train/longer_wins_rate"]),
    },
    "steps": {
        "solutions": ("count", ["train/solutions"]),
        "steps": ("count", ["train/steps"]),
        "labelled right": ("percent", ["train/labelled_right"]),
        "truly right": ("percent", ["train/truly_right"]),
        "right answers with a wrong step": ("percent", ["train/right_answers_with_a_wrong_step"]),
    },
    "rewards": {
        "learned from": ("count", ["pairs", "completions", "solutions"]),
        "accuracy": ("percent", ["heldout/accuracy", "heldout/labels/balanced_accuracy"]),
        "at equal length": ("percent", ["heldout/length_matched_accuracy"]),
        "AUC in a problem": ("number", ["heldout/auc", "heldout/labels/auroc_within_problem"]),
        "negative log-likelihood": (
            "number",
            ["heldout/negative_log_likelihood", "heldout/labels/negative_log_likelihood"],
        ),
        "calibration error": ("number", ["heldout/expected_calibration_error"]),
    },
}
"""Table -> measure -> how it is written, and where it stands in a metrics.json: the first that is
there. Of process models accuracy is over steps, the mean of that on right and on wrong ones."""
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
COSTS = ("generated_tokens", "trained_tokens", "flops")
Cost = dict[str, int | float]
"""`COSTS` of one seed, the mean over seeds."""


def quality(data: Path, plan: Plan, seeds: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Table -> row -> measure -> `{value, seeds}`, what is there; rules have nothing."""
    found: dict[str, dict[str, Any]] = {}
    for table, measures in MEASURES.items():
        for name in plan[table]:
            metrics = _read(data / table / name, seeds)
            if len(metrics) < len(seeds):
                continue
            row: dict[str, Any] = {}
            for label, (_, places) in measures.items():
                values = {str(seed): number(one, places) for seed, one in metrics.items()}
                known = [value for value in values.values() if value is not None]
                if len(known) == len(values):
                    row[label] = {"value": rounded(fmean(known)), "seeds": values}
            found.setdefault(table, {})[name] = row
    return found


def number(metrics: Mapping[str, Any], places: Sequence[str]) -> float | None:
    """The first number there is at one of the places, with or without an interval."""
    for place in places:
        one: Any = metrics
        for key in place.split("/"):
            one = one.get(key) if isinstance(one, Mapping) else None
        one = one.get("value") if isinstance(one, Mapping) else one
        if one is not None:
            return float(one)
    return None


def _read(folder: Path, seeds: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The metrics.json of each seed that has one."""
    paths = {seed: folder / str(seed) / "metrics.json" for seed in seeds}
    return {seed: read_json(path) for seed, path in paths.items() if path.exists()}


def costs_of_rows(data: Path, plan: Plan, seeds: Sequence[int]) -> dict[str, Cost]:
    """`policies/dpo`, `samples/dpo`, ... -> its cost."""
    tables = {**plan, "samples": plan["policies"], "evaluations": plan["policies"]}
    return {
        f"{table}/{name}": cost_of_row(data / place.format(name), seeds)
        for table, place in PLACES.items()
        for name in tables[table]
    }


def cost_of_row(folder: Path, seeds: Sequence[int]) -> Cost:
    """The mean over seeds; 0 where nothing was counted."""
    found = [cost(one) for one in _read(folder, seeds).values()]
    return {kind: float(np.mean([one[kind] for one in found])) if found else 0.0 for kind in COSTS}


def cost(metrics: Mapping[str, Any]) -> Cost:
    """What a stage's metrics.json tells of its cost."""
    # What labels training and held-out problems tells its tokens for each.
    sides = [metrics.get(side, {}) for side in ("train", "heldout")]
    tokens = {
        kind: metrics.get(kind, sum(side.get(kind, 0) for side in sides)) for kind in COSTS[:2]
    }
    return tokens | {"flops": sum(operations(done) for done in metrics.get("work", {}).values())}


def operations(done: Mapping[str, Any]) -> int:
    """All passes of a model: 2 operations a number of a matrix forward, 6 where it is trained."""
    names = ("body", "output", "trained_body", "trained_output")
    matrices = Matrices(**{name: done[name] for name in names})
    sampled, read, trained = (
        Passes(**done.get(kind, {"positions": 0, "outputs": 0}))
        for kind in ("sampled", "read", "trained")
    )
    forward = flops.read(matrices, sampled) + flops.read(matrices, read)
    return forward + flops.trained(matrices, trained)


def costs_of_policies(
    plan: Plan, baseline: str, costs: Mapping[str, Cost]
) -> dict[str, dict[str, Any]]:
    """Policy -> `rows` that were made for it, and their cost together.

    Whatever the baseline needed is left out of the others: what is compared is what a method costs
    beyond it. A row that several policies need counts in full for each.
    """
    shared = set(ancestors(plan, f"policies/{baseline}"))
    found: dict[str, dict[str, Any]] = {}
    for policy in plan["policies"]:
        needed = ancestors(plan, f"policies/{policy}")
        rows = [row for row in needed if policy == baseline or row not in shared]
        together = {kind: sum(costs[row][kind] for row in rows) for kind in COSTS}
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
