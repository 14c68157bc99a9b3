"""Evaluate a policy on the test problems, from its samples.

    python -m stages.evaluate <policy>

Reads the policy's samples and greedy completions of the test problems, its samples of the dev
problems, and every reward that is a model; writes for each seed what the rewards score
(`scores.jsonl`), every estimate on every problem (`per_problem.jsonl`) and the means
(`metrics.json`). Each seed's samples are scored by the rewards of that seed. All estimates come
from the same N samples, without bias for every k: pass@k (Chen et al. 2021), majority@n exactly
where Wang et al. 2023 vote once, best-of-n by each reward after Nakano et al. 2021, and votes
weighted by each, over the same random subsets. Papers and formulas: stages/algorithms/selection.
Accuracy on the dev problems is for choosing among policies.
"""

from functools import partial
from pathlib import Path
from typing import Any

from stages import params, rows
from stages.algorithms.selection import votes
from stages.algorithms.selection.best_of_n import LEAST_POOL
from stages.loops import work
from stages.models import pool_scorer, size
from stages.models.device import ComputeConfig, setup
from stages.params import Params
from stages.records import lines, pools
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.report import estimates
from stages.report.evaluation_config import EvaluationConfig
from stages.rewards import answer_checker, pool_scores, problem_evaluation, reward_file
from stages.rewards.reward_file import RewardFile
from stages.runtime import outputs, process, runs, seeds
from stages.runtime.seeds import SeedRun
from stages.seeding import derive

REWARDS = rows.DATA / "rewards"
SAMPLES = rows.DATA / "samples"
OUTPUT = rows.DATA / "evaluations"


class Config(Params):
    """What evaluate reads of params.yaml."""

    seeds: list[int]
    compute: ComputeConfig
    evaluation: EvaluationConfig


def main(policy: str) -> None:
    """Write `scores.jsonl`, `per_problem.jsonl` and `metrics.json` of each seed."""
    with runs.start(f"evaluate@{policy}") as run:
        config = params.load(Config)
        rewards = {folder.name: reward_file.read(folder) for folder in sorted(REWARDS.glob("*"))}
        models = {name: one for name, one in rewards.items() if one.kind != "rule"}
        with outputs.replace(OUTPUT / policy) as folder:
            work_of_seed = partial(evaluate, config, policy, models, folder)
            seeds.side_by_side(work_of_seed, config.seeds, run, gpu=True)


def evaluate(
    config: Config, policy: str, rewards: dict[str, RewardFile], folder: Path, run: SeedRun
) -> None:
    """The evaluation of one seed."""
    settings, samples = config.evaluation, SAMPLES / policy / str(run.seed)
    problems = read(samples, "test")
    num_samples = len(problems[0][1])
    check(settings.ks, num_samples, samples)
    grouped = pool_scorer.group(problems, config.compute.row_tokens)
    device, columns = setup(config.compute), {}
    for name, reward in rewards.items():
        chunks = run.track(grouped.chunks, label=f"scored by {name}:")
        columns[name] = pool_scorer.score(
            REWARDS / name, reward, run.seed, chunks, config.compute, device
        )
    scores = pool_scorer.rows(grouped, columns, decimals=settings.decimals)
    aggregations = {
        name: pool_scores.read_aggregation(REWARDS / name / str(run.seed) / pool_scores.AGGREGATION)
        for name, reward in rewards.items()
        if reward.model == "process"
    }
    seed = derive(run.seed, "evaluate")
    orders = votes.nested_subsets(num_samples, num_draws=settings.num_draws, seed=seed)
    of_problem = zip(
        problems, read(samples, "test", "test_greedy"), pools.scores(problems, scores), strict=True
    )
    results = [
        problem_evaluation.evaluate(
            prompt,
            pool,
            greedy,
            pool_scores.by_scorer(pool, of_pool, aggregations),
            ks=settings.ks,
            orders=orders,
        )
        for (prompt, pool), (_, (greedy,)), of_pool in run.track(
            of_problem, total=len(problems), label="problem"
        )
    ]
    metrics: dict[str, Any] = estimates.means(results) | {"dev_accuracy": accuracy(samples, "dev")}
    run.log(0, metrics)
    read_by = [work.passed(name, "read", positions=grouped.positions) for name in rewards]
    sizes = {n: size.of_scorer(reward_file.model(REWARDS / n, run.seed)) for n in rewards}
    metrics |= {"generated_tokens": 0, "work": work.summary(read_by, sizes)}
    path = folder / str(run.seed)
    lines.write(path / "scores.jsonl", scores)
    lines.write(path / "per_problem.jsonl", results)
    outputs.write_json(path / "metrics.json", metrics)


def read(
    samples: Path, split: str, name: str | None = None
) -> list[tuple[Prompt, list[Completion]]]:
    """Each problem of a split with its completions."""
    return pools.by_problem(
        lines.read(rows.PROMPTS / f"{split}.jsonl", Prompt),
        lines.read(samples / f"{name or split}.jsonl", Completion),
    )


def accuracy(samples: Path, split: str) -> float:
    """The share of right samples."""
    right = [
        answer_checker.is_correct(row.completion, prompt.answer)
        for prompt, pool in read(samples, split)
        for row in pool
    ]
    return estimates.rounded(sum(right) / len(right))


def check(ks: list[int], num_samples: int, samples: Path) -> None:
    """Each of `ks` is small enough for this number of samples.

    Raises:
        ValueError: one is not.
    """
    if max(ks) * LEAST_POOL > num_samples:
        raise ValueError(
            f"evaluation.ks: expected numbers up to {num_samples // LEAST_POOL}, a quarter of the "
            f"{num_samples} samples of each problem in {samples}; found {max(ks)}. Lower ks, or "
            f"raise sampling.test.num_samples."
        )


if __name__ == "__main__":
    process.run(main)
