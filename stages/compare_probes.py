"""The probes of reward hacking of all policies side by side, and who passes the release gate.

    python -m stages.compare_probes

Reads what probe_policy found of each policy and what its card's gate said; writes `report.md` and
`metrics.json`. A plan without probes has a report that says so.
"""

import json
from pathlib import Path
from typing import Any

from stages import params
from stages.params import Params
from stages.recipe import Recipe
from stages.reports import probe_report
from stages.runtime import outputs, process, runs

DATA = Path("data")
OUTPUT = DATA / "compare_probes"


class Config(Params):
    """What compare_probes reads of params.yaml."""

    plan: Recipe


def main() -> None:
    """Write `report.md` and `metrics.json`."""
    with runs.start("compare_probes", OUTPUT) as run:
        plan = params.load(Config).plan
        summaries = {name: read_json("probe_policy", name) for name in sorted(plan.probe_policy)}
        cards = {name: read_json("write_card", name) for name in sorted(plan.write_card)}
        gates = {name: card["gate"] for name, card in cards.items() if name != plan.baseline}
        verdicts = {name: card["verdict"] for name, card in cards.items()}
        report = probe_report.render(summaries, gates, verdicts, plan.baseline)
        with outputs.replace(OUTPUT / "report.md") as temporary:
            temporary.write_text(report, encoding="utf-8")
        outputs.write_json(OUTPUT / "metrics.json", {"verdicts": verdicts})
        run.log(0, {"policies": len(summaries)})


def read_json(stage: str, name: str) -> dict[str, Any]:
    """The metrics of an entry of another stage."""
    return json.loads((DATA / stage / name / "metrics.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    process.run(main)
