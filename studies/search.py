"""Study of search over steps: accuracy at equal compute.

    python -m studies search

Searches for solutions of the test problems with a policy and a process reward model of each seed
(`step_search`), and compares them with best-of-n and votes among the policy's samples at equal cost
(`search_results.SearchCost`).
"""

from collections.abc import Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from stages.algorithms.statistics.crossed_means import holm_adjusted
from stages.engines import vllm_hosting
from stages.engines.loading import SamplingConfig
from stages.loops.run import Run
from stages.models import process_head, row_policy, size
from stages.models.device import setup
from stages.params import adopt_rounding
from stages.records import lines, pools
from stages.records.pools import ProblemResult, Score
from stages.records.problems import Prompt
from stages.report import markdown, plots
from stages.rows import DATA, PROMPTS
from stages.runtime import process
from studies import equal_compute, search_results, step_search
from studies import study as studies
from studies.equal_compute import CostCurve, Unit
from studies.search_results import ProblemSearch, SearchCost, SearchSolution
from studies.step_search import SearchConfig

WAYS = {"best": "best-scored", "weighted": "weighted vote", "majority": "majority"}
"""Methods to choose an answer among a search's solutions, with their labels."""
Way = Literal["best", "weighted", "majority"]
MARKERS = {"best": "D", "weighted": "s", "majority": "^"}
TITLES = {
    "flops": "By floating-point operations, as the search was run",
    "tokens": "By generated tokens, whatever was read and scored",
}
PANELS: tuple[tuple[Unit, str], ...] = (
    ("flops", "floating-point operations a problem"),
    ("tokens", "generated tokens a problem"),
)


class SearchStudy(studies.Certainty):
    """Searches to compare, and the comparison that decides the verdict."""

    policy: str
    """A row of `policies`, sampled and evaluated on the test problems."""
    process: str
    """A row of `rewards`, of kind process."""
    presets: dict[str, SearchConfig]
    way: Way
    """Method to choose an answer among a search's solutions, fixed before the results are seen."""


class Config(SamplingConfig):
    """Keys that the study reads."""

    search: SearchStudy


def main() -> None:
    """Write the rows of each seed, `metrics.json`, `report.md` and `plots/`."""
    with studies.start_study("search") as study:
        config = studies.load_study_config(Config, "search")
        settings, confidence = config.search, config.search.confidence
        sizes = study.for_each_seed(config.seeds, partial(search_solutions, config))
        results_by_preset = {
            name: [
                list(lines.read_lines(study.rows / f"{seed}/{name}_problems.jsonl", ProblemSearch))
                for seed in config.seeds
            ]
            for name in settings.presets
        }
        sampled = [make_curves(config, seed, sizes[seed]) for seed in config.seeds]
        compared = equal_compute.compare_at_equal_compute(
            equal_compute.average_curves(sampled),
            {
                name: search_results.average_searches(of_seeds)
                for name, of_seeds in results_by_preset.items()
            },
            confidence=confidence,
        )
        metrics = compared | {"parameters": {seed: list(sizes[seed]) for seed in config.seeds}}
        draw_equal_compute(study.plots / "equal_compute.png", compared)
        report = render_report(
            compared, image="plots/equal_compute.png", way=settings.way,
            num_seeds=len(config.seeds), confidence=confidence,
        )  # fmt: skip
        study.write(metrics, report)


def search_solutions(config: Config, run: Run, folder: Path) -> tuple[int, int]:
    """Write the solutions of all searches of one seed; returns P of policy and process model.

    P: number of weights in a model's matrices, without embeddings and heads (`models/size`).
    """
    settings, compute, seed = config.search, config.compute, run.seed
    prompts = list(lines.read_lines(PROMPTS / "test.jsonl", Prompt))
    longest = max(len(prompt.prompt_ids) for prompt in prompts)
    starts = range(0, len(prompts), step_search.CHUNK)
    parts = [prompts[start : start + step_search.CHUNK] for start in starts]
    path = DATA / f"rewards/{settings.process}/{seed}/model"
    scorer = process_head.load_process_scorer(path, compute, setup(compute))
    ends = scorer.find_separator_tokens(len(row_policy.load_row_tokenizer(settings.policy, seed)))
    sizes = (size.measure_policy(settings.policy, seed, config.model)["body"],
             size.measure_scorer(path)["body"])  # fmt: skip
    steps = max(preset.max_steps * preset.max_new_tokens for preset in settings.presets.values())
    sampler = config.load_sampler(
        settings.policy, seed, longest + steps, memory_share=vllm_hosting.MEMORY_SHARE_BESIDE
    )
    for name, preset in settings.presets.items():
        steps = step_search.run_searches(sampler, scorer, parts, preset, seed, break_after=ends)
        done = run.track(steps, total=len(parts), label=name)
        rows = [row for step in done for row in step.rows]
        solutions = [row for row in rows if isinstance(row, SearchSolution)]
        by_problem = {key: list(rows) for key, rows in groupby(solutions, key=lambda row: row.id)}
        costs = {row.id: row for row in rows if isinstance(row, SearchCost)}
        results = [
            search_results.evaluate_search(prompt, by_problem[prompt.id], costs[prompt.id], sizes)
            for prompt in prompts
        ]
        lines.write_lines(folder / f"{name}.jsonl", solutions)
        lines.write_lines(folder / f"{name}_problems.jsonl", results)
    return sizes


