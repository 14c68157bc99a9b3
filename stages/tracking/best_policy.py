"""Which policy gets the registry's alias: the best on dev problems, never on the test's.

Of several policies the one with the highest test accuracy is also the one that chance has favoured
most there, so a name given by it would make its own test result too good. probe_policy measures
each on dev problems, from which nothing is learned; the release gate's verdict goes with the name,
but does not decide: what is worse than the baseline is said, and whoever deploys decides.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from stages.tracking.lockfile import Entry

PROBES, GATES = "probe_policy@", "compare_probes"


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The best policy."""

    stage: str
    """The DVC stage that made it."""
    tags: dict[str, str]
    """Why, for the registry."""


def choose(entries: list[Entry], runs: Collection[str]) -> Chosen | None:
    """The policy of the highest dev accuracy; of equals the first by stage.

    None where no policy was probed.

    Args:
        entries: of dvc.lock.
        runs: the stages whose outputs are those that dvc.lock names.
    """
    named: dict[str, str] = {}
    accuracy: dict[str, float] = {}
    for name, metrics in _metrics(entries, runs, PROBES).items():
        made_by = metrics["policy"].removesuffix("/policy").replace("/", "@")
        if made_by in runs:
            named[made_by] = name.removeprefix(PROBES)
            accuracy[made_by] = metrics["dev_accuracy"]["value"]
    if not accuracy:
        return None
    best = max(sorted(accuracy), key=accuracy.__getitem__)
    tags = {
        "posttrain.chosen_by": "dev_accuracy",
        "posttrain.dev_accuracy": f"{accuracy[best]:.4f}",
    }
    for gates in _metrics(entries, runs, GATES).values():
        if verdict := gates["verdicts"].get(named[best]):
            tags["posttrain.gate"] = verdict
    return Chosen(stage=best, tags=tags)


def _metrics(entries: list[Entry], runs: Collection[str], stage: str) -> dict[str, dict[str, Any]]:
    """The metrics of every stage whose name starts so."""
    return {
        entry.stage: json.loads(out.path.read_text(encoding="utf-8"))
        for entry in entries
        if entry.stage.startswith(stage) and entry.stage in runs
        for out in entry.outs
        if out.path.name == "metrics.json"
    }
