"""Study: what does it cost to learn from rollouts of older weights?

    python -m studies staleness

Trains a policy with every seed again, from rollout batches that are k steps old (`staleness` of
`loops/method`), as a sampler beside the trainer would draw them. All else is the same: prompts,
completions a step, steps. The policy of the run itself is k = 0. Differences are paired by seed and
problem, and Holm's adjustment is over the values of k. What an overlap of sampling and training
saves is measured elsewhere (`loops/overlap`); this is what it costs in accuracy.
"""

import itertools
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from stages.config import Params
from stages.loops.run import Run
from stages.params import load_preset
from stages.records import lines
from stages.report import markdown
from stages.report.markdown import format_percent
from stages.rows import DATA
from stages.runtime import outputs, process
from studies import copies, equal_tokens, token_verdict
from studies import study as studies
from studies.copies import Plan, RepoCopy
from studies.token_verdict import MEASURES, SeedResult, Tables

LEARNS_ONLINE = ("grpo", "ppo")
"""Kinds of policies whose rollouts have an age."""


class Staleness(studies.Certainty):
    """The policy to train again, and the ages of its rollout batches."""

    policy: str
    """A row of `policies` that GRPO or PPO trained, with `staleness` 0."""
    ages: list[int] = Field(min_length=1)
    """Values of `staleness`, each above 0."""


class Config(Params):
    """Keys that the study reads."""

    seeds: list[int]
    staleness: Staleness


def main() -> None:
    """Write the rows of each seed, `metrics.json` and `report.md`."""
    with studies.start_study("staleness", plots=False) as study:
        config = studies.load_study_config(Config, "staleness")
        settings, plan = config.staleness, outputs.read_json(DATA / "plan.json")
        check_settings(plan, settings)
        folders = {0: DATA} | {
            age: train_copy(study.run.folder / str(age), plan, settings.policy, age).data
            for age in settings.ages
        }
        study.for_each_seed(
            config.seeds, partial(write_results, folders, settings.policy), gpu=False
        )
        tables = {
            age: token_verdict.make_table([
                row
                for seed in config.seeds
                for row in lines.read_lines(study.rows / f"{seed}/{age}.jsonl", SeedResult)
            ])
            for age in folders
        }  # fmt: skip
        metrics = compare_ages(tables, confidence=settings.confidence) | {
            "policy": settings.policy,
            "num_seeds": len(config.seeds),
            "tokens": {
                str(age): sum_tokens(data, settings.policy, config.seeds)
                for age, data in folders.items()
            },
        }
        study.write(metrics, render_report(metrics))


def check_settings(plan: Plan, settings: Staleness) -> None:
    """Raise a ValueError unless the policy learns online from rollouts of its newest weights."""
    row = plan["policies"].get(settings.policy)
    if row is None or row["train"] not in LEARNS_ONLINE:
        raise ValueError(
            f"staleness.policy: expected a policy that {' or '.join(LEARNS_ONLINE)} trains, found "
            f"'{settings.policy}'"
        )
    if age := load_preset(row["preset"]).get("staleness", 0):
        raise ValueError(
            f"staleness.policy: expected a preset without staleness, found '{row['preset']}' of "
            f"'{settings.policy}' with {age}"
        )
    if min(settings.ages) < 1 or len({*settings.ages}) < len(settings.ages):
        raise ValueError(f"staleness.ages: expected numbers from 1 on, found {settings.ages}")


def train_copy(path: Path, plan: Plan, policy: str, age: int) -> RepoCopy:
    """The policy of every seed from rollouts of that age, and its samples."""
    row = plan["policies"][policy]
    made_from = copies.list_needed_rows(plan, "policies", policy)[:-1]
    copy = copies.make_copy(
        path,
        share=["/".join(row) for row in made_from],
        presets={"stale": load_preset(row["preset"]) | {"staleness": age}},
    )
    copy.run(copies.make_row_command("policies", policy, {**row, "preset": "stale"}))
    copy.run(copies.make_sample_command(policy))
    return copy


def write_results(folders: Mapping[int, Path], policy: str, run: Run, folder: Path) -> None:
    """Accuracy by problem of one seed, a file for each age."""
    for age, data in folders.items():
        equal_tokens.write_results(folder / f"{age}.jsonl", data, policy, run.seed)


def sum_tokens(data: Path, policy: str, seeds: Iterable[int]) -> int:
    """Tokens that the policy of all seeds generated and trained on."""
    return sum(sum(equal_tokens.count_tokens(data, "policies", policy, seed)) for seed in seeds)


def compare_ages(tables: Mapping[int, Tables], *, confidence: float) -> dict[str, Any]:
    """Accuracy at each age, and what each age above 0 differs from 0 by."""
    differences = {}
    for measure in MEASURES:
        family = {
            (str(age), "0"): table[measure] - tables[0][measure]
            for age, table in tables.items()
            if age
        }
        rows = token_verdict.test_differences(family, confidence=confidence)
        differences[measure] = {max(row["first"], row["second"], key=int): row for row in rows}
    return {
        "confidence": confidence,
        "num_problems": tables[0]["mean"].shape[1],
        "ages": {
            str(age): {
                measure: studies.estimate_interval(
                    table[measure], confidence=confidence, is_rate=True
                )
                for measure in MEASURES
            }
            for age, table in tables.items()
        },
        "differences": differences,
    }


def render_report(metrics: Mapping[str, Any]) -> str:
    """The report."""
    header = ["k", *itertools.chain(*((name, "against k = 0") for name in MEASURES.values()))]
    rows = []
    for age, levels in metrics["ages"].items():
        cells = [age]
        for measure in MEASURES:
            cells += [format_percent(levels[measure]), ""]
            if row := metrics["differences"][measure].get(age):
                sign = 1 if row["first"] == age else -1
                low, high = sorted((sign * row["low"], sign * row["high"]))
                cells[-1] = (
                    f"{100 * sign * row['value']:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
                )
                cells[-1] += " *" if row["resolved"] else ""
        rows.append([*cells, f"{metrics['tokens'][age]:,}"])
    parts = [
        f"# {metrics['policy']} from rollouts of older weights",
        f"Rollout batch n is drawn with the weights after max(0, n - k) steps. Accuracy in % and "
        f"differences in points, with {metrics['confidence']:.0%} confidence intervals over "
        f"{metrics['num_seeds']} seeds and {metrics['num_problems']:,} test problems, paired by "
        f"both. A star: the difference is significant, by Holm over the values of k. Tokens: "
        f"generated and trained on, by all seeds.",
        *filter(None, [studies.explain_no_verdict(metrics["num_seeds"])]),
        markdown.render_table([*header, "tokens"], rows),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    process.run(main)
