"""What `dvc metrics show` and `dvc exp show` list: one file per number, one key per policy.

DVC makes each file a row and each key a column. The report's metrics.json has thousands of keys.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.report.estimates import BEST_TEMPERATURE
from stages.runtime import outputs

GAIN, GAIN_AT_BEST = "gain", "gain_at_best_temperature"
SHARES = {
    "accuracy": ("mean_accuracy", "value"),
    "accuracy_low": ("mean_accuracy", "low"),
    "accuracy_high": ("mean_accuracy", "high"),
    "gain": (GAIN, "value"),
    "gain_low": (GAIN, "low"),
    "gain_high": (GAIN, "high"),
    "accuracy_at_best_temperature": (BEST_TEMPERATURE, "value"),
    "gain_at_best_temperature": (GAIN_AT_BEST, "value"),
    "greedy_accuracy": ("greedy_accuracy", "value"),
    "strict_accuracy": ("mean_strict", "value"),
    "dev_accuracy": ("dev_accuracy", "value"),
    "truncated": ("truncation_rate", "value"),
}
"""Name of the file -> estimate in the report's metrics, and which of its numbers, in percent."""
CONTROLS = {"control": "value", "control_low": "low", "control_high": "high"}
"""Name of the file -> number of a control's difference from the policy that it started from."""
COUNTS = ("trained_tokens", "generated_tokens")


def write_headlines(folder: Path, metrics: Mapping[str, Any]) -> None:
    """Write the headline numbers of the report's metrics into a folder."""
    gains, at_best = (metrics["gains"].get(m, {}) for m in ("mean_accuracy", BEST_TEMPERATURE))
    numbers: dict[str, dict[str, int | float]] = {}
    for policy, estimates in metrics["policies"].items():
        of_policy = {
            **estimates, GAIN: gains.get(policy, {}), GAIN_AT_BEST: at_best.get(policy, {}),
        }  # fmt: skip
        costs = metrics["costs"]["policies"].get(policy, {})
        headlines = {
            name: round(100 * of_policy[key][field], 2)
            for name, (key, field) in SHARES.items()
            if field in of_policy.get(key, {})
        }
        headlines |= {key: round(costs[key]) for key in COUNTS if key in costs}
        headlines |= {
            key.replace("/", "_"): round(estimate["value"], 4)
            for key, estimate in estimates.items()
            if key == "mean_tokens" or "reward/" in key
        }
        for name, number in headlines.items():
            numbers.setdefault(name, {})[policy] = number
    differences = metrics.get("controls", {}).get("differences", {})
    for control, difference in (pair for kind in differences.values() for pair in kind.items()):
        for name, field in CONTROLS.items():
            numbers.setdefault(name, {})[control] = round(100 * difference[field], 2)
    for environment, played in metrics.get("episodes", {}).items():
        numbers[f"success_{environment}"] = {
            policy: round(100 * estimates["success"]["value"], 2)
            for policy, estimates in played["policies"].items()
        }
    for name, of_policies in numbers.items():
        outputs.write_json(folder / f"{name}.json", of_policies)
