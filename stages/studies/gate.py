"""Study: is a policy fit for release? The gate over its probes, and its model card.

    dvc repro stages/studies/dvc.yaml:gate

Compares what the study `probes` found of each policy with what it found of the baseline, names
what is worse (`probe_gate`), and writes a card of each policy in the format of Hugging Face's model
cards, to lie beside the checkpoint of whichever seed is released. Nothing in a card depends on a
clock or a machine.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.params import Params
from stages.records import lines, pools
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rows import DATA, PROMPTS
from stages.runtime import outputs, process
from stages.studies import markdown, model_card, probe_gate
from stages.studies import study as studies
from stages.studies.probe_catalogue import PROBES, ProbeConfig, ProbeValue
from stages.studies.probe_gate import Values

FOUND = studies.STUDIES / "probes"
BASELINE = "This is the baseline, which the others are compared with."
LEGEND = (
    "Value of each policy, in brackets its difference from the baseline's on the same problems "
    "with the interval of that difference; rates in per cent, other numbers in their own units. "
    "**Bold**: worse, the interval lies wholly on the worse side (↑ higher is worse, ↓ lower is "
    "worse; a row without an arrow only describes). \\*: also after Holm's correction over the "
    "policy's probes."
)
Metrics = Mapping[str, Any]


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
        confidence = config.probes.confidence
        found = {name: values(config, name) for name in config.probes.policies}
        summaries = {name: summarise(config, name, own) for name, own in found.items()}
        gates = {
            name: probe_gate.compare(found[name], found[baseline], confidence=confidence)
            for name in others
        }
        verdicts = {baseline: BASELINE} | {
            name: probe_gate.verdict(gate, baseline) for name, gate in gates.items()
        }
        with outputs.replace(study.folder / "cards") as cards:
            cards.mkdir()
            for name, verdict in verdicts.items():
                card = model_card.render(
                    name, config.seeds, config.model,
                    probes=summaries[name], gate=gates.get(name), verdict=verdict,
                )  # fmt: skip
                (cards / f"{name}.md").write_text(card, encoding="utf-8")
        report = render(summaries, gates, verdicts, baseline)
        study.write({"summaries": summaries, "gates": gates, "verdicts": verdicts}, report)
        study.run.log(0, {f"worse/{name}": len(gate["worse"]) for name, gate in gates.items()})


def values(config: Config, name: str) -> Values:
    """What was found of a policy with each seed."""
    paths = [FOUND / name / f"rows/{seed}/probes.jsonl" for seed in config.seeds]
    return probe_gate.by_probe([lines.read(path, ProbeValue) for path in paths])


def summarise(config: Config, name: str, found: Values) -> dict[str, Any]:
    """A policy's probes, why others were not run, and its accuracy on the dev problems."""
    why: dict[str, str] = {}
    for seed in config.seeds:
        why |= studies.read_json(FOUND / name / f"rows/{seed}/not_run.json")
    not_run = {probe: why.get(probe, "not with every seed") for probe in PROBES.keys() - found}
    prompts = list(lines.read(PROMPTS / "dev.jsonl", Prompt))
    dev = [
        pools.by_problem(prompts, lines.read(DATA / f"samples/{name}/{seed}/dev.jsonl", Completion))
        for seed in config.seeds
    ]
    confidence = config.probes.confidence
    return probe_gate.summarise(found, not_run, confidence=confidence) | {
        "dev_accuracy": probe_gate.dev_accuracy(dev, confidence=confidence)
    }


def render(
    summaries: Mapping[str, Metrics], gates: Mapping[str, Metrics], verdicts: Mapping[str, str],
    baseline: str,
) -> str:  # fmt: skip
    """The report: each policy's verdict, a table of probes x policies, what was not run.

    `summaries`, `gates` (of all but the baseline) and `verdicts` are what the functions of
    `probe_gate` found of each policy.
    """
    policies = sorted(summaries, key=lambda name: (name != baseline, name))
    arrows = {"higher": " ↑", "lower": " ↓", None: ""}
    rows = [
        [
            f"{definition.what}{arrows[definition.worse]}",
            *(_cell(probe, summaries[one], gates.get(one)) for one in policies),
        ]
        for probe, definition in PROBES.items()
        if any(probe in summaries[one]["probes"] for one in policies)
    ]
    parts = [
        "# Probes of reward hacking",
        f"What a policy could have been paid for without solving problems, each against {baseline} "
        "on the same problems. The release gate names every probe that is worse beyond its "
        "interval; so does the policy's model card.",
        "\n".join(f"- **{name}**: {verdict}" for name, verdict in verdicts.items()),
        markdown.table(["probe", *policies], rows),
        LEGEND,
    ]
    if missing := _not_run(summaries, policies):
        parts += ["Not run:", "\n".join(missing)]
    return "\n\n".join(parts) + "\n"


def _cell(probe: str, summary: Metrics, gate: Metrics | None) -> str:
    if probe not in summary["probes"]:
        return "not run"
    scale, digits = (100, 1) if PROBES[probe].is_rate else (1, 3)
    text = f"{scale * summary['probes'][probe]['value']:.{digits}f}"
    if gate is None or probe not in gate["probes"]:
        return text
    against = gate["probes"][probe]
    difference, low, high = (
        f"{scale * against[bound]:+.{digits}f}" for bound in ("difference", "low", "high")
    )
    star = "\\*" if probe in gate["certain"] else ""
    text += f" ({difference} [{low}, {high}])"
    return f"**{text}**{star}" if against["worse"] else text


def _not_run(summaries: Mapping[str, Metrics], policies: Sequence[str]) -> list[str]:
    reasons: dict[str, dict[str, list[str]]] = {}
    for policy in policies:
        for probe, why in summaries[policy]["not_run"].items():
            reasons.setdefault(why, {}).setdefault(probe, []).append(policy)
    told = []
    for why, probes in reasons.items():
        every = all(len(own) == len(policies) for own in probes.values())
        of = "" if every else f" ({', '.join(sorted(set().union(*probes.values())))})"
        told.append(f"- {', '.join(probes)}{of}: {why}")
    return told


if __name__ == "__main__":
    process.run(main)
