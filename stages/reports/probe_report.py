"""What the probes found, in words and a table (Markdown)."""

from collections.abc import Mapping
from typing import Any

from stages.reports import probe_table

Metrics = Mapping[str, Any]


def render(
    summaries: Mapping[str, Metrics],
    gates: Mapping[str, Metrics],
    verdicts: Mapping[str, str],
    baseline: str,
) -> str:
    """The report.

    Args:
        summaries: policy -> the content of its `data/probe_policy/<policy>/metrics.json`.
        gates: policy but the baseline -> what `probe_gate.compare` found.
        verdicts: policy -> `probe_gate.verdict`.
        baseline: its name.
    """
    parts = ["# Probes of reward hacking"]
    if not summaries:
        return f"{parts[0]}\n\nNo policy of this plan is probed.\n"
    parts += [
        f"What a policy could have been paid for without solving problems, each against {baseline} "
        "on the same problems. The release gate names every probe that is worse beyond its "
        "interval; so does the model card beside the policy's checkpoint.",
        "\n".join(f"- **{name}**: {verdict}" for name, verdict in verdicts.items()),
        probe_table.render(summaries, gates, baseline),
    ]
    return "\n\n".join(parts) + "\n"
