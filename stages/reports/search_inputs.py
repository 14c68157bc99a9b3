"""What searches and samples of the baseline are compared by: accuracy of each problem, and cost."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from stages.recipe import Recipe
from stages.records import pools
from stages.records.completion import Completion
from stages.records.problem_result import ProblemResult
from stages.records.problem_search import ProblemSearch
from stages.records.prompt import Prompt
from stages.records.score import Score
from stages.reports import sampling_cost
from stages.reports.equal_compute import Curve, Searched

METHODS = {
    "majority": "majority",
    "best_of/mean_logprob": "best-of-n, own log-prob",
    "best_of/process": "best-of-n, process",
    "weighted/process": "weighted vote, process",
}
"""Methods of evaluate_policy -> what they are called; those by the process model pay for it."""
WAYS = ("best", "weighted", "majority")


def comparable(plan: Recipe) -> list[str]:
    """The searches by the baseline's policy of the problems that it was evaluated on."""
    pool = plan.sample_candidates[plan.evaluate_policy[plan.baseline].pool]
    return sorted(
        name
        for name, entry in plan.search_solutions.items()
        if (entry.policy, entry.split) == (pool.policy, pool.split)
    )


def sizes(data: Path, names: Sequence[str]) -> tuple[int, int]:
    """Parameters of the policy and of the process model, as the first search counted them."""
    path = data / f"search_solutions/{names[0]}/metrics.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    return found["policy_parameters"], found["process_parameters"]


def searched(rows: Sequence[ProblemSearch]) -> Searched:
    """One search."""
    return Searched(
        accuracy={way: np.array([float(getattr(row, way)) for row in rows]) for way in WAYS},
        costs={
            "flops": float(np.mean([row.flops for row in rows])),
            "flops_once": float(np.mean([row.flops_once for row in rows])),
            "tokens": float(np.mean([row.generated_tokens for row in rows])),
        },
    )


def curves(
    problems: Sequence[tuple[Prompt, list[Completion]]],
    scores: Sequence[Score],
    results: Sequence[ProblemResult],
    parameters: tuple[int, int],
) -> dict[str, Curve]:
    """Each method of `METHODS` that the baseline was evaluated by.

    Args:
        problems: the baseline's pool.
        scores: of it; the steps that the process model read are counted from these.
        results: of evaluate_policy, in the order of `problems`.
        parameters: of the policy and of the process model.
    """
    ns = [int(n) for n in results[0].accuracy_at["majority"]]
    prompts = [len(prompt.prompt_ids) for prompt, _ in problems]
    tokens = [[row.completion_ids for row in pool] for _, pool in problems]
    means = [float(np.mean([len(ids) for ids in pool])) for pool in tokens]
    generation = sampling_cost.generation(prompts, means, parameters[0], ns)
    scoring: Mapping[int, float] = dict.fromkeys(ns, 0.0)
    if scores and scores[0].steps is not None:
        steps = {
            tuple(row.completion_ids): len(score.steps or [])
            for (_, pool), own in zip(problems, pools.scores(problems, scores), strict=True)
            for row, score in zip(pool, own, strict=True)
        }
        scoring = sampling_cost.scoring(
            prompts, tokens, parameters[1], ns, step_tokens=lambda ids: steps[tuple(ids)]
        )
    return {
        label: Curve(
            accuracy={
                n: np.array([row.accuracy_at[method][str(n)] for row in results]) for n in ns
            },
            costs={
                "flops": {
                    n: generation[n] + (scoring[n] if "process" in method else 0.0) for n in ns
                },
                "tokens": {n: n * float(np.mean(means)) for n in ns},
            },
        )
        for method, label in METHODS.items()
        if method in results[0].accuracy_at
    }
