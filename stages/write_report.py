"""Write the report page: everything that was found, in one HTML file that opens from disk.

Reads the Markdown reports that `write_report.reports` names, with their plots, and the evaluated
policies' completions, scores, rollouts and journals; writes `report.html`, `metrics.json` (the
numbers of its own sections) and `plots/` (PNG and CSV). The sections of its own: the same problems
as each policy answers them, accuracy by difficulty, lengths, rewards of right and wrong
completions, and each training run on a page of its own.

This is a leaf: the reports may tell seconds, and journals lie in others' `run/` folders.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pydantic
from jaxtyping import Float

from stages import params, recipe, seeding
from stages.params import Params
from stages.recipe import TABLES, Recipe
from stages.recipe_entries import Name
from stages.records import lines, pools
from stages.records.completion import Completion
from stages.records.prompt import Prompt
from stages.records.rollout import Rollout
from stages.records.score import Score
from stages.reports import (
    group_signal,
    learning_curve,
    policy_samples,
    report_sections,
    training_series,
)
from stages.reports.page import document, markdown_section
from stages.reports.page.section import Section
from stages.reports.policy_samples import PolicySamples
from stages.reports.problem_interval import QualityConfig
from stages.runtime import journal, outputs, process, progress, runs

DATA = Path("data")
PROMPTS = DATA / "prepare_data/prompts/test.jsonl"
OUTPUT = DATA / "write_report"


class WriteReport(Params):
    """What the page shows."""

    reports: list[Name]
    """Stages whose `report.md` it begins with, in this order; of a stage with entries, each."""
    disagreeing: int = pydantic.Field(ge=0)
    """Problems shown in full that a method gained over the baseline, and as many that one lost."""
    drawn: int = pydantic.Field(ge=0)
    """Problems shown in full that are drawn at random."""


class Config(Params):
    """What write_report reads of params.yaml."""

    seed: int
    plan: Recipe
    reward_quality: QualityConfig
    write_report: WriteReport


def main() -> None:
    """Write `report.html`, `metrics.json` and `plots/`."""
    with runs.start("write_report", OUTPUT) as run:
        config = params.load(Config)
        reports = [named_report(entry) for entry in report_entries(config)]
        prompts = list(lines.read(PROMPTS, Prompt))
        names = recipe.evaluated(config.plan)
        judged = progress.track(names, total=len(names), label="judge")
        policies = {name: samples(config.plan, name, prompts) for name in judged}
        found = report_sections.measure(
            policies,
            scores(config.plan, policies),
            config.reward_quality,
            seed=seeding.derive(config.seed, "write_report"),
        )
        series = dict(training_runs(config.plan))
        with outputs.replace(OUTPUT / "plots") as temporary:
            report_sections.draw(temporary, policies, found, series)
        sections = [
            *reports,
            *report_sections.own(
                OUTPUT,
                prompts,
                policies,
                found,
                series,
                disagreeing=config.write_report.disagreeing,
                drawn=config.write_report.drawn,
                seed=config.seed,
            ),
        ]
        introduction = report_sections.introduction(policies)
        page = document.render("Post-training, one run", introduction, sections)
        with outputs.replace(OUTPUT / "report.html") as temporary:
            temporary.write_text(page, encoding="utf-8")
        with outputs.replace(OUTPUT / "metrics.json") as temporary:
            temporary.write_text(json.dumps(found.metrics(), indent=2) + "\n", encoding="utf-8")
        run.log(0, {"page/bytes": len(page.encode()), "page/sections": len(sections)})


def samples(plan: Recipe, policy: str, prompts: list[Prompt]) -> PolicySamples:
    """What a policy did on the test problems."""
    folder = DATA / f"sample_candidates/{plan.evaluate_policy[policy].pool}"
    pool, greedy = (lines.read(folder / f"{name}.jsonl", Completion) for name in ("pool", "greedy"))
    return policy_samples.judge(prompts, pool, greedy)


def scores(
    plan: Recipe, policies: dict[str, PolicySamples]
) -> dict[str, dict[str, Float[np.ndarray, "problem sample"]]]:
    """For each scorer that scored the baseline, the scores of each policy that it scored."""
    found: dict[str, dict[str, Float[np.ndarray, "problem sample"]]] = {}
    for policy, its_samples in policies.items():
        for name, entry in sorted(plan.score_candidates.items()):
            if entry.pool == plan.evaluate_policy[policy].pool:
                rows = lines.read(DATA / f"score_candidates/{name}/scores.jsonl", Score)
                matrix = np.array(pools.scores(its_samples.problems, rows), dtype=np.float64)
                found.setdefault(entry.scorer, {})[policy] = matrix
    return {scorer: one for scorer, one in sorted(found.items()) if plan.baseline in one}


def training_runs(plan: Recipe) -> Iterator[tuple[str, dict[str, training_series.Series]]]:
    """Each entry that trained a policy by preferences or rewards, with its quantities."""
    for name in sorted(plan.train_dpo):
        yield f"train_dpo/{name}", training_series.of_journal(steps(f"train_dpo/{name}"))
    for _, entry in recipe.rollout_entries(plan):
        rollouts = list(lines.read(DATA / entry / "rollouts.jsonl", Rollout))
        curve, groups = learning_curve.points(rollouts), group_signal.points(rollouts)
        yield entry, training_series.of_rollouts(curve, groups, steps(entry))


def steps(entry: str) -> list[tuple[int, dict[str, float]]]:
    """The journal of an entry, without times."""
    rows = journal.read(DATA / entry / "run/journal.jsonl")
    return [(row.index, dict(row.metrics)) for row in rows]


def report_entries(config: Config) -> Iterator[str]:
    """The folders under data/ of the reports, in the order of the page."""
    for stage in config.write_report.reports:
        if stage in TABLES:
            yield from (f"{stage}/{name}" for name in sorted(getattr(config.plan, stage)))
        else:
            yield stage


def named_report(entry: str) -> Section:
    """A stage's report as a section."""
    folder = DATA / entry
    text = (folder / "report.md").read_text(encoding="utf-8")
    return markdown_section.convert(text, folder=folder, anchor=entry.replace("/", "-"))


if __name__ == "__main__":
    process.run(main)
