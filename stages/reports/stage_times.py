"""How long each stage of a run took."""

from collections.abc import Mapping

from stages.recipe import TABLES, Recipe

SINGLE_STAGES = ("prepare_data", "assemble_ensembles")
"""Stages without entries that come before the comparison."""
LEGEND = "Seconds of work: without the start of each process, its imports included."


def entries(plan: Recipe) -> list[str]:
    """Every entry that runs before the comparison, by stage and name."""
    named = [f"{stage}/{name}" for stage in TABLES for name in sorted(getattr(plan, stage))]
    return [*SINGLE_STAGES, *named]


def table(seconds: Mapping[str, float]) -> str:
    """Stages, slowest first, with the seconds of each of their entries (Markdown)."""
    of_stage: dict[str, dict[str, float]] = {}
    for entry, spent in seconds.items():
        stage, _, name = entry.partition("/")
        of_stage.setdefault(stage, {})[name] = spent
    slowest = sorted(of_stage, key=lambda stage: (-sum(of_stage[stage].values()), stage))
    rows = [
        f"| {stage} | {sum(of_stage[stage].values()):,.1f} | {_detail(of_stage[stage])} |"
        for stage in slowest
    ]
    total = f"| all | {sum(seconds.values()):,.1f} | |"
    return "\n".join(["| stage | seconds | of which |", "| --- | ---: | --- |", *rows, total])


def _detail(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {spent:,.1f}" for name, spent in seconds.items() if name)
