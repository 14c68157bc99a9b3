"""Study: what did a training run do on its way?

    dvc repro stages/studies/dvc.yaml:checkpoints

Samples completions of each dev problem by the policy that a run started from (step 0), by each of
its checkpoints and by the policy that it wrote, with the same random streams; writes, for each
step and problem, how many are right by the answer checker, what a reward model and an ensemble
find them worth, the divergence from the start in nats, length, entropy, truncation and repetition;
and their means with intervals over problems. The split is never `test`: which step is best is
chosen here, and reported there.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from stages import rows
from stages.engines import transformers
from stages.loops import candidates
from stages.loops import checkpoints as kept
from stages.loops.candidates import CandidatesConfig, Pool
from stages.models import model_tokenizer, policy
from stages.models.device import ComputeConfig, setup
from stages.params import Params
from stages.records import lines, pools
from stages.records.problems import Prompt
from stages.rows import DATA, PROMPTS
from stages.runtime import outputs, process
from stages.runtime.seeds import SeedRun
from stages.seeding import derive
from stages.studies import (
    checkpoint_measures,
    checkpoint_results,
    overoptimization_plots,
    overoptimization_report,
)
from stages.studies import study as studies
from stages.studies.checkpoint_measures import Judges
from stages.studies.checkpoint_results import CheckpointResult

DEV = PROMPTS / "dev.jsonl"


class Checkpoints(Params):
    """Which runs are looked at, and how."""

    runs: list[str]
    """Rows of `policies`, of the kinds that keep checkpoints."""
    start: str
    """The row of `policies` that all of them started from."""
    reward: str
    """A row of `rewards`, of the kind preference."""
    sampling: CandidatesConfig
    num_bootstrap: int = Field(ge=100)
    """Resamples of the problems for each interval."""
    confidence: float = Field(gt=0, lt=1)
    """Coverage of the intervals."""


class Config(Params):
    """What the study reads."""

    seeds: list[int]
    compute: ComputeConfig
    checkpoints: Checkpoints


def main(name: str) -> None:
    """Write the rows of each seed, `metrics.json`, `report.md` and `plots/` of one run."""
    with studies.start(f"checkpoints@{name}") as study:
        config = studies.load(Config, "checkpoints")
        found = study.for_each_seed(config.seeds, partial(evaluate, config, name))
        images = overoptimization_plots.draw_run(study.plots, name, found)
        report = overoptimization_report.run(name, found, [f"plots/{image}" for image in images])
        study.write({str(seed): metrics for seed, metrics in found.items()}, report)


def evaluate(config: Config, name: str, run: SeedRun, folder: Path) -> dict[str, Any]:
    """Every policy along the run of one seed."""
    settings, compute, device = config.checkpoints, config.compute, setup(config.compute)
    single, several = checkpoint_measures.scorers(settings.reward, run.seed, compute, device)
    start = rows.model(settings.start, run.seed)
    reference = policy.load(start, compute, device).eval()
    judges = Judges(reference=reference, reward_model=single, ensemble=several)
    prompts = list(lines.read(DEV, Prompt))
    found: list[CheckpointResult] = []
    along = list(policies(name, start, run.seed))
    for step, path in run.track(along):
        of_step = measure(config, step, path, judges, prompts, run.seed)
        run.log(step, {"correct": sum(row.correct for row in of_step) / len(of_step)})
        found += of_step
    lines.write(folder / "problems.jsonl", found)
    metrics = checkpoint_results.summarise(
        found,
        num_resamples=settings.num_bootstrap,
        confidence=settings.confidence,
        seed=derive(run.seed, "checkpoints", "bootstrap"),
    )
    outputs.write_json(folder / "metrics.json", metrics)
    return metrics


def policies(name: str, start: Path, seed: int) -> Iterator[tuple[int, Path]]:
    """(steps taken, folder) of the start, of each checkpoint and of what the run wrote."""
    training = DATA / "policies" / name / "training" / str(seed)
    yield 0, start
    yield from kept.numbered(training / "checkpoints")
    history = (training / "history.jsonl").read_text(encoding="utf-8")
    yield history.count("\n"), rows.model(name, seed)


def measure(
    config: Config, step: int, path: Path, judges: Judges, prompts: list[Prompt], seed: int
) -> list[CheckpointResult]:
    """Sample from one policy, and measure what it drew."""
    drawing, compute = config.checkpoints.sampling, config.compute
    model, tokenizer = policy.load(path, compute, setup(compute)), model_tokenizer.load(path)
    sampler = transformers.from_model(model, tokenizer, max_batch=compute.max_batch)
    pool = Pool(prompts=prompts, config=drawing, stream="dev")
    drawn = candidates.draw(sampler, policy.decoder(tokenizer), prompts, pool, seed)
    pad_id, problems = model_tokenizer.pad_id(tokenizer), pools.by_problem(prompts, drawn)
    return checkpoint_measures.measure(
        model, judges, problems, compute, pad_id, step=step, temperature=drawing.temperature
    )


if __name__ == "__main__":
    process.run(main)
