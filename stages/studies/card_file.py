"""A policy's model card, from what the stages wrote of it, beside its checkpoint."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages import lineage
from stages.recipe import Recipe, maker
from stages.runtime import outputs
from stages.studies import model_card

DATA = Path("data")


def write(
    name: str,
    plan: Recipe,
    tables: Mapping[str, Any],
    *,
    probes: Mapping[str, Any],
    gate: Mapping[str, Any] | None,
    verdict: str,
) -> None:
    """Write `model_card.md` into the folder of the entry that trained the policy.

    Args:
        name: the policy's, in probe_policy and evaluate_policy.
        plan: where its parents stand.
        tables: the presets' sections, and `model`.
        probes: its metrics of probe_policy.
        gate: see `probe_gate.compare`; None for the baseline.
        verdict: see `probe_gate.verdict`.
    """
    made_by = maker(plan.probe_policy[name].policy)
    stage, entry = made_by.split("/")
    card = model_card.render(
        name,
        made_by,
        entry=getattr(plan, stage)[entry].model_dump(),
        parents=lineage.lineage(made_by, lineage.learned_from(plan))[:-1],
        tables=tables,
        model=tables["model"],
        data=read("prepare_data/data_card.json"),
        training=read(f"{made_by}/metrics.json"),
        evaluation=read(f"evaluate_policy/{name}/metrics.json"),
        probes=probes,
        gate=gate,
        verdict=verdict,
    )
    with outputs.replace(DATA / made_by / "model_card.md") as temporary:
        temporary.write_text(card, encoding="utf-8")


def read(path: str) -> dict[str, Any]:
    """A JSON file that a stage wrote."""
    return json.loads((DATA / path).read_text(encoding="utf-8"))
