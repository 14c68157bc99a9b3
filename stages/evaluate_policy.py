"""Evaluate one policy on the test problems, offline, from its pool of completions.

    python -m stages.evaluate_policy <name> <pool> <scores>

Reads the test prompts, the policy's N sampled completions and its greedy completion of
each, and the scorer's scores; writes accuracies with confidence intervals over
problems (`metrics.json`) and what they are made of (`per_problem.jsonl`). Everything
comes from one pool, without bias for every k up to N: pass@k (Chen et al. 2021),
majority@n exactly where Wang et al. 2023 vote once over the whole pool, and best-of-n
after Nakano et al. 2021. Papers and formulas: stages/algorithms/selection.
"""

import json
import logging
from pathlib import Path

import pydantic

from stages import params, seeding
from stages.params import Params
from stages.records import lines, pools
from stages.records.completion import Completion
from stages.records.problem_result import ProblemResult
from stages.records.prompt import Prompt
from stages.records.score import Score
from stages.reports import policy_metrics
from stages.rewards import problem_evaluation
from stages.runtime import outputs, process, progress, runs

logger = logging.getLogger(__name__)

PROMPTS = Path("data/prepare_data/prompts/test.jsonl")
POOLS = Path("data/sample_candidates")
SCORES = Path("data/score_candidates")
OUTPUT = Path("data/evaluate_policy")


class EvaluatePolicy(Params):
    """What is estimated and how sure we are of it."""

    ks: list[pydantic.PositiveInt] = pydantic.Field(min_length=1)
    """Numbers of samples for pass@k, majority@n and best-of-n; none larger than the pool."""
    num_bootstrap: int = pydantic.Field(ge=100)
    """Resamples of the problems for each interval."""
    confidence: float = pydantic.Field(gt=0, lt=1)
    """Coverage of the intervals."""


class Config(Params):
    """What evaluate_policy reads of params.yaml."""

    seed: int
    evaluate_policy: EvaluatePolicy


def main(policy: str, pool: str, scores: str) -> None:
    """Write `metrics.json` and `per_problem.jsonl` of one policy."""
    output = OUTPUT / policy
    with runs.start(f"evaluate_policy@{policy}", output) as run:
        config = params.load(Config)
        section = config.evaluate_policy
        results = evaluate(pool, scores, section.ks, label=policy)
        metrics = policy_metrics.summarise(
            results,
            num_resamples=section.num_bootstrap,
            confidence=section.confidence,
            seed=seeding.derive(config.seed, "evaluate_policy"),
        )
        run.log(0, policy_metrics.flattened(metrics))
        with outputs.replace(output / "per_problem.jsonl") as temporary:
            lines.write(temporary, results)
        with outputs.replace(output / "metrics.json") as temporary:
            temporary.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")


def evaluate(pool_name: str, scores_name: str, ks: list[int], *, label: str) -> list[ProblemResult]:
    """Each test problem's results, in the order of the prompts.

    Raises:
        ValueError: more samples are asked for than the pool holds.
    """
    folder = POOLS / pool_name
    prompts = list(lines.read(PROMPTS, Prompt))
    problems = pools.by_problem(prompts, lines.read(folder / "pool.jsonl", Completion))
    greedy = pools.by_problem(prompts, lines.read(folder / "greedy.jsonl", Completion))
    scores = pools.scores(problems, lines.read(SCORES / scores_name / "scores.jsonl", Score))
    num_samples = len(problems[0][1])
    if max(ks) > num_samples:
        raise ValueError(
            f"evaluate_policy.ks: expected numbers up to {num_samples}, the completions of each "
            f"problem in {folder / 'pool.jsonl'}; found {max(ks)}. Lower ks, or raise "
            f"sample_candidates.test.num_samples."
        )
    rows = zip(problems, greedy, scores, strict=True)
    return [
        problem_evaluation.evaluate(prompt, pool, one_greedy[0], pool_scores, ks=ks)
        for (prompt, pool), (_, one_greedy), pool_scores in progress.track(
            rows, total=len(problems), label=f"evaluate {label}"
        )
    ]


if __name__ == "__main__":
    process.run(main)
