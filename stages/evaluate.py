"""Evaluate a policy on the test problems, from its samples.

    python -m stages evaluate <policy>

Reads the policy's samples and greedy completions of the test problems, its samples of the dev
problems, and every reward that is a model; writes for each seed what the rewards of that seed score
(`scores.jsonl`), every estimate on every problem (`per_problem.jsonl`) and the means. All estimates
come from the same N samples, without bias for every k: pass@k (Chen et al. 2021), majority@n
exactly where Wang et al. 2023 vote once, best-of-n by each reward after Nakano et al. 2021, and
votes weighted by each, over the same random subsets. Papers and formulas: stages/algorithms/
selection. The accuracy on the dev problems serves to choose among policies. Accuracies at each
temperature, on both splits (`temperatures.jsonl`), serve to choose a temperature for each policy.
For prompts without a gold answer only the scores of each reward are written.
"""

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
from stages.records import pools, temperatures
from stages.report import estimates
from stages.report.evaluation_config import EvaluationConfig
from stages.rewards import pool_scores, problem_evaluation, reward_file, temperature_accuracy
from stages.rows import DATA
from stages.runtime import process
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
    """The evaluation of one seed."""
    config, row = run.config, run.row
    settings, samples = config.evaluation, DATA / "samples" / row.name / str(run.seed)
    rewards = reward_file.read_model_rewards(REWARDS)
    problems = pools.read_split(samples, "test")
    num_samples = len(problems[0][1])
    settings.check(num_samples, samples)
    greedy_of = pools.read_split(samples, "test", "test_greedy")
    dev = pools.read_split(samples, "dev")
    in_loop: dict[str, float] = {}
    for name, of_problems in {"test": problems, "test_greedy": greedy_of, "dev": dev}.items():
        completions = [row for _, problem_rows in of_problems for row in problem_rows]
        in_loop |= settings.check_cut(completions, samples / f"{name}.jsonl")
    grouped = pool_scorer.group_samples(problems, config.compute.row_tokens)
    device, columns = setup(config.compute), {}
    for name, reward in rewards.items():
        model = reward_file.model_path(REWARDS / name, run.seed)
        score = partial(
            pool_scorer.score_chunks, model, reward, grouped.chunks, config.compute, device,
            settings.decimals,
        )  # fmt: skip
        parts = run.keep_parts(name, score)
        sizes = [sum(group.length() for group in chunk) for chunk in grouped.chunks]
        tracked = run.track(parts, label=f"{name} scores", unit="tokens", sizes=sizes)
        columns[name] = list(chain.from_iterable(tracked))
    scores = pool_scorer.score_rows(grouped, columns)
    process_models = [name for name, reward in rewards.items() if reward.model == "process"]
    choices = {n: pool_scores.read_aggregation(REWARDS / n / str(run.seed)) for n in process_models}
    seed = derive_seed(run.seed, "evaluate")
    orders = votes.nested_subsets(num_samples, num_draws=settings.num_draws, seed=seed)
    scored = pools.align_scores(problems, scores)
    of_problem = run.track(
        list(zip(problems, greedy_of, scored, strict=True)), label="test", unit="problems"
    )
    results, unchecked, num_right = [], [], 0.0
    for (prompt, pool), (_, (greedy,)), of_pool in of_problem:
        by_scorer = pool_scores.score_pool(prompt, pool, of_pool, choices)
        if prompt.answer is None:
            problem_scores = {name: by_scorer[name] for name in rewards}
            unchecked.append(problem_evaluation.summarise_scores(prompt, pool, problem_scores))
            continue
        results.append(
            problem_evaluation.evaluate_problem(
                prompt, pool, greedy, by_scorer, ks=settings.ks, orders=orders
            )
        )
        num_right += results[-1].mean_accuracy
        run.progress.watch({"right": num_right / len(results)})
    metrics = (
        estimates.average_scores(unchecked) if unchecked else estimates.average_results(results)
    )
    if results:
        metrics["dev_accuracy"] = estimates.round_metric(problem_evaluation.pool_accuracy(dev))
    run.log(0, metrics | in_loop)
    read_by = [work.count_passes(name, "read", positions=grouped.positions) for name in rewards]
    sizes = {n: size.measure_scorer(reward_file.model_path(REWARDS / n, run.seed)) for n in rewards}
    run.write("scores.jsonl", scores)
    run.write("per_problem.jsonl", results or unchecked)
    run.write(temperatures.FILE, temperature_accuracy.read_accuracies(samples))
    return metrics | in_loop | {"generated_tokens": 0, "work": work.sum_work(read_by, sizes)}


if __name__ == "__main__":
    process.run(main)
