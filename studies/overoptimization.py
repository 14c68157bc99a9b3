"""Study: does the true reward fall while the proxy rises, where, and does an ensemble help?

    python -m studies overoptimization

Best-of-n is over-optimised only if n is large, and its estimators need pools several times as
large. So large pools for a few dev problems are drawn from each seed's initial policy, and scored
by one reward model and by an ensemble. Curves of trainings, from the study `checkpoints`, whose
parameters name that policy and that reward, are shown beside those of best-of-n. Curves: Gao et al.
2023, https://arxiv.org/abs/2210.10760.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from stages.algorithms.selection import best_of_n
from stages.engines import vllm_hosting
from stages.engines.loading import SamplingConfig
from stages.loops import pool_sampling
from stages.loops.run import Run
from stages.models import model_tokenizer, row_policy
from stages.models.device import setup
from stages.params import adopt_rounding
from stages.records import lines
from stages.report import plots
from stages.report.evaluation_config import Intervals
from stages.runtime import outputs, process
from stages.seeding import derive_seed
from studies import checkpoint_measures, proxy_curves, scored_pools
from studies import study as studies
from studies.checkpoint_measures import CheckpointResult
from studies.checkpoints import Checkpoints
from studies.proxy_curves import BEST_OF_N, GOLD, PROXY, RUN, ProxyCurve
from studies.scored_pools import BestOfNConfig, ScoredProblem

CHECKPOINTS = studies.STUDIES / "checkpoints"
SCORERS = {"reward_model": "one reward model", "ensemble": "the ensemble"}
REWARDS = {PROXY: "proxy", GOLD: "true reward"}
COLOURS = {PROXY: plots.RED, GOLD: plots.BLUE}
LINES = {PROXY: "--", GOLD: "-"}
Measured = Mapping[str, Any]
CURVE = ("method", "name", "scorer")
"""Keys that identify a curve among those of a seed."""
SUMMARY_KEYS = (
    "best_place", "overoptimised", "accuracy_change", "accuracy_after_best", "proxy_change",
)  # fmt: skip
"""Keys of a curve with values that are shown for all seeds side by side."""


class Overoptimization(Intervals):
    """Pools, drawn from `checkpoints.start`, of which `checkpoints.reward` chooses."""

    best_of_n: BestOfNConfig


class Config(SamplingConfig):
    """Keys that the study reads."""

    overoptimization: Overoptimization
    checkpoints: Checkpoints


def main() -> None:
    """Write the rows of each seed, `metrics.json`, `report.md` and `plots/`."""
    with studies.start_study("overoptimization") as study:
        config = studies.load_study_config(Config, "overoptimization")
        study.for_each_seed(config.seeds, partial(measure_seed, config))
        metrics_by_seed = {}
        for seed in config.seeds:
            measured = outputs.read_json(study.rows / str(seed) / "measured.json")
            draw_curves(study.plots / f"seed-{seed}.png", measured["curves"])
            metrics_by_seed[str(seed)] = measured
        metrics = {
            "confidence": config.overoptimization.confidence,
            "over_seeds": summarise_over_seeds(
                [metrics["curves"] for metrics in metrics_by_seed.values()]
            ),
            "seeds": metrics_by_seed,
        }
        images = [f"plots/seed-{seed}.png" for seed in config.seeds]
        study.write(metrics, render_report(metrics, images=images))


def measure_seed(config: Config, run: Run, folder: Path) -> None:
    """Draw and score the pools of one seed, and measure its curves."""
    settings, seed = config.overoptimization, derive_seed(run.seed, "overoptimization")
    pools = list(draw_pools(config, run, seed))
    lines.write_lines(folder / "pools.jsonl", pools)
    curves_by_scorer = {
        scorer: scored_pools.make_pool_curve(config.checkpoints.start, scorer, pools)
        for scorer in SCORERS
    }
    chosen = {
        scorer: curve for scorer, curve in curves_by_scorer.items() if isinstance(curve, ProxyCurve)
    }
    units = {scorer: curve.units for scorer, curve in chosen.items()}
    along = read_run_curves(config.checkpoints.runs, run.seed, units)
    effects = []
    if len(chosen) == len(SCORERS):
        single, several = chosen.values()
        effects = [proxy_curves.compare_ends(single, several, settings, seed)]
    curves = run.track([*chosen.values(), *along], label="curve")
    measured = {
        "curves": [proxy_curves.measure_curve(curve, settings, seed) for curve in curves],
        "effects": effects,
        "left_out": {
            scorer: why for scorer, why in curves_by_scorer.items() if isinstance(why, str)
        },
        "generated_tokens": sum(row.generated_tokens for row in pools),
    }
    outputs.write_json(folder / "measured.json", measured)


def read_run_curves(
    runs: Sequence[str], seed: int, units: Mapping[str, dict[str, float]]
) -> list[ProxyCurve]:
    """Curves of the runs of one seed, in the order of their names."""
    paths = {name: CHECKPOINTS / name / f"rows/{seed}/problems.jsonl" for name in sorted(runs)}
    return [
        curve
        for name, path in paths.items()
        for curve in make_run_curves(name, list(lines.read_lines(path, CheckpointResult)), units)
    ]


def make_run_curves(
    name: str, rows: Sequence[CheckpointResult], units: Mapping[str, dict[str, float]]
) -> list[ProxyCurve]:
    """Curves of a run, one per scorer that has a unit (see `ProxyCurve`) and scored all rows."""
    steps = checkpoint_measures.group_by_step(rows)

    def grid(name: str) -> Float[np.ndarray, "problem point"]:
        problems = zip(*steps.values(), strict=True)
        return np.array([[float(getattr(row, name)) for row in rows] for rows in problems])

    return [
        ProxyCurve(
            method=RUN,
            name=name,
            scorer=scorer,
            places=list(steps),
            kl=grid("kl_k1"),
            proxy=grid(scorer),
            gold=grid("correct"),
            units=unit,
        )
        for scorer, unit in units.items()
        if all(getattr(row, scorer) is not None for row in rows)
    ]


def draw_pools(config: Config, run: Run, seed: int) -> Iterator[ScoredProblem]:
    """The pools of one seed."""
    settings, compute, device = config.overoptimization, config.compute, setup(config.compute)
    policy, reward = config.checkpoints.start, config.checkpoints.reward
    pool = pool_sampling.read_request("dev", settings.best_of_n, "best_of_n")
    scorers = checkpoint_measures.load_scorers(reward, run.seed, compute, device)
    length = pool_sampling.max_length([pool])
    sampler = config.load_sampler(
        policy, run.seed, length, memory_share=vllm_hosting.MEMORY_SHARE_BESIDE
    )
    pool = replace(pool, prompts=pool.prompts[: settings.best_of_n.num_problems])
    decode = model_tokenizer.make_decode(row_policy.load_row_tokenizer(policy, run.seed))
    steps = scored_pools.score_pools(sampler, decode, scorers, pool, compute.row_tokens, seed)
    for step in run.track(steps, label="best-of-n"):
        yield from step.rows


def summarise_over_seeds(seeds: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Verdicts of all seeds side by side, for each curve that every seed has.

    A seed lacks a curve if its pools do not suffice for that scorer, such as when all completions
    of a problem have one score; the seed's section of the report has the reason.
    """
    by_curve = [{tuple(curve[key] for key in CURVE): curve for curve in curves} for curves in seeds]
    rows = []
    for curve in by_curve[0]:
        if not all(curve in curves for curves in by_curve):
            continue
        row = dict[str, Any](zip(CURVE, curve, strict=True))
        for name in SUMMARY_KEYS:
            values = [curves[curve][name] for curves in by_curve]
            row[name] = [value["value"] if isinstance(value, dict) else value for value in values]
        rows.append(row)
    return rows


