"""Does the true reward fall while the proxy rises, where, and does an ensemble help?

    python -m stages.report_overoptimization

Reads the large scored pools of evaluate_best_of_n and what evaluate_checkpoints found along each
run, by a single reward model and by an ensemble; writes `metrics.json`, `report.md` and `plots/`
(PNG and CSV). Curves and forms: Gao et al. 2023, https://arxiv.org/abs/2210.10760. A plan without
either has a report that says so.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stages import params, seeding
from stages.params import Params
from stages.recipe import Recipe
from stages.records import lines
from stages.records.checkpoint_result import CheckpointResult
from stages.records.scored_pool import ScoredPool
from stages.reports import (
    ensemble_effect,
    overoptimization,
    overoptimization_curves,
    overoptimization_plot,
    overoptimization_report,
    training_page,
)
from stages.reports.overoptimization import Curve, OveroptimizationConfig
from stages.reports.overoptimization_curves import SCORERS
from stages.runtime import outputs, process, progress, runs

DATA = Path("data")
OUTPUT = DATA / "report_overoptimization"
Key = tuple[str, str]
"""An entry of evaluate_best_of_n, and a scorer."""


class Config(Params):
    """What report_overoptimization reads of params.yaml."""

    seed: int
    plan: Recipe
    report_overoptimization: OveroptimizationConfig


def main() -> None:
    """Write `metrics.json`, `report.md` and `plots/`."""
    with runs.start("report_overoptimization", OUTPUT) as run:
        config = params.load(Config)
        settings, seed = config.report_overoptimization, seeding.derive(config.seed, "fits")
        plan, found = config.plan, dict(best_of_n(config.plan))
        chosen = {key: curve for key, curve in found.items() if isinstance(curve, Curve)}
        names = sorted(plan.evaluate_checkpoints)
        along = [curve for name in names for curve in of_run(plan, name, chosen)]
        tracked = progress.track([*chosen.values(), *along], label="fit")
        curves = [overoptimization.measure(curve, settings, seed) for curve in tracked]
        metrics = {
            "confidence": settings.confidence,
            "curves": [overoptimization.without_bands(one) for one in curves],
            "effects": ensemble_effect.every(chosen, settings, seed),
            "left_out": {" ".join(key): one for key, one in found.items() if isinstance(one, str)},
            "runs": {name: read_metrics(name) for name in names},
        }
        with outputs.replace(OUTPUT / "plots") as temporary:
            temporary.mkdir()
            images = overoptimization_plot.write(temporary, curves)
            images += training_page.write(temporary, metrics["runs"])
        paths = [f"plots/{image}" for image in images]
        with outputs.replace(OUTPUT / "report.md") as temporary:
            temporary.write_text(overoptimization_report.render(metrics, images=paths), "utf-8")
        outputs.write_json(OUTPUT / "metrics.json", metrics)
        for one in curves:
            run.log(0, {f"{one['name']}/{one['scorer']}": one["accuracy_after_best"]["value"]})


def best_of_n(plan: Recipe) -> Iterator[tuple[Key, Curve | str]]:
    """Each entry and scorer: its curve, or why it has none."""
    for name in sorted(plan.evaluate_best_of_n):
        rows = list(lines.read(DATA / f"evaluate_best_of_n/{name}/rows.jsonl", ScoredPool))
        for scorer in SCORERS:
            found = overoptimization_curves.of_pools(name, scorer, rows)
            if found is not None:
                yield (name, scorer), found


def of_run(plan: Recipe, name: str, chosen: dict[Key, Curve]) -> list[Curve]:
    """A run's curves, in the units of its start's own completions under the same scorer."""
    entry = plan.evaluate_checkpoints[name]
    units = {
        scorer: curve.units
        for (pool, scorer), curve in chosen.items()
        if plan.evaluate_best_of_n[pool].policy == entry.reference
        and getattr(plan.evaluate_best_of_n[pool], scorer) == getattr(entry, scorer)
    }
    rows = list(lines.read(folder(name) / "rows.jsonl", CheckpointResult))
    return overoptimization_curves.of_run(name, rows, units)


def folder(name: str) -> Path:
    """Where a run's evaluation is."""
    return DATA / "evaluate_checkpoints" / name


def read_metrics(name: str) -> dict[str, Any]:
    """What evaluate_checkpoints found, in means."""
    return json.loads((folder(name) / "metrics.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    process.run(main)
