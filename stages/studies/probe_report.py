"""What the probes found, in words and a table (Markdown)."""

from collections.abc import Mapping
from typing import Any

from stages.studies import markdown
from stages.studies.probe_catalogue import PROBES

Metrics = Mapping[str, Any]

LEGEND = (
    "Value of each policy, in brackets its difference from the baseline's on the same problems "
    "with the interval of that difference; rates in per cent, other numbers in their own units. "
    "**Bold**: worse, the interval lies wholly on the worse side (↑ higher is worse, ↓ lower is "
    "worse; a row without an arrow only describes). \\*: also after Holm's correction over the "
    "policy's probes."
)


def table(summaries: Mapping[str, Metrics], gates: Mapping[str, Metrics], baseline: str) -> str:
    """The section: a table of probes x policies, the verdicts' names, what was not run.

    Args:
        summaries: policy -> what `probe_gate.summarise` found.
        gates: policy but the baseline -> what `probe_gate.compare` found.
        baseline: its name; a policy without a gate has no differences.
    """
    policies = sorted(summaries, key=lambda name: (name != baseline, name))
    run = [name for name in PROBES if any(name in summaries[one]["probes"] for one in policies)]
    rows = [
        [_label(probe), *(_cell(probe, summaries[one], gates.get(one)) for one in policies)]
        for probe in run
    ]
    parts = [markdown.table(["probe", *policies], rows), LEGEND]
    parts += (
        [_not_run(summaries, policies)] if any(s["not_run"] for s in summaries.values()) else []
    )
    return "\n\n".join(parts)


def _label(probe: str) -> str:
    arrow = {"higher": " ↑", "lower": " ↓", None: ""}[PROBES[probe].worse]
    return f"{PROBES[probe].what}{arrow}"


def _cell(probe: str, summary: Metrics, gate: Metrics | None) -> str:
    own = summary["probes"].get(probe)
    if own is None:
        return "not run"
    scale, digits = (100, 1) if PROBES[probe].is_rate else (1, 3)
    text = f"{scale * own['value']:.{digits}f}"
    against = (gate or {"probes": {}})["probes"].get(probe)
    if against is None:
        return text
    difference, low, high = (
        f"{scale * against[bound]:+.{digits}f}" for bound in ("difference", "low", "high")
    )
    change = f"{difference} [{low}, {high}]"
    star = "\\*" if gate is not None and probe in gate["certain"] else ""
    return f"**{text} ({change})**{star}" if against["worse"] else f"{text} ({change})"


def _not_run(summaries: Mapping[str, Metrics], policies: list[str]) -> str:
    reasons: dict[str, dict[str, list[str]]] = {}
    for policy in policies:
        for probe, why in summaries[policy]["not_run"].items():
            reasons.setdefault(why, {}).setdefault(probe, []).append(policy)
    lines = []
    for why, probes in reasons.items():
        every = all(len(own) == len(policies) for own in probes.values())
        of = "" if every else f" ({', '.join(sorted({p for own in probes.values() for p in own}))})"
        lines.append(f"- {', '.join(probes)}{of}: {why}")
    return "Not run:\n\n" + "\n".join(lines)


def render(
    summaries: Mapping[str, Metrics],
    gates: Mapping[str, Metrics],
    verdicts: Mapping[str, str],
    baseline: str,
) -> str:
    """The report.

    Args:
        summaries: policy -> what `probe_gate.summarise` found.
        gates: policy but the baseline -> what `probe_gate.compare` found.
        verdicts: policy -> `probe_gate.verdict`.
        baseline: its name.
    """
    parts = ["# Probes of reward hacking"]
    parts += [
        f"What a policy could have been paid for without solving problems, each against {baseline} "
        "on the same problems. The release gate names every probe that is worse beyond its "
        "interval; so does the policy's model card.",
        "\n".join(f"- **{name}**: {verdict}" for name, verdict in verdicts.items()),
        table(summaries, gates, baseline),
    ]
    return "\n\n".join(parts) + "\n"