def render_report(metrics: Measured, *, images: Sequence[str]) -> str:
    """The report on `data/studies/overoptimization/metrics.json`; `images`: paths of the plots."""
    return studies.render(
        "overoptimization", images=images, best_of_n=BEST_OF_N,
        no_verdict=studies.explain_no_verdict(len(metrics["seeds"])),
        name_curve=name_curve, select_points=select_points, kl_bound=best_of_n.kl_bound, **metrics,
    )  # fmt: skip


def select_points(curve: Measured) -> list[Measured]:
    """The points that are shown: for best-of-n only the powers of two and the last."""
    points = curve["points"]
    if curve["method"] != BEST_OF_N:
        return list(points)
    return [
        point
        for point in points
        if not point["place"] & (point["place"] - 1) or point is points[-1]
    ]


def name_curve(curve: Measured) -> str:
    """Name such as `best-of-n from sft, by the ensemble` or `ppo, scored by one reward model`."""
    by = "by" if curve["method"] == BEST_OF_N else "scored by"
    return f"{_row(curve)}, {by} {SCORERS[curve['scorer']]}"


def _row(curve: Measured) -> str:
    is_best_of_n = curve["method"] == BEST_OF_N
    return f"best-of-n from {curve['name']}" if is_best_of_n else curve["name"]


def draw_curves(path: Path, curves: Sequence[Measured]) -> None:
    """Plot the curves of a seed: one row of panels per method, one column per scorer."""
    methods = list(dict.fromkeys(_row(curve) for curve in curves)) or [""]
    scorers = list(dict.fromkeys(curve["scorer"] for curve in curves)) or [PROXY]
    with plots.save_figure(path, width=4.6 * len(scorers), height=3.1 * len(methods)) as figure:
        grid = figure.subplots(len(methods), len(scorers), squeeze=False, sharey="row")
        for axes in grid.flat:
            axes.set_visible(not curves)
        for curve in curves:
            axes = grid[methods.index(_row(curve))][scorers.index(curve["scorer"])]
            axes.set_visible(True)
            _panel(axes, curve)
        if not curves:
            grid[0][0].text(0.5, 0.5, "nothing to choose by", ha="center")


def _panel(axes: Axes, curve: Measured) -> None:
    points, keys = select_points(curve), ("value", "low", "high")
    for reward, label in REWARDS.items():
        values, low, high = (np.array([point[reward][key] for point in points]) for key in keys)
        axes.errorbar(
            [point["distance"] for point in points], values,
            yerr=np.maximum([values - low, high - values], 0.0),
            fmt="o" if reward == GOLD else "s", markersize=4, color=COLOURS[reward],
            markerfacecolor=COLOURS[reward] if reward == GOLD else "white",
            linestyle=LINES[reward], capsize=2, linewidth=1, label=label,
        )  # fmt: skip
    axes.axhline(0, color=plots.GREY, linewidth=0.8)
    axes.set_xlabel("square root of KL from the start, nats")
    axes.set_ylabel("reward, standard deviations")
    axes.set_title(f"{_row(curve)}: {SCORERS[curve['scorer']]}")
    axes.margins(y=0.15)
    axes.legend(fontsize=8)


if __name__ == "__main__":
    adopt_rounding()
    process.run(main)
