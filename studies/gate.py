"""Study: is a policy fit for release? The gate over its probes, and its model card.

    python -m studies gate

Compares each policy's results of the study `probes` with the baseline's, and writes a model card of
each policy, to be published with the weights of whichever seed is released.

A probe is *worse* if the interval of the paired difference, over the problems that both policies
have, is above 0. The gate names every worse probe: too many are better than too few. With two dozen
probes, about every second policy has one that is worse only by chance. So the gate also marks
*certain* probes: worse, and with a p of at most 1 - confidence after Holm's correction over the
policy's gated probes. Intervals and p are over seeds and problems (`statistics/crossed_means`).
With fewer than three seeds there is no verdict; with one seed the intervals are only about its
weights.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from stages.algorithms.statistics import crossed_means
from stages.algorithms.statistics.crossed_means import holm_adjusted
from stages.config import Params
from stages.params import load_preset
from stages.records import lines
from stages.records.metrics import round_metric
from stages.report import markdown, model_card
from stages.rows import DATA
from stages.runtime import outputs, process
from studies import study as studies
from studies.probe_catalogue import PROBES, ProbeConfig, ProbeValue

PROBES_PATH = studies.STUDIES / "probes"
BASELINE = "This is the baseline, which the others are compared with."
MIN_PROBLEMS = 10
"""Smallest number of problems for a comparison: with fewer no interval is reliable."""
Values = dict[str, dict[str, tuple[float, ...]]]
"""Probe -> problem's id -> value of each seed, for problems that every seed has."""
Metrics = Mapping[str, Any]


class Config(Params):
    """Keys that the study reads."""

    seeds: list[int]
    model: dict[str, Any]
    probes: ProbeConfig


def main() -> None:
    """Write the report, the cards and `metrics.json`."""
    with studies.start_study("gate", rows=False, plots=False) as study:
        config = studies.load_study_config(Config, "probes")
        names, confidence = config.probes.policies, config.probes.confidence
        baseline, *trained = names
        probes_by_policy, summaries = {}, {}
        for name in names:
            probes_by_policy[name], summaries[name] = read_probes(config, name)
        gates = {
            name: compare_with_baseline(
                probes_by_policy[name], probes_by_policy[baseline], confidence
            )
            for name in trained
        }
        verdicts = {baseline: BASELINE}
        verdicts |= {
            name: decide_release(gate, baseline, len(config.seeds)) for name, gate in gates.items()
        }
        plan = outputs.read_json(DATA / "plan.json")
        with outputs.replace(study.folder / "cards") as cards:
            cards.mkdir()
            for name in names:
                section = render_probes(summaries[name], gates.get(name), verdicts[name])
                presets = {word: load_preset(word) for word in model_card.list_presets(plan, name)}
                card = model_card.render_card(
                    name, config.seeds, config.model, presets, section
                )  # fmt: skip
                (cards / f"{name}.md").write_text(card, encoding="utf-8")
        report = render_report(summaries, gates, verdicts, baseline)
        study.write({"summaries": summaries, "gates": gates, "verdicts": verdicts}, report)
        study.run.log(0, {f"worse/{name}": len(gate["worse"]) for name, gate in gates.items()})


def read_probes(config: Config, policy: str) -> tuple[Values, dict[str, Any]]:
    """A policy's probes; their means, and the reasons why others were not run."""
    values_by_seed, why = [], {}
    for seed in config.seeds:
        folder = PROBES_PATH / policy / f"rows/{seed}"
        values_by_seed.append(lines.read_lines(folder / "probes.jsonl", ProbeValue))
        why |= outputs.read_json(folder / "not_run.json")
    values = group_by_probe(values_by_seed)
    return values, summarise_probes(values, why, config.probes.confidence)


def group_by_probe(seeds: Sequence[Iterable[ProbeValue]]) -> Values:
    """The values of each probe that was run with every seed, in the order of the catalogue."""
    first, *later_seeds = ({(row.probe, row.id): row.value for row in rows} for rows in seeds)
    values_by_probe: Values = {probe: {} for probe in PROBES}
    for place, value in first.items():
        if all(place in values for values in later_seeds):
            probe, name = place
            values_by_probe[probe][name] = (value, *(values[place] for values in later_seeds))
    return {probe: values for probe, values in values_by_probe.items() if values}


def summarise_probes(values: Values, why: Mapping[str, str], confidence: float) -> dict[str, Any]:
    """Summary `{probes: {name: {value, low, high, problems}}, not_run: {name: why}}`.

    Each probe of the catalogue is in one of the two.
    """
    probes = {}
    for probe, values_by_name in values.items():
        column, is_rate = np.array(list(values_by_name.values())).T, PROBES[probe].is_rate
        estimate = studies.estimate_interval(column, confidence=confidence, is_rate=is_rate)
        probes[probe] = estimate | {"problems": len(values_by_name)}
    missing = [probe for probe in PROBES if probe not in values]
    not_run = {probe: why.get(probe, "not with every seed") for probe in missing}
    return {"probes": probes, "not_run": not_run}


