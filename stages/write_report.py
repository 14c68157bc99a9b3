"""Write the report page: everything that was found, in one HTML file that opens from disk.

Reads the Markdown reports that `write_report.reports` names, with their plots, and the evaluated
policies' completions, scores, rollouts and journals; writes `report.html`, `metrics.json` (the
numbers of its own sections) and `plots/` (PNG and CSV). The sections of its own: the same problems
as each policy answers them, accuracy by difficulty, lengths, rewards of right and wrong
completions, and each training run on a page of its own.

This is a leaf: the reports may tell seconds, and journals lie in others' `run/` folders.
"""

import json
from pathlib import Path

import pydantic

from stages import params, recipe, seeding
from stages.params import Params
from stages.recipe import Recipe
from stages.recipe_entries import Name
from stages.records import lines
from stages.records.problems import Prompt
from stages.reports import report_sections
from stages.reports.page import document, inputs
from stages.reports.problem_interval import QualityConfig
from stages.runtime import outputs, process, progress, runs

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
        reports = inputs.reports(DATA, config.plan, config.write_report.reports)
        prompts = list(lines.read(PROMPTS, Prompt))
        names = recipe.evaluated(config.plan)
        judged = progress.track(names, total=len(names), label="judge")
        policies = {name: inputs.samples(DATA, config.plan, name, prompts) for name in judged}
        found = report_sections.measure(
            policies,
            inputs.scores(DATA, config.plan, policies),
            config.reward_quality,
            seed=seeding.derive(config.seed, "write_report"),
        )
        series = dict(inputs.training_runs(DATA, config.plan))
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


if __name__ == "__main__":
    process.run(main)
