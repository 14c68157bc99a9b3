"""Study: is a policy fit for release? The gate over its probes, and its model card.

    python -m studies gate

Compares what the study `probes` found of each policy with what it found of the baseline, and writes
a card of each, to lie beside the checkpoint of whichever seed is released.

A probe is *worse* where the interval of the paired difference over the problems that both have lies
wholly on the side that `probe_catalogue` calls worse. The gate names every worse probe: it had
better name too many than too few. With two dozen probes, about every second policy has one that is
worse by chance alone. So the gate also marks what is *certain*: worse, and with a p that stays at
most 1 - confidence after Holm's correction over the policy's gated probes. Intervals and p are over
seeds and problems (`statistics/crossed_means`). Of fewer than three seeds there is no p and nothing
is certain: with one seed the intervals are of its checkpoint alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stages.algorithms.statistics import crossed_means
from stages.algorithms.statistics.crossed_means import holm_adjusted
from stages.config import Params
from stages.params import load_preset
from stages.records import lines, pools
from stages.records.metrics import round_metric
from stages.report import markdown, model_card
from stages.rewards import answer_checker
from stages.rows import DATA
from stages.runtime import outputs, process
from studies import study as studies
from studies.probe_catalogue import PROBES, ProbeConfig, ProbeValue

PROBES_PATH = studies.STUDIES / "probes"
BASELINE = "This is the baseline, which the others are compared with."
MIN_PROBLEMS = 10
"""Fewer pairs say nothing: there is no honest interval of them."""
BOUNDS = ("difference", "low", "high")
Values = dict[str, dict[str, tuple[float, ...]]]
"""Probe -> problem's id -> a value of each seed; problems that every seed has."""
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
        verdicts |= {name: decide_release(gate, baseline) for name, gate in gates.items()}
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
        report = render_report(summaries, gates, verdicts, baseline, len(config.seeds))
        study.write({"summaries": summaries, "gates": gates, "verdicts": verdicts}, report)
        study.run.log(0, {f"worse/{name}": len(gate["worse"]) for name, gate in gates.items()})


def read_probes(config: Config, policy: str) -> tuple[Values, dict[str, Any]]:
    """A policy's probes; their means, why others were not run, the accuracy of a sample on dev."""
    confidence, values_by_seed, why, right = config.probes.confidence, [], {}, []
    for seed in config.seeds:
        folder = PROBES_PATH / policy / f"rows/{seed}"
        values_by_seed.append(lines.read_lines(folder / "probes.jsonl", ProbeValue))
        why |= outputs.read_json(folder / "not_run.json")
        right.append([
            [answer_checker.solves_problem(prompt, row.completion) for row in pool]
            for prompt, pool in pools.read_split(DATA / f"samples/{policy}/{seed}", "dev")
        ])  # fmt: skip
    values, samples = group_by_probe(values_by_seed), np.array(right)
    dev = studies.estimate_interval(samples.mean(axis=2), confidence=confidence, is_rate=True)
    sizes = dict(zip(("problems", "samples"), samples.shape[1:], strict=True))
    return values, summarise_probes(values, why, confidence) | {"dev_accuracy": dev | sizes}


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
    """`{probes: {name: {value, low, high, problems}}, not_run: {name: why}}`.

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
    """`{probes: {name: ...}, worse: [...], certain: [...], not_compared: {name: why}}`.

    Both are of the same seeds; compared are the problems that both have.
    """
    compared: dict[str, dict[str, Any]] = {}
    p_values: dict[str, float] = {}
    gated, not_compared = list[str](), {}
    for probe, definition in PROBES.items():
        both = [name for name in policy.get(probe, {}) if name in baseline.get(probe, {})]
        if len(both) < MIN_PROBLEMS:
            not_compared[probe] = f"{len(both)} problems in common, fewer than {MIN_PROBLEMS}"
            continue
        policy_values, baseline_values = (
            np.array([values[probe][name] for name in both]).T for values in (policy, baseline)
        )
        estimate = crossed_means.estimate_means(
            (policy_values - baseline_values)[..., None], confidence=confidence
        )
        value, low, high = (bound.item() for bound in estimate[:3])
        compared[probe] = dict(zip(BOUNDS, map(round_metric, (value, low, high)), strict=True)) | {
            "problems": len(both),
            "baseline": round_metric(baseline_values.mean()),
            "worse": {"higher": low > 0, "lower": high < 0, None: False}[definition.worse],
        }
        if definition.worse is not None:
            gated.append(probe)
        if definition.worse is not None and len(policy_values) >= crossed_means.MIN_SEEDS:
            p_values[probe] = estimate.p_value.item()
    adjusted = dict(zip(p_values, holm_adjusted(list(p_values.values())), strict=True))
    for probe, p in adjusted.items():
        compared[probe]["p_holm"] = round_metric(p)
    named_worse = [probe for probe, difference in compared.items() if difference["worse"]]
    certain = [probe for probe in named_worse if adjusted.get(probe, 1.0) <= 1 - confidence + 1e-12]
    return {
        "probes": compared, "gated": len(gated), "worse": named_worse, "certain": certain,
        "not_compared": not_compared,
    }  # fmt: skip


def decide_release(gate: Metrics, baseline: str) -> str:
    """The gate in one or two sentences."""
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
    baseline: str, num_seeds: int,
) -> str:  # fmt: skip
    """The report: each policy's verdict, a table of probes x policies, what was not run."""
    policies = sorted(summaries, key=lambda name: (name != baseline, name))
    arrows = {"higher": " ↑", "lower": " ↓", None: ""}
    rows = [
        [
            definition.what + arrows[definition.worse],
            *(_cell(probe, summaries[p], gates.get(p)) for p in policies),
        ]
        for probe, definition in PROBES.items()
        if any(probe in summaries[policy]["probes"] for policy in policies)
    ]
    return studies.render(
        "gate", baseline=baseline, verdicts=verdicts,
        no_verdict=studies.explain_no_verdict(num_seeds),
        table=markdown.render_table(["probe", *policies], rows),
        not_run=[*_not_run(summaries, policies)],
    )  # fmt: skip