def compare_with_baseline(policy: Values, baseline: Values, confidence: float) -> dict[str, Any]:
    """Gate `{probes: {name: ...}, worse: [...], certain: [...], not_compared: {name: why}}`.

    Both policies have the same seeds. They are compared on the problems that both have.
    """
    compared: dict[str, dict[str, Any]] = {}
    p_values: dict[str, float] = {}
    not_compared: dict[str, str] = {}
    for probe, definition in PROBES.items():
        both = [name for name in policy.get(probe, {}) if name in baseline.get(probe, {})]
        if len(both) < MIN_PROBLEMS:
            not_compared[probe] = f"{len(both)} problems in common, fewer than {MIN_PROBLEMS}"
            continue
        policy_values, baseline_values = (
            np.array([values[probe][name] for name in both]).T for values in (policy, baseline)
        )
        estimate = crossed_means.estimate_means(
            (policy_values - baseline_values)[..., None], confidence=confidence,
            largest=float(definition.is_rate),
        )  # fmt: skip
        value, low, high = (round_metric(bound.item()) for bound in estimate[:3])
        compared[probe] = {
            "difference": value, "low": low, "high": high, "problems": len(both),
            "baseline": round_metric(baseline_values.mean()),
            "worse": definition.is_gated and low > 0,
        }  # fmt: skip
        if definition.is_gated and len(policy_values) >= crossed_means.MIN_SEEDS:
            p_values[probe] = estimate.p_value.item()
    adjusted = dict(zip(p_values, holm_adjusted(list(p_values.values())), strict=True))
    for probe, p in adjusted.items():
        compared[probe]["p_holm"] = round_metric(p)
    worse = [probe for probe, difference in compared.items() if difference["worse"]]
    return {
        "probes": compared,
        "gated": sum(PROBES[probe].is_gated for probe in compared),
        "worse": worse,
        "certain": [probe for probe in worse if adjusted.get(probe, 1.0) <= 1 - confidence + 1e-12],
        "not_compared": not_compared,
    }


def decide_release(gate: Metrics, baseline: str, num_seeds: int) -> str:
    """The gate's verdict in one or two sentences; with too few seeds there is none."""
    if no_verdict := studies.explain_no_verdict(num_seeds):
        return no_verdict
    if not gate["gated"]:
        return f"Not gated: no probe could be compared with {baseline}."
    if not gate["worse"]:
        return (
            f"Passed: of {gate['gated']} gated probes none is worse than {baseline} beyond the "
            f"interval."
        )
    worse = "; ".join(
        f"{PROBES[probe].what} ({probe}{', certain' if probe in gate['certain'] else ''})"
        for probe in gate["worse"]
    )
    return (
        f"Worse than {baseline} beyond the interval on {len(gate['worse'])} of {gate['gated']} "
        f"gated probes: {worse}."
    )


def render_report(
    summaries: Mapping[str, Metrics], gates: Mapping[str, Metrics], verdicts: Mapping[str, str],
    baseline: str,
) -> str:  # fmt: skip
    """The report: each policy's verdict, a table of probes x policies, probes without a result."""
    policies = sorted(summaries, key=lambda name: (name != baseline, name))
    rows = [
        [
            definition.what + (" ↑" if definition.is_gated else ""),
            *(describe_probe(probe, summaries[name], gates.get(name)) for name in policies),
        ]
        for probe, definition in PROBES.items()
        if any(probe in summaries[name]["probes"] for name in policies)
    ]
    return studies.render(
        "gate", baseline=baseline, verdicts=verdicts,
        table=markdown.render_table(["probe", *policies], rows),
        missing={name: list_missing(summaries[name], gates.get(name)) for name in policies},
    )  # fmt: skip


def render_probes(summary: Metrics, gate: Metrics | None, verdict: str) -> str:
    """The section of a model card on probes and the gate (None: the baseline)."""
    rows = [
        [PROBES[probe].what, describe_probe(probe, summary, gate)] for probe in summary["probes"]
    ]
    table = markdown.render_table(["probe", "value (against the baseline)"], rows)
    return "\n\n".join(["## Probes and release gate", verdict, table, *list_missing(summary, gate)])


def describe_probe(probe: str, summary: Metrics, gate: Metrics | None) -> str:
    """A policy's value, with its difference from the baseline's; bold: worse, a star: certain."""
    if probe not in summary["probes"]:
        return "not run"
    scale, digits = (100, 1) if PROBES[probe].is_rate else (1, 3)
    text = f"{scale * summary['probes'][probe]['value']:.{digits}f}"
    if gate is None or probe not in gate["probes"]:
        return text
    against = gate["probes"][probe]
    bounds = (f"{scale * against[key]:+.{digits}f}" for key in ("difference", "low", "high"))
    text += " ({} [{}, {}])".format(*bounds)
    star = "\\*" if probe in gate["certain"] else ""
    return f"**{text}**{star}" if against["worse"] else text


def list_missing(summary: Metrics, gate: Metrics | None) -> list[str]:
    """Lines on the probes without a result, or without a comparison, with the reasons."""
    reasons = dict(summary["not_run"])
    for probe, why in (gate["not_compared"] if gate is not None else {}).items():
        reasons.setdefault(probe, f"not compared: {why}")
    return [
        f"- Without a result: {', '.join(p for p in reasons if reasons[p] == why)}: {why}."
        for why in dict.fromkeys(reasons.values())
    ]


if __name__ == "__main__":
    process.run(main)
