"""The model card of one evaluated policy, written beside its checkpoint.

    python -m stages.write_card <name> <made_by> <against>

`name` is the policy's in evaluate_policy and probe_policy, `made_by` the entry that trained it,
`against` the baseline's probes (`no_file` for the baseline itself). Reads those stages' numbers,
the data card, the plan (parents) and the presets (parameters); writes
`data/<made_by>/model_card.md`, in the format of Hugging Face's model cards, and the release gate
(`metrics.json`): on which probes the policy is worse than the baseline (stages/reports/probe_gate).

The card lies in a folder of another stage, beside the model that it is about: whoever copies the
folder has both. Nothing in it depends on a clock or a machine.
"""

import json
from pathlib import Path
from typing import Any

import pydantic

from stages import lineage, params
from stages.params import Params
from stages.recipe import Recipe
from stages.records import lines
from stages.records.probe_value import ProbeValue
from stages.reports import model_card, probe_gate, probe_summary
from stages.runtime import outputs, process, runs
from stages.seeding import derive

DATA = Path("data")
OUTPUT = DATA / "write_card"
NO_FILE = "no_file"


class WriteCard(Params):
    """How the policy is compared with the baseline."""

    num_bootstrap: int = pydantic.Field(ge=100)
    """Resamples of the problems for each interval."""
    confidence: float = pydantic.Field(gt=0, lt=1)
    """Coverage of the intervals."""


class Config(Params):
    """What write_card reads of params.yaml."""

    seed: int
    plan: Recipe
    model: dict[str, Any]
    sft: dict[str, Any]
    preference: dict[str, Any]
    ppo: dict[str, Any]
    group_rl: dict[str, Any]
    rewards: dict[str, Any]
    write_card: WriteCard


def main(name: str, made_by: str, against: str) -> None:
    """Write the card and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"write_card@{name}", output) as run:
        config = params.load(Config)
        probes = read_json(f"probe_policy/{name}/metrics.json")
        metrics: dict[str, Any] = {
            "policy": f"{made_by}/policy",
            "dev_accuracy": probes["dev_accuracy"],
            "gate": None,
            "verdict": "This is the baseline, which the others are compared with.",
        }
        if against != NO_FILE:
            _, baseline, _ = against.split("/")
            metrics["gate"] = probe_gate.compare(
                read_values(f"probe_policy/{name}/probes.jsonl"),
                read_values(against),
                num_resamples=config.write_card.num_bootstrap,
                confidence=config.write_card.confidence,
                seed=derive(config.seed, "write_card"),
            )
            metrics["verdict"] = probe_gate.verdict(metrics["gate"], baseline)
            run.log(0, {"probes/worse": len(metrics["gate"]["worse"])})
        stage, entry = made_by.split("/")
        reads = lineage.learned_from(config.plan)
        card = model_card.render(
            name,
            made_by,
            entry=getattr(config.plan, stage)[entry].model_dump(),
            parents=lineage.lineage(made_by, reads)[:-1],
            tables=config.model_dump(include={"sft", "preference", "ppo", "group_rl", "rewards"}),
            model=config.model,
            data=read_json("prepare_data/data_card.json"),
            training=read_json(f"{made_by}/metrics.json"),
            evaluation=read_json(f"evaluate_policy/{name}/metrics.json"),
            probes=probes,
            gate=metrics["gate"],
            verdict=metrics["verdict"],
        )
        with outputs.replace(DATA / made_by / "model_card.md") as temporary:
            temporary.write_text(card, encoding="utf-8")
        outputs.write_json(output / "metrics.json", metrics)


def read_values(path: str) -> probe_summary.Values:
    """The values of each probe and problem."""
    return probe_summary.by_probe(lines.read(DATA / path, ProbeValue))


def read_json(path: str) -> dict[str, Any]:
    """A JSON file that another stage wrote."""
    return json.loads((DATA / path).read_text(encoding="utf-8"))


if __name__ == "__main__":
    process.run(main)
