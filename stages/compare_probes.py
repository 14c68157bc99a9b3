"""Probes of reward hacking of all policies, the release gate, and the policies' model cards.

    python -m stages.compare_probes

Compares what probe_policy found of each policy with what it found of the baseline, and names what
is worse (stages/reports/probe_gate). Writes `report.md`, `metrics.json` and, beside each probed
policy's checkpoint, `model_card.md` in the format of Hugging Face's model cards: whoever copies
that folder has both. A plan without probes has a report that says so, and no cards.

Nothing in a card depends on a clock or a machine.
"""

from pathlib import Path
from typing import Any

import pydantic

from stages import params
from stages.params import Params
from stages.recipe import PREPARE_DATA, Recipe, maker
from stages.records import lines
from stages.records.probe_value import ProbeValue
from stages.reports import card_file, probe_gate, probe_report, probe_summary
from stages.runtime import outputs, process, runs
from stages.seeding import derive

DATA = Path("data")
OUTPUT = DATA / "compare_probes"


class CompareProbes(Params):
    """How a policy is compared with the baseline."""

    num_bootstrap: int = pydantic.Field(ge=100)
    """Resamples of the problems for each interval."""
    confidence: float = pydantic.Field(gt=0, lt=1)
    """Coverage of the intervals."""


class Config(Params):
    """What compare_probes reads of params.yaml, presets.yaml and recipes.yaml."""

    seed: int
    plan: Recipe
    model: dict[str, Any]
    sft: dict[str, Any]
    preference: dict[str, Any]
    ppo: dict[str, Any]
    group_rl: dict[str, Any]
    rewards: dict[str, Any]
    compare_probes: CompareProbes


def main() -> None:
    """Write the report, the cards and `metrics.json`."""
    with runs.start("compare_probes", OUTPUT) as run:
        config = params.load(Config)
        plan = config.plan
        summaries = {
            name: card_file.read(f"probe_policy/{name}/metrics.json")
            for name in sorted(plan.probe_policy)
        }
        gates = {name: gate(name, config) for name in summaries if name != plan.baseline}
        verdicts = {
            name: probe_gate.verdict(gates[name], plan.baseline)
            if name in gates
            else "This is the baseline, which the others are compared with."
            for name in summaries
        }
        for name, summary in summaries.items():
            if maker(plan.probe_policy[name].policy) == PREPARE_DATA:
                continue  # a base model has its own card, where it came from
            tables = config.model_dump(exclude={"plan"})
            told = {"probes": summary, "gate": gates.get(name), "verdict": verdicts[name]}
            card_file.write(name, plan, tables, **told)
        report = probe_report.render(summaries, gates, verdicts, plan.baseline)
        with outputs.replace(OUTPUT / "report.md") as temporary:
            temporary.write_text(report, encoding="utf-8")
        outputs.write_json(OUTPUT / "metrics.json", {"gates": gates, "verdicts": verdicts})
        run.log(0, {f"probes/worse/{name}": len(found["worse"]) for name, found in gates.items()})


def gate(name: str, config: Config) -> dict[str, Any]:
    """On which probes a policy is worse than the baseline."""
    return probe_gate.compare(
        read_values(name),
        read_values(config.plan.baseline),
        num_resamples=config.compare_probes.num_bootstrap,
        confidence=config.compare_probes.confidence,
        seed=derive(config.seed, "compare_probes"),
    )


def read_values(name: str) -> probe_summary.Values:
    """The values of each probe and problem of a policy."""
    path = DATA / "probe_policy" / name / "probes.jsonl"
    return probe_summary.by_probe(lines.read(path, ProbeValue))


if __name__ == "__main__":
    process.run(main)
