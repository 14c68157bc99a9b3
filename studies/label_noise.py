"""Study: how many wrong labels does a reward model bear?

    python -m studies label_noise

Trains the reward models of a row of `rewards` again, with a share of the training labels made
wrong, the same of every seed's pairs, and tells how many of the held-out pairs, whose labels are
left alone, each gets right.
"""

from collections.abc import Mapping
from typing import Any

from stages.config import Params
from stages.params import load_preset
from stages.report import markdown
from stages.rows import DATA
from stages.runtime import outputs, process
from studies import copies
from studies import study as studies


class LabelNoise(Params):
    """Reward to train again, and the shares of wrong labels."""

    reward: str
    """A row of `rewards`, of the kind preference."""
    flip_percents: list[int]
    """Shares of the training labels that are flipped, in per cent."""


class Config(Params):
    """Keys that the study reads."""

    seeds: list[int]
    label_noise: LabelNoise


def main() -> None:
    """Write `metrics.json` and `report.md`."""
    with studies.start_study("label_noise", rows=False, plots=False) as study:
        config = studies.load_study_config(Config, "label_noise")
        settings, plan = config.label_noise, outputs.read_json(DATA / "plan.json")
        row = plan["rewards"][settings.reward]
        preset = load_preset(row["preset"])
        names = {percent: f"flipped-{percent}" for percent in settings.flip_percents}
        copy = copies.make_copy(
            study.run.folder / "copy",
            share=(f"policies/{row['from']}", row["on"]),
            presets={
                name: preset | {"members": 1, "flip_percent": percent}
                for percent, name in names.items()
            },
        )
        metrics_by_percent: dict[str, dict[str, Any]] = {}
        for percent, name in names.items():
            copy.run(copies.make_row_command("rewards", name, row | {"preset": name}))
            for seed in config.seeds:
                metrics = outputs.read_json(copy.data / f"rewards/{name}/{seed}/metrics.json")
                metrics_by_percent.setdefault(str(percent), {})[str(seed)] = metrics["heldout"]
        study.write(metrics_by_percent, render_report(metrics_by_percent))


def render_report(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    """The report: a row a share of wrong labels."""
    seeds = list(next(iter(metrics.values())))
    header = ["training labels flipped", "mean", *(f"seed {seed}" for seed in seeds)]
    rows = []
    for percent, of_seeds in metrics.items():
        accuracies = [seed_metrics["accuracy"] for seed_metrics in of_seeds.values()]
        mean = sum(accuracy["value"] for accuracy in accuracies) / len(accuracies)
        rows.append(
            [f"{percent} %", f"{100 * mean:.1f} %", *map(markdown.format_percent, accuracies)]
        )
    return f"""\
# Wrong labels in the training of a reward model

Held-out pairs, labelled rightly, that a reward model gets right; in brackets intervals over \
problems.

{markdown.render_table(header, rows)}
"""


if __name__ == "__main__":
    process.run(main)
