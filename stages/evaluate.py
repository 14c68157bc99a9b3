"""Evaluate a policy on the test problems, from its samples.

    python -m stages evaluate <policy>

Reads the policy's samples and greedy completions of the test problems, its samples of the dev
problems, and every reward that is a model; writes for each seed the scores by that seed's rewards
(`scores.jsonl`), every estimate on every problem (`per_problem.jsonl`) and the means. All estimates
come from the same N samples, without bias for every k: pass@k (Chen et al. 2021), majority@n
exactly (Wang et al. 2023 vote once), best-of-n by each reward (Nakano et al. 2021), and votes
weighted by each reward, over the same random subsets. Papers and formulas: stages/algorithms/
selection. The accuracy on the dev problems serves to choose a policy, accuracies at each
temperature on both splits (`temperatures.jsonl`) to choose its temperature. For prompts without a
gold answer only the scores of each reward are written. A policy with too many truncated completions
is not evaluated: its files are empty, and the report says so.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from stages import stage
from stages.algorithms.selection import votes
from stages.config import Params
from stages.loops import work
from stages.loops.run import Run
from stages.models import pool_scorer, size
from stages.models.device import ComputeConfig, setup
from stages.models.pool_scorer import GroupedSamples, SampledProblem, ScoreColumn
from stages.records import pools, temperatures
from stages.records.pools import Score
from stages.report import estimates
from stages.report.evaluation_config import CUT, EvaluationConfig
from stages.rewards import pool_scores, problem_evaluation, reward_file
from stages.rewards.problem_evaluation import ProblemResult, ScoredPrompt
from stages.rewards.reward_file import RewardFile
from stages.rows import DATA
from stages.seeding import derive_seed

REWARDS = DATA / "rewards"


class Config(Params):
    """Keys of params.yaml that evaluate reads."""

    seeds: list[int]
    compute: ComputeConfig
    evaluation: EvaluationConfig


def main(*words: str) -> None:
    """Write `scores.jsonl`, `per_problem.jsonl`, `temperatures.jsonl` and `metrics.json`."""
    stage.run(evaluate, words, Config, gpu=True)


def evaluate(run: Run) -> dict[str, Any]:
    """Write the evaluation of one seed; returns its metrics."""
    config, settings = run.config, run.config.evaluation
    samples = DATA / "samples" / run.row.name / str(run.seed)
    rewards = reward_file.read_model_rewards(REWARDS)
    problems = pools.read_split(samples, "test")
    settings.check(len(problems[0][1]), samples)
    greedy = pools.read_split(samples, "test", "test_greedy")
    dev = pools.read_split(samples, "dev")
    truncation: dict[str, float] = {}
    for name, split in {"test": problems, "test_greedy": greedy, "dev": dev}.items():
        completions = [row for _, pool in split for row in pool]
        truncation |= settings.check_cut(completions, samples / f"{name}.jsonl")
    if any(key.startswith(CUT) for key in truncation):
        run.log(0, truncation)
        for name in ("scores.jsonl", "per_problem.jsonl", temperatures.FILE):
            run.write(name, [])
        return truncation | {"generated_tokens": 0, "work": {}}
    grouped = pool_scorer.group_samples(problems, config.compute.row_tokens)
    scores = score_samples(run, rewards, grouped)
    results, unchecked = evaluate_problems(run, rewards, problems, greedy, scores)
    metrics = (
        estimates.average_scores(unchecked) if unchecked else estimates.average_results(results)
    )
    if results:
        metrics["dev_accuracy"] = estimates.round_metric(problem_evaluation.pool_accuracy(dev))
    run.log(0, metrics | truncation)
    run.write("scores.jsonl", scores)
    run.write("per_problem.jsonl", results or unchecked)
    run.write(temperatures.FILE, problem_evaluation.read_temperatures(samples))
    read_by = [work.count_passes(name, "read", positions=grouped.positions) for name in rewards]
    sizes = {n: size.measure_scorer(reward_file.model_path(REWARDS / n, run.seed)) for n in rewards}
    return metrics | truncation | {"generated_tokens": 0, "work": work.sum_work(read_by, sizes)}


def score_samples(
    run: Run, rewards: Mapping[str, RewardFile], grouped: GroupedSamples
) -> list[Score]:
    """Scores of every sample by every reward model; resumes a killed run."""
    compute, decimals = run.config.compute, run.config.evaluation.decimals
    device = setup(compute)
    sizes = [sum(group.length() for group in chunk) for chunk in grouped.chunks]
    columns: dict[str, ScoreColumn] = {}
    for number, (name, reward) in enumerate(rewards.items(), start=1):
        model = reward_file.model_path(REWARDS / name, run.seed)
        score = partial(
            pool_scorer.score_chunks, model, reward, grouped.chunks, compute, device, decimals
        )
        parts = run.keep_parts(name, score)
        after = sum(sizes) * (len(rewards) - number)
        tracked = run.track(parts, label=f"{name} scores", unit="tokens", sizes=sizes, after=after)
        columns[name] = list(chain.from_iterable(tracked))
    return pool_scorer.score_rows(grouped, columns)


def evaluate_problems(
    run: Run, rewards: Mapping[str, RewardFile], problems: Sequence[SampledProblem],
    greedy: Sequence[SampledProblem], scores: Sequence[Score],
) -> tuple[list[ProblemResult], list[ScoredPrompt]]:  # fmt: skip
    """Evaluations of the problems with a gold answer, and summaries of the prompts without one."""
    settings, seed = run.config.evaluation, derive_seed(run.seed, "evaluate")
    aggregations = {
        name: pool_scores.read_aggregation(REWARDS / name / str(run.seed))
        for name, reward in rewards.items()
        if reward.model == "process"
    }
    orders = votes.nested_subsets(len(problems[0][1]), num_draws=settings.num_draws, seed=seed)
    scores_by_problem = pools.align_scores(problems, scores)
    rows = list(zip(problems, greedy, scores_by_problem, strict=True))
    results, unchecked, sum_right = list[ProblemResult](), list[ScoredPrompt](), 0.0
    for (prompt, pool), (_, (greedy_row,)), pool_rows in run.track(
        rows, label="test", unit="problems", after=0
    ):
        views = pool_scores.score_pool(prompt, pool, pool_rows, aggregations)
        if prompt.answer is None:
            of_rewards = {name: views[name] for name in rewards}
            unchecked.append(problem_evaluation.summarise_scores(prompt, pool, of_rewards))
            continue
        result = problem_evaluation.evaluate_problem(
            prompt, pool, greedy_row, views, ks=settings.ks, orders=orders
        )
        results.append(result)
        sum_right += result.mean_accuracy
        run.progress.watch({"right": sum_right / len(results)})
    return results, unchecked
