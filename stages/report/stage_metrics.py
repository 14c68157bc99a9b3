"""Metrics that stages wrote for their rows: quality of labels and rewards, and costs.

Costs, tokens and floating-point operations, are counted, not measured, so they are the same on
every machine; seconds and memory are in data/runs.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stages.algorithms import flops
from stages.algorithms.flops import Matrices, Passes
from stages.records.metrics import mean_over_seeds, read_metrics
from stages.rows import BASE

Plan = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Content of data/plan.json: table -> name -> the words of the row."""
Kind = Literal["count", "percent", "number"]
MEASURES: dict[str, dict[str, tuple[Kind, list[str]]]] = {
    "pairs": {
        "pairs": ("count", ["train/pairs"]),
        "held out": ("count", ["heldout/pairs"]),
        "agree with the answer checker": ("percent", ["train/agreement/averaged"]),
        "same verdict in both orders": ("percent", ["train/swap_consistency"]),
        "the first is preferred": ("percent", ["train/first_position_rate"]),
        "the longer is preferred": (
            "percent",
            ["train/agreement/longer_preferred", "train/longer_wins_rate"],
        ),
        "the longer is right": ("percent", ["train/agreement/longer_right"]),
        "agree at equal length": ("percent", ["train/agreement/equal_length"]),
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
"""Table -> measure -> its format, and possible keys in a metrics.json, of which the first that
exists counts. Accuracy of process models is over steps: the mean of that on right and on wrong
ones."""
COSTS = ("generated_tokens", "trained_tokens", "flops")
Cost = dict[str, int | float]
"""Values of `COSTS` per seed, as the mean over seeds."""
History = Sequence[Sequence[Mapping[str, float]]]
"""Metrics of a training: [seed][step][name]."""


def read_history(training: Path, seeds: Sequence[int]) -> History:
    """Metrics of each step, from `<training>/<seed>/history.jsonl`."""
    paths = [training / str(seed) / "history.jsonl" for seed in seeds]
    return [
        [json.loads(line)["metrics"] for line in path.read_text(encoding="utf-8").splitlines()]
        for path in paths
    ]


def read_quality(data: Path, plan: Plan, seeds: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Table -> row -> measure -> `{value, seeds}`, as far as it exists; rules have no measures."""
    quality_by_table: dict[str, dict[str, Any]] = {}
    for table, measures in MEASURES.items():
        for name in plan[table]:
            metrics = read_metrics(data / table / name, seeds)
            if len(metrics) == len(seeds):
                row = {
                    label: mean_over_seeds(metrics, places)
                    for label, (_, places) in measures.items()
                }
                quality_by_table.setdefault(table, {})[name] = {
                    k: estimate for k, estimate in row.items() if estimate
                }
    return quality_by_table


def read_costs(data: Path, plan: Plan, seeds: Sequence[int]) -> dict[str, Cost]:
    """Costs by row: `policies/dpo`, `samples/dpo`, ..."""
    tables = {**plan, "samples": plan["policies"], "evaluations": plan["policies"]}
    rows = [f"{table}/{name}" for table, names in tables.items() for name in names]
    within = {row: f"{row}/training" for row in rows if row.startswith("policies/")}
    return {row: read_row_cost(data / within.get(row, row), seeds) for row in rows}


def read_row_cost(folder: Path, seeds: Sequence[int]) -> Cost:
    """Mean cost over seeds; 0 if nothing was counted."""
    seed_costs = [sum_cost(metrics) for metrics in read_metrics(folder, seeds).values()]
    return {
        kind: float(np.mean([seed_cost[kind] for seed_cost in seed_costs])) if seed_costs else 0.0
        for kind in COSTS
    }


def sum_cost(metrics: Mapping[str, Any]) -> Cost:
    """Tokens and floating-point operations that a stage's metrics.json counts."""
    # Labelling of training and held-out problems counts tokens for each side.
    sides = [metrics.get(side, {}) for side in ("train", "heldout")]
    tokens = {
        kind: metrics.get(kind, sum(metrics.get(kind, 0) for metrics in sides))
        for kind in COSTS[:2]
    }
    return tokens | {
        "flops": sum(count_operations(done) for done in metrics.get("work", {}).values())
    }


def count_operations(done: Mapping[str, Any]) -> int:
    """Floating-point operations of all passes of a model (`algorithms/flops`).

    Per position and entry of a matrix: 2 for sampling and scoring, 6 for training, or 4 if the
    matrix is frozen.
    """
    names = ("body", "output", "trained_body", "trained_output")
    matrices = Matrices(**{name: done[name] for name in names})
    sampled, scored, trained = (
        Passes(**done.get(kind, {"positions": 0, "outputs": 0}))
        for kind in ("sampled", "read", "trained")
    )
    forward = flops.count_forward_flops(matrices, sampled) + flops.count_forward_flops(
        matrices, scored
    )
    return forward + flops.count_training_flops(matrices, trained)


def sum_policy_costs(
    plan: Plan, baseline: str, costs: Mapping[str, Cost]
) -> dict[str, dict[str, Any]]:
    """Policy -> `rows` that were made for it, and their total cost.

    Rows that the baseline needs count only for the baseline: the costs of methods beyond it are
    compared. A row that several policies need counts in full for each.
    """
    shared = set(list_ancestors(plan, f"policies/{baseline}"))
    costs_by_policy: dict[str, dict[str, Any]] = {}
    for policy in plan["policies"]:
        needed = list_ancestors(plan, f"policies/{policy}")
        rows = [row for row in needed if policy == baseline or row not in shared]
        together = {kind: sum(costs[row][kind] for row in rows) for kind in COSTS}
        costs_by_policy[policy] = {"rows": rows} | together
    return costs_by_policy


def list_ancestors(plan: Plan, row: str) -> dict[str, None]:
    """Upstream rows of a row, each once and before the rows that read it; then the row."""
    table, _, name = row.partition("/")
    if name == BASE or name not in plan.get(table, {}):
        return {}
    words = plan[table][name]
    policy, learned_from = f"policies/{words.get('from')}", words.get("on", "")
    return {**list_ancestors(plan, policy), **list_ancestors(plan, learned_from), row: None}