def make_curves(config: Config, seed: int, sizes: tuple[int, int]) -> dict[str, CostCurve]:
    """Cost curves of the policy's methods to choose among n samples."""
    policy = config.search.policy
    evaluation = DATA / f"evaluations/{policy}/{seed}"
    return equal_compute.make_curves(
        pools.read_split(DATA / f"samples/{policy}/{seed}", "test"),
        list(lines.read_lines(evaluation / "scores.jsonl", Score)),
        list(lines.read_lines(evaluation / "per_problem.jsonl", ProblemResult)),
        sizes,
        config.search.process,
    )


def render_report(
    compared: Mapping[str, Any], *, image: str, way: str, num_seeds: int, confidence: float
) -> str:
    """Report on `equal_compute.compare_at_equal_compute`; `image`: path of the plot."""
    searches = compared["searches"]
    return studies.render(
        "search", image=image, labels=WAYS, titles=TITLES, searches=searches,
        describe_excess=describe_excess,
        curves=[*compared["curves"]],
        ways=list(dict.fromkeys(way for search in searches.values() for way in search["accuracy"])),
        verdict=studies.explain_no_verdict(num_seeds)
        or describe_result(compared, way=way, confidence=confidence),
    )  # fmt: skip


def describe_result(compared: Mapping[str, Any], *, way: str, confidence: float) -> str:
    """Sentences on the gain of each search over each curve, and on the costs of both.

    Comparisons are adjusted by Holm's method. `way`: method to choose an answer among its
    solutions, fixed before the results are seen.
    """
    gains = {
        (name, method): entry["ways"][way]
        for name, search in compared["searches"].items()
        for method, entry in search["versus"]["flops"].items()
        if entry is not None
    }
    p_values = holm_adjusted([gain["p"] for gain in gains.values()])
    adjusted = dict(zip(gains, p_values, strict=True))
    sentences = []
    for name, search in compared["searches"].items():
        phrases: dict[str, list[str]] = {
            "beats": [],
            "cannot be told from": [],
            "is worse than": [],
        }
        for method, entry in search["versus"]["flops"].items():
            if (gain := gains.get((name, method))) is not None:
                word = "cannot be told from"
                if adjusted[name, method] <= 1.0 - confidence:
                    word = "beats" if gain["value"] > 0 else "is worse than"
                times = describe_excess(search["flops"], entry["n_cost"]) if entry["at_end"] else ""
                place = f"with n = {entry['n']}, the largest{times}" if times else "at equal cost"
                phrases[word].append(f"{method} ({markdown.format_points(gain)}) {place}")
        parts = [f"{word} {', '.join(names)}" for word, names in phrases.items() if names]
        what = "; it ".join(parts) or "costs less than one sample by any of the curves"
        sentences.append(f"`{name}`, {WAYS[way]}, {what}.")
    return " ".join(sentences)


def describe_excess(cost: float, n_cost: float) -> str:
    """Words on a search that costs more than samples, after those on the samples; else empty."""
    times = f"{cost / n_cost:.3g}"
    return "" if times == "1" else f", at {times} times their cost"


def draw_equal_compute(path: Path, compared: Mapping[str, Any]) -> None:
    """Plot `equal_compute.compare_at_equal_compute`, against operations and against tokens."""
    colours = plots.assign_colours([*compared["curves"], *compared["searches"]])
    with plots.save_figure(path, width=9.2, height=4.6) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, (unit, label) in zip(panels, PANELS, strict=True):
            for name, curve in compared["curves"].items():
                _curve(axes, name, curve, unit, colours[name])
            for name, search in compared["searches"].items():
                _point(axes, name, search, unit, colours[name])
            axes.set_xscale("log")
            axes.set_xlabel(label)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        panels[0].set_ylabel("test accuracy")
        figure.suptitle("Accuracy against compute, and against generated tokens")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)


def _curve(axes: Axes, name: str, curve: Mapping[str, Any], unit: Unit, colour: str) -> None:
    entries = [curve[n] for n in sorted(curve, key=int)]
    costs, values, lows, highs = (
        [entry[key] for entry in entries] for key in (unit, "value", "low", "high")
    )
    axes.plot(costs, values, "-o", color=colour, label=name, markersize=3)
    axes.fill_between(costs, lows, highs, color=colour, alpha=0.1, linewidth=0)


def _point(axes: Axes, name: str, search: Mapping[str, Any], unit: Unit, colour: str) -> None:
    for way, entry in search["accuracy"].items():
        value, marker = entry["value"], MARKERS[way]
        axes.errorbar(
            search[unit], value, yerr=[[value - entry["low"]], [entry["high"] - value]], fmt=marker,
            color=colour, markersize=7, capsize=2, elinewidth=0.8, label=f"{name}, {WAYS[way]}",
        )  # fmt: skip


if __name__ == "__main__":
    adopt_rounding()
    process.run(main)
