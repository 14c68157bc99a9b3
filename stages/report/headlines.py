"""Numbers that `dvc metrics show` and `dvc exp show` list: a file per number, a key per policy.

DVC makes each file a row and each key a column. The report's metrics.json has thousands of keys.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.report.estimates import BEST_TEMPERATURE, GREEDY, MEAN, TOKENS
from stages.runtime import outputs

SHARES = {
    "accuracy": ("policies", MEAN, "value"),
    "accuracy_low": ("policies", MEAN, "low"),
    "accuracy_high": ("policies", MEAN, "high"),
    "gain": ("gains", MEAN, "value"),
    "gain_low": ("gains", MEAN, "low"),
    "gain_high": ("gains", MEAN, "high"),
    "accuracy_at_best_temperature": ("policies", BEST_TEMPERATURE, "value"),
    "gain_at_best_temperature": ("gains", BEST_TEMPERATURE, "value"),
    "greedy_accuracy": ("policies", GREEDY, "value"),
    "strict_accuracy": ("policies", "mean_strict", "value"),
    "dev_accuracy": ("policies", "dev_accuracy", "value"),
    "truncated": ("policies", "truncation_rate", "value"),
}
"""Name of the file -> part of the report's metrics, measure, and field, in percent."""
CONTROLS = {"control": "value", "control_low": "low", "control_high": "high"}
"""Name of the file -> field of a control's difference from the policy that it started from."""
COUNTS = ("trained_tokens", "generated_tokens")


def write_headlines(folder: Path, metrics: Mapping[str, Any]) -> None:
    """Write the headline numbers of the report's metrics into a folder."""
    policies, costs = metrics["policies"], metrics["costs"]["policies"]
    by_measure: dict[str, dict[str, Any]] = {}
    for policy, estimates in policies.items():
        for measure, estimate in estimates.items():
            by_measure.setdefault(measure, {})[policy] = estimate
    parts = {"policies": by_measure, "gains": metrics["gains"]}
    numbers: dict[str, dict[str, int | float]] = {
        name: _to_percent(parts[part].get(measure, {}), field)
        for name, (part, measure, field) in SHARES.items()
    }
    for kind in COUNTS:
        numbers[kind] = {name: round(costs[name][kind]) for name in policies if name in costs}
    for measure, estimates in by_measure.items():
        if measure == TOKENS or "reward/" in measure:
            numbers[measure.replace("/", "_")] = {
                policy: round(estimate["value"], 4) for policy, estimate in estimates.items()
            }
    differences = metrics.get("controls", {}).get("differences", {})
    for kind in differences.values():
        for name, field in CONTROLS.items():
            numbers.setdefault(name, {}).update(_to_percent(kind, field))
    for environment, played in metrics.get("episodes", {}).items():
        success = {policy: of["success"] for policy, of in played["policies"].items()}
        numbers[f"success_{environment}"] = _to_percent(success, "value")
    for name, of_policies in numbers.items():
        if of_policies:
            outputs.write_json(folder / f"{name}.json", of_policies)


def _to_percent(estimates: Mapping[str, Any], field: str) -> dict[str, int | float]:
    return {policy: round(100 * of[field], 2) for policy, of in estimates.items()}
