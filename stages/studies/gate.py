"""Study: is a policy fit for release? The gate over its probes, and its model card.

    dvc repro stages/studies/dvc.yaml:gate

Compares what the study `probes` found of each policy with what it found of the baseline, names
what is worse (`probe_gate`), and writes a card of each policy in the format of Hugging Face's model
cards, to lie beside the checkpoint of whichever seed is released. Nothing in a card depends on a
clock or a machine.
"""

import json
from typing import Any

from stages import params
from stages.params import PRESETS_PATH, Params
from stages.records import lines, pools
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rows import DATA, PROMPTS
from stages.runtime import outputs, process
from stages.studies import model_card, probe_gate, probe_report
from stages.studies import study as studies
from stages.studies.copies import Plan
from stages.studies.probe_catalogue import ProbeConfig, ProbeValue
from stages.studies.probe_gate import Values

PROBES = studies.STUDIES / "probes"
BASELINE = "This is the baseline, which the others are compared with."


class Config(Params):
    """What the study reads."""

    seeds: list[int]
    model: dict[str, Any]
    probes: ProbeConfig


def main() -> None:
    """Write the report, the cards and `metrics.json`."""
    with studies.start("gate", rows=False, plots=False) as study:
        config = studies.load(Config, "probes")
        baseline, *others = config.probes.policies
        found = {name: values(config, name) for name in config.probes.policies}
        summaries = {name: summarise(config, name, own) for name, own in found.items()}
        confidence = config.probes.confidence
        gates = {
            name: probe_gate.compare(found[name], found[baseline], confidence=confidence)
            for name in others
        }
        verdicts = {baseline: BASELINE} | {
            name: probe_gate.verdict(gate, baseline) for name, gate in gates.items()
        }
        with outputs.replace(study.folder / "cards") as temporary:
            for name, summary in summaries.items():
                gate, verdict = gates.get(name), verdicts[name]
                path = temporary / f"{name}.md"
                path.parent.mkdir(exist_ok=True)
                path.write_text(card(config, name, summary, gate, verdict), encoding="utf-8")
        report = probe_report.render(summaries, gates, verdicts, baseline)
        study.write({"summaries": summaries, "gates": gates, "verdicts": verdicts}, report)
        study.run.log(0, {f"worse/{name}": len(gate["worse"]) for name, gate in gates.items()})


def values(config: Config, name: str) -> Values:
    """What was found of a policy with each seed."""
    paths = [PROBES / name / f"rows/{seed}/probes.jsonl" for seed in config.seeds]
    return probe_gate.by_probe([lines.read(path, ProbeValue) for path in paths])


def summarise(config: Config, name: str, found: Values) -> dict[str, Any]:
    """A policy's probes, why others were not run, and its accuracy on the dev problems."""
    why: dict[str, str] = {}
    for seed in config.seeds:
        why |= studies.read_json(PROBES / name / f"rows/{seed}/not_run.json")
    missing = {probe: why.get(probe, "not with every seed") for probe in probe_gate.PROBES}
    not_run = {probe: reason for probe, reason in missing.items() if probe not in found}
    prompts = list(lines.read(PROMPTS / "dev.jsonl", Prompt))
    dev = [
        pools.by_problem(prompts, lines.read(DATA / f"samples/{name}/{seed}/dev.jsonl", Completion))
        for seed in config.seeds
    ]
    confidence = config.probes.confidence
    return probe_gate.summarise(found, not_run, confidence=confidence) | {
        "dev_accuracy": probe_gate.dev_accuracy(dev, confidence=confidence)
    }


def card(
    config: Config, name: str, probes: dict[str, Any], gate: dict[str, Any] | None, verdict: str
) -> str:
    """The card of a policy."""
    plan = studies.read_json(DATA / "plan.json")
    row, presets = plan["policies"][name], params.read(PRESETS_PATH)

    def of_seeds(path: str) -> dict[int, Any]:
        return {seed: studies.read_json(DATA / path.format(seed)) for seed in config.seeds}

    return model_card.render(
        name,
        row=row,
        parents=lineage(plan, name),
        presets={word: presets[word] for word in presets_of(plan, name)},
        model=config.model,
        data=json.loads((DATA / "prepared/data_card.json").read_text(encoding="utf-8")),
        training=of_seeds(f"policies/{name}/training/{{}}/metrics.json"),
        evaluation=of_seeds(f"evaluations/{name}/{{}}/metrics.json"),
        probes=probes,
        gate=gate,
        verdict=verdict,
    )


def lineage(plan: Plan, policy: str) -> list[str]:
    """The rows that a policy was made from, `<table>/<name>` each, the first made first."""
    found: list[str] = []

    def visit(table: str, name: str) -> None:
        row = plan.get(table, {}).get(name)
        if row is None:
            return
        visit("policies", row.get("from", ""))
        source, _, word = row.get("on", "").partition("/")
        visit(source, word)
        if f"{table}/{name}" not in found:
            found.append(f"{table}/{name}")

    visit("policies", policy)
    return found[:-1]


def presets_of(plan: Plan, policy: str) -> list[str]:
    """The presets of a policy and of the reward that it maximised."""
    row = plan["policies"][policy]
    table, _, name = row["on"].partition("/")
    reward = [plan["rewards"][name]["preset"]] if table == "rewards" else []
    return list(dict.fromkeys([row["preset"], *reward]))


if __name__ == "__main__":
    process.run(main)
