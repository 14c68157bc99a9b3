"""Evaluate one policy on the test problems, offline, from its pool of completions.

    python -m stages.evaluate_policy <name> <pool> <scores> <aggregation>

Reads the test prompts, the policy's N sampled completions and its greedy completion of
each, what scorers made of them, and how the scores of steps become one; writes accuracies with
confidence intervals over problems (`metrics.json`) and what they are made of
(`per_problem.jsonl`). Everything comes from one pool, without bias for every k: pass@k (Chen et
al. 2021), majority@n exactly where Wang et al. 2023 vote once over the whole pool, best-of-n by
each scorer after Nakano et al. 2021, and votes weighted by each, over the same random subsets.
Papers and formulas: stages/algorithms/selection.
"""

import logging
from pathlib import Path

import pydantic

from stages import params, seeding
from stages.algorithms.selection.best_of_n import LEAST_POOL
from stages.params import Params
from stages.records import lines, pools
from stages.records.pools import Completion, Score
from stages.records.problems import Prompt
from stages.reports import policy_metrics
from stages.rewards import aggregation, policy_evaluation
from stages.rewards.policy_evaluation import Pools
from stages.runtime import outputs, process, progress, runs

logger = logging.getLogger(__name__)

DATA = Path("data")
PROMPTS = DATA / "prepare_data/prompts/test.jsonl"
POOLS = DATA / "sample_candidates"
OUTPUT = DATA / "evaluate_policy"


class EvaluatePolicy(Params):
    """What is estimated and how sure we are of it."""

    ks: list[pydantic.PositiveInt] = pydantic.Field(min_length=1)
    """Numbers of samples for pass@k, votes and best-of-n; none above a quarter of the pool."""
    num_draws: pydantic.PositiveInt
    """Random subsets that a vote by weight is averaged over, the same for all scorers."""
    num_bootstrap: int = pydantic.Field(ge=100)
    """Resamples of the problems for each interval."""
    confidence: float = pydantic.Field(gt=0, lt=1)
    """Coverage of the intervals."""


class Config(Params):
    """What evaluate_policy reads of params.yaml."""

    seed: int
    evaluate_policy: EvaluatePolicy


def main(policy: str, pool: str, scores: str, aggregation_of: str) -> None:
    """Write `metrics.json` and `per_problem.jsonl` of one policy."""
    output = OUTPUT / policy
    with runs.start(f"evaluate_policy@{policy}", output) as run:
        config = params.load(Config)
        section = config.evaluate_policy
        seed = seeding.derive(config.seed, "evaluate_policy")
        read_pools = read(pool, scores, aggregation_of, section.ks)
        evaluated = policy_evaluation.evaluate(
            read_pools, ks=section.ks, num_draws=section.num_draws, seed=seed
        )
        total = len(read_pools.problems)
        results = list(progress.track(evaluated, total=total, label=f"evaluate {policy}"))
        metrics = policy_metrics.summarise(
            results,
            num_resamples=section.num_bootstrap,
            confidence=section.confidence,
            seed=seed,
        )
        run.log(0, policy_metrics.flattened(metrics))
        with outputs.replace(output / "per_problem.jsonl") as temporary:
            lines.write(temporary, results)
        outputs.write_json(output / "metrics.json", metrics)


def read(pool: str, scores: str, aggregation_of: str, ks: list[int]) -> Pools:
    """Everything that was sampled and scored.

    Raises:
        ValueError: more samples are asked for than the pool allows.
    """
    folder = POOLS / pool
    prompts = list(lines.read(PROMPTS, Prompt))
    problems = pools.by_problem(prompts, lines.read(folder / "pool.jsonl", Completion))
    num_samples = len(problems[0][1])
    if max(ks) * LEAST_POOL > num_samples:
        raise ValueError(
            f"evaluate_policy.ks: expected numbers up to {num_samples // LEAST_POOL}, a quarter of "
            f"the {num_samples} completions of each problem in {folder / 'pool.jsonl'}; found "
            f"{max(ks)}. Lower ks, or raise sample_candidates.test.num_samples."
        )
    return Pools(
        problems=problems,
        greedy=pools.by_problem(prompts, lines.read(folder / "greedy.jsonl", Completion)),
        scores=list(lines.read(DATA / f"{scores}.jsonl", Score)),
        aggregation=aggregation.read(DATA / f"{aggregation_of}.json"),
    )


if __name__ == "__main__":
    process.run(main)
