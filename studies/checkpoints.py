"""Study: how did a policy change during its training?

    python -m studies checkpoints

Samples completions of each dev problem with the initial policy of a run (step 0), with each of its
intermediate policies and with its final policy, with the same random streams. Writes the measures
of `checkpoint_measures` for each step and problem, and their means with intervals over problems.
The split is never `test`: the best step is chosen here, and reported there.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from stages import rows
from stages.config import Params
from stages.engines import transformers
from stages.loops import pool_sampling
from stages.loops.pool_sampling import PoolRequest, PoolSamplingConfig
from stages.loops.run import Run
from stages.loops.training import POLICY_PREFIX
from stages.models import model_tokenizer, policy
from stages.models.device import ComputeConfig, setup
from stages.models.policy import Policy
from stages.params import adopt_rounding
from stages.records import lines, pools
from stages.report import plots
from stages.report.evaluation_config import Intervals
from stages.rows import DATA
from stages.runtime import outputs, process
from stages.seeding import derive_seed
from studies import checkpoint_measures
from studies import study as studies
from studies.checkpoint_measures import CheckpointResult, Scorers

Seeds = Mapping[int, Mapping[str, Any]]
"""Seed -> summary of `checkpoint_measures.summarise_checkpoints`."""
PANELS = {
    "correct": "True accuracy (dev)",
    "reward_model": "Score by one reward model",
    "ensemble": "Score by the ensemble",
    "ensemble_std": "Disagreement of its members",
    "kl_k1": "KL from the start, nats",
    "entropy": "Entropy, nats a token",
    "tokens": "Tokens of a completion",
    "truncated": "Cut at the limit",
    "repetition": "Repeated runs of 4 tokens",
}


class Checkpoints(Intervals):
    """Training runs to measure, and the settings of the measurement."""

    runs: list[str]
    """Rows of `policies` with intermediate policies."""
    start: str
    """The row of `policies` that all runs started from."""
    reward: str
    """A row of `rewards` of kind preference."""
    sampling: PoolSamplingConfig


class Config(Params):
    """Keys that the study reads."""

    seeds: list[int]
    compute: ComputeConfig
    checkpoints: Checkpoints


def main(name: str) -> None:
    """Write the rows of each seed, `metrics.json`, `report.md` and `plots/` of one run."""
    with studies.start_study(f"checkpoints@{name}") as study:
        config = studies.load_study_config(Config, "checkpoints")
        steps_by_seed = study.for_each_seed(
            config.seeds, partial(evaluate_checkpoints, config, name)
        )
        draw_measures(study.plots / "training.png", name, steps_by_seed)
        study.write(
            {str(seed): metrics for seed, metrics in steps_by_seed.items()},
            studies.render("checkpoints", name=name, seeds=steps_by_seed),
        )


def evaluate_checkpoints(config: Config, name: str, run: Run, folder: Path) -> dict[str, Any]:
    """Evaluations of all intermediate policies of one seed."""
    settings, compute, device = config.checkpoints, config.compute, setup(config.compute)
    judges = checkpoint_measures.load_scorers(settings.reward, run.seed, compute, device)
    start = rows.locate_policy(settings.start, run.seed)
    reference = Policy(policy.load_policy(start, compute, device, trained=False), compute).eval()
    pool = pool_sampling.read_request("dev", settings.sampling, "dev")
    results: list[CheckpointResult] = []
    for step, path in run.track(list(load_policies(name, start, run.seed))):
        of_step = measure_policy(config, step, path, reference, judges, pool, run.seed)
        run.log(step, {"correct": sum(row.correct for row in of_step) / len(of_step)})
        results += of_step
    lines.write_lines(folder / "problems.jsonl", results)
    metrics = checkpoint_measures.summarise_checkpoints(
        results, num_resamples=settings.num_bootstrap, confidence=settings.confidence,
        seed=derive_seed(run.seed, "checkpoints", "bootstrap"),
    )  # fmt: skip
    outputs.write_json(folder / "metrics.json", metrics)
    return metrics


def load_policies(name: str, start: Path, seed: int) -> Iterator[tuple[int, Path]]:
    """(step, folder) of the initial, each intermediate and the final policy of a run."""
    training = DATA / "policies" / name / "training" / str(seed)
    yield 0, start
    folders = (training / "checkpoints").glob(f"{POLICY_PREFIX}*")
    yield from sorted((int(path.name.removeprefix(POLICY_PREFIX)), path) for path in folders)
    history = (training / "history.jsonl").read_text(encoding="utf-8")
    yield history.count("\n"), rows.locate_policy(name, seed)


def measure_policy(
    config: Config, step: int, path: Path, reference: Policy, judges: Scorers,
    pool: PoolRequest, seed: int,
) -> list[CheckpointResult]:  # fmt: skip
    """Sample from one policy, and measure the completions."""
    compute, prompts = config.compute, pool.prompts
    model = policy.load_policy(path, compute, setup(compute), trained=False)
    tokenizer = model_tokenizer.load_tokenizer(path)
    sampler = transformers.make_sampler(model, tokenizer, max_batch=compute.max_batch)
    pools_of_prompts = pool_sampling.draw(
        sampler, model_tokenizer.make_decode(tokenizer), prompts, pool, seed
    )
    problems = pools.join_prompts(prompts, pools_of_prompts)
    return checkpoint_measures.measure_checkpoint(
        Policy(model, compute, model_tokenizer.pad_id(tokenizer)), reference, judges, problems,
        step=step, temperature=pool.config.temperature,
    )  # fmt: skip


def draw_measures(path: Path, name: str, seeds: Seeds) -> None:
    """Plot each quantity by step in a panel, with one line per seed."""
    with plots.save_figure(path, width=9.6, height=7.6) as figure:
        figure.suptitle(name, x=0.02, ha="left", fontweight="bold")
        for axes, (quantity, title) in zip(figure.subplots(3, 3).flat, PANELS.items(), strict=True):
            axes.set_title(title, fontsize=10)
            axes.set_xlabel("step")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
            _lines(axes, seeds, quantity)
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper right")


def _lines(axes: Axes, seeds: Seeds, quantity: str) -> None:
    """Draw a quantity by step with its interval, one line per seed; or that it is not scored."""
    colours = plots.assign_colours(["", *map(str, seeds)])
    for seed, run in seeds.items():
        steps, colour = run["steps"], colours[str(seed)]
        estimates = [metrics[quantity] for metrics in steps.values()]
        axes.axvline(run["best_step"], color=colour, linestyle=":", linewidth=1)
        if None not in estimates:
            values, low, high = (
                [estimate[key] for estimate in estimates] for key in ("value", "low", "high")
            )
            places = list(map(int, steps))
            axes.plot(places, values, "o-", color=colour, markersize=4, label=f"seed {seed}")
            axes.fill_between(places, low, high, color=colour, alpha=0.2, lw=0)
    if not axes.collections:
        axes.text(0.5, 0.5, "not scored", transform=axes.transAxes, ha="center")


if __name__ == "__main__":
    adopt_rounding()
    process.run(main)