def render_probes(probes: Metrics, gate: Metrics | None, verdict: str) -> str:
    """The section of a model card: accuracy on dev, probes, and the gate (None: the baseline)."""
    dev = probes["dev_accuracy"]
    table = markdown.render_table(
        ["probe", "value", "against the baseline"], _probe_rows(probes, gate)
    )
    missing = [
        f"- Without a result: {', '.join(names)}: {why}."
        for why, names in _unmeasured(probes, gate).items()
    ]
    return "\n\n".join([
        f"On {dev['problems']} dev problems, by which the best policy is chosen: "
        f"{markdown.format_percent(dev)} of single samples are right.",
        "## Probes and release gate", verdict, table, *(["\n".join(missing)] if missing else []),
    ])  # fmt: skip


def _probe_rows(probes: Metrics, gate: Metrics | None) -> Iterator[list[str]]:
    for probe, result in probes["probes"].items():
        show = markdown.format_percent if PROBES[probe].is_rate else markdown.format_number
        against = ""
        if gate is not None and probe in gate["probes"]:
            verdict = gate["probes"][probe]
            against = "{difference:+.3f} [{low:+.3f}, {high:+.3f}]".format(**verdict)
            against = f"**{against}, worse**" if verdict["worse"] else against
        yield [PROBES[probe].what, show(result), against]


def _unmeasured(probes: Metrics, gate: Metrics | None) -> dict[str, list[str]]:
    """Why -> the probes that have no result, or no comparison, for that."""
    reasons = dict(probes["not_run"])
    for probe, why in (gate["not_compared"] if gate is not None else {}).items():
        reasons.setdefault(probe, f"not compared: {why}")
    return {
        why: [probe for probe in reasons if reasons[probe] == why]
        for why in dict.fromkeys(reasons.values())
    }


def _cell(probe: str, summary: Metrics, gate: Metrics | None) -> str:
    if probe not in summary["probes"]:
        return "not run"
    scale, digits = (100, 1) if PROBES[probe].is_rate else (1, 3)
    text = f"{scale * summary['probes'][probe]['value']:.{digits}f}"
    if gate is None or probe not in gate["probes"]:
        return text
    against = gate["probes"][probe]
    text += " ({} [{}, {}])".format(*(f"{scale * against[key]:+.{digits}f}" for key in BOUNDS))
    star = "\\*" if probe in gate["certain"] else ""
    return f"**{text}**{star}" if against["worse"] else text


def _not_run(summaries: Mapping[str, Metrics], policies: Sequence[str]) -> Iterator[str]:
    reasons: dict[str, dict[str, list[str]]] = {}
    for policy in policies:
        for probe, why in summaries[policy]["not_run"].items():
            reasons.setdefault(why, {}).setdefault(probe, []).append(policy)
    for why, probes in reasons.items():
        every = all(len(of_probe) == len(policies) for of_probe in probes.values())
        of = "" if every else f" ({', '.join(sorted(set().union(*probes.values())))})"
        yield f"- {', '.join(probes)}{of}: {why}"


if __name__ == "__main__":
    process.run(main)
