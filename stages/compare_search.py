"""Search over steps against best-of-n and votes, where both have cost the same.

    python -m stages.compare_search

Reads what each search of the baseline's policy on the test problems found and spent, and the
baseline's pool with its results and scores; writes `metrics.json`, `report.md` and `plots/`. A
search is not compared at an equal number of samples: it also pays for what it drops, and for
reading steps (Snell et al. 2024, https://arxiv.org/abs/2408.03314). A plan without a search has a
report that says so.
"""

from pathlib import Path
from typing import Any

import pydantic

from stages import params, seeding
from stages.params import Params
from stages.recipe import Recipe
from stages.records import lines, pools
from stages.records.completion import Completion
from stages.records.problem_result import ProblemResult
from stages.records.problem_search import ProblemSearch
from stages.records.prompt import Prompt
from stages.records.score import Score
from stages.reports import equal_compute, equal_compute_plot, equal_compute_section, search_inputs
from stages.reports.equal_compute import Curve
from stages.runtime import outputs, process, runs

DATA = Path("data")
PROMPTS = DATA / "prepare_data/prompts/test.jsonl"
OUTPUT = DATA / "compare_search"


class CompareSearch(Params):
    """How the paired differences are bootstrapped, and which of them the verdict is on."""

    way: equal_compute_section.Way
    """How an answer is taken of a search's solutions; chosen before the numbers are seen."""
    num_bootstrap: int = pydantic.Field(ge=100)
    """Resamples of the problems for each interval."""
    confidence: float = pydantic.Field(gt=0, lt=1)
    """Coverage of the intervals."""


class Config(Params):
    """What compare_search reads of params.yaml."""

    seed: int
    plan: Recipe
    compare_search: CompareSearch


def main() -> None:
    """Write `metrics.json`, `report.md` and `plots/`."""
    with runs.start("compare_search", OUTPUT) as run:
        config = params.load(Config)
        settings, plan = config.compare_search, config.plan
        names = search_inputs.comparable(plan)
        compared: dict[str, Any] = {"curves": {}, "searches": {}}
        if names:
            compared = equal_compute.compare(
                sampled(plan, names),
                {name: search_inputs.searched(searched(name)) for name in names},
                num_resamples=settings.num_bootstrap,
                confidence=settings.confidence,
                seed=seeding.derive(config.seed, "compare_search"),
            )
        with outputs.replace(OUTPUT / "plots") as temporary:
            temporary.mkdir()
            equal_compute_plot.draw(temporary / "equal_compute.png", compared)
        report = equal_compute_section.render(
            compared, image="plots/equal_compute.png", way=settings.way
        )
        with outputs.replace(OUTPUT / "report.md") as temporary:
            temporary.write_text(report, encoding="utf-8")
        outputs.write_json(OUTPUT / "metrics.json", compared)
        for name, one in compared["searches"].items():
            run.log(0, {f"{name}/{budget}": one[budget] for budget in equal_compute.BUDGETS})


def sampled(plan: Recipe, names: list[str]) -> dict[str, Curve]:
    """The baseline's ways to choose among n samples."""
    entry = plan.evaluate_policy[plan.baseline]
    pool = DATA / f"sample_candidates/{entry.pool}/pool.jsonl"
    results = DATA / f"evaluate_policy/{plan.baseline}/per_problem.jsonl"
    return search_inputs.curves(
        pools.by_problem(lines.read(PROMPTS, Prompt), lines.read(pool, Completion)),
        list(lines.read(DATA / f"{entry.scores}.jsonl", Score)),
        list(lines.read(results, ProblemResult)),
        search_inputs.sizes(DATA, names),
    )


def searched(name: str) -> list[ProblemSearch]:
    """What a search found, problem by problem."""
    path = DATA / f"search_solutions/{name}/per_problem.jsonl"
    return list(lines.read(path, ProblemSearch))


if __name__ == "__main__":
    process.run(main)
