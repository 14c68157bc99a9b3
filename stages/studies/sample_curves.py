"""What n samples of a problem are worth and cost, counted as a search is, by way to choose."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from stages.algorithms.selection.best_of_n import distinct_cost
from stages.records import pools
from stages.records.pools import Completion, Score
from stages.records.problems import Prompt
from stages.records.results import ProblemResult
from stages.studies.equal_compute import Curve


def methods(process: str) -> dict[str, str]:
    """Methods of evaluate -> what they are called; those by the process model pay for it."""
    return {
        "majority": "majority",
        "best_of/mean_logprob": "best-of-n, own log-prob",
        f"best_of/{process}": "best-of-n, process",
        f"weighted/{process}": "weighted vote, process",
    }


def generation_cost(
    prompt_tokens: Sequence[int], mean_tokens: Sequence[float], parameters: int, ns: Sequence[int]
) -> dict[int, float]:
    """Mean floating-point operations of n samples of a problem: 2 P for each token.

    The prompt is read once for all samples of a problem, and every generated token passes once:

        2 P (prompt + n * completion)

    Args:
        prompt_tokens: of each problem.
        mean_tokens: of each problem, the mean of its completions.
        parameters: P of the policy, see `models/size`.
        ns: numbers of samples.
    """
    prompt, completion = float(np.mean(prompt_tokens)), float(np.mean(mean_tokens))
    return {n: 2.0 * parameters * (prompt + n * completion) for n in ns}


def scoring_cost(
    prompt_tokens: Sequence[int],
    pools: Sequence[Sequence[Sequence[int]]],
    parameters: int,
    ns: Sequence[int],
    *,
    step_tokens: Callable[[Sequence[int]], int],
) -> dict[int, float]:
    """Mean floating-point operations of scoring n samples of a problem, 2 P for each token.

    Equal completions of a problem are read once, and all of them share one reading of the prompt;
    expected over the subsets of n of a pool, as the accuracies are.

    Args:
        prompt_tokens: of each problem.
        pools: of each problem, the token ids of its N completions.
        parameters: P of the scorer.
        ns: from 1 to N.
        step_tokens: what the scorer reads besides of a completion: of a process model one for
            each step, of other scorers none.
    """
    read: Mapping[int, list[float]] = {n: [] for n in ns}
    for pool in pools:
        counts = Counter(tuple(ids) for ids in pool)
        costs = [float(len(ids) + step_tokens(ids)) for ids in counts]
        for n in ns:
            read[n].append(distinct_cost(list(counts.values()), costs, n=n))
    prompt = float(np.mean(prompt_tokens))
    return {n: 2.0 * parameters * (prompt + float(np.mean(read[n]))) for n in ns}


def curves(
    problems: Sequence[tuple[Prompt, list[Completion]]],
    scores: Sequence[Score],
    results: Sequence[ProblemResult],
    parameters: tuple[int, int],
    process: str,
) -> dict[str, Curve]:
    """Each of `methods` that the policy of one seed was evaluated by.

    Args:
        problems: the policy's samples.
        scores: of them; the steps that the process model read are counted from these.
        results: of evaluate, in the order of `problems`.
        parameters: of the policy and of the process model.
        process: the process model's name.
    """
    ns = [int(n) for n in results[0].accuracy_at["majority"]]
    prompts = [len(prompt.prompt_ids) for prompt, _ in problems]
    tokens = [[row.completion_ids for row in pool] for _, pool in problems]
    means = [float(np.mean([len(ids) for ids in pool])) for pool in tokens]
    generation = generation_cost(prompts, means, parameters[0], ns)
    steps = {
        tuple(row.completion_ids): len(score.steps[process])
        for (_, pool), own in zip(problems, pools.scores(problems, scores), strict=True)
        for row, score in zip(pool, own, strict=True)
    }
    scoring = scoring_cost(
        prompts, tokens, parameters[1], ns, step_tokens=lambda ids: steps[tuple(ids)]
    )
    return {
        label: Curve(
            accuracy={
                n: np.array([[row.accuracy_at[method][str(n)] for row in results]]) for n in ns
            },
            costs={
                "flops": {
                    n: generation[n] + (scoring[n] if method.endswith(f"/{process}") else 0.0)
                    for n in ns
                },
                "tokens": {n: n * float(np.mean(means)) for n in ns},
            },
        )
        for method, label in methods(process).items()
        if method in results[0].accuracy_at
    }


def over_seeds(seeds: Sequence[Mapping[str, Curve]]) -> dict[str, Curve]:
    """The curves of several seeds as one each, at their mean cost."""
    return {
        name: Curve(
            accuracy={n: np.concatenate([one[name].accuracy[n] for one in seeds]) for n in ns},
            costs={
                unit: {n: float(np.mean([one[name].costs[unit][n] for one in seeds])) for n in ns}
                for unit in first.costs
            },
        )
        for name, first in seeds[0].items()
        for ns in [list(first.accuracy)]
    }
