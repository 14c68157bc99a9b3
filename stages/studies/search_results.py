"""What searches found, judged, and what n samples of the same problems cost and are worth."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from stages.algorithms.selection.best_of_n import best_of_n, distinct_cost
from stages.algorithms.selection.votes import UNREADABLE, weighted_vote
from stages.algorithms.statistics import crossed_means, intervals
from stages.records import pools
from stages.records.pools import Completion, Score
from stages.records.problems import Prompt
from stages.records.results import ProblemResult
from stages.rewards import answer_checker
from stages.rewards.problem_evaluation import answer_of, majority
from stages.studies.equal_compute import Curve, Searched, Values
from stages.studies.markdown import named, rounded
from stages.studies.search_tree import SearchCost, SearchSolution


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemSearch:
    """One row of `data/studies/search/rows/<seed>/<preset>_problems.jsonl`.

    The accuracies are over what is left to chance, ties: 0 or 1 where there are none.
    """

    id: str
    num_solutions: int
    """Solutions that finished, kept or not: what the two votes count."""
    best: float
    """Whether the best-scored solution is right; of equal scores the mean."""
    weighted: float
    """Whether the answer with the greatest sum of scores is right."""
    majority: float
    """Whether the most frequent answer is right."""
    any_right: bool
    """Whether any of the solutions is right."""
    depth: int
    generated_tokens: int
    dropped_tokens: int
    read_tokens: int
    read_tokens_once: int
    scored_tokens: int
    scored_tokens_once: int
    """These six and `depth`: `SearchCost`."""
    flops: float
    """2 P for each token that a model of P parameters read or generated."""
    flops_once: float
    """With a prefix cache in both models."""


def evaluate_all(
    prompts: Sequence[Prompt],
    solutions: Mapping[str, Sequence[SearchSolution]],
    costs: Mapping[str, SearchCost],
    policy_parameters: int,
    process_parameters: int,
) -> list[ProblemSearch]:
    """`evaluate` of each problem; solutions and costs are by its id."""
    return [
        evaluate(one, solutions[one.id], costs[one.id], policy_parameters, process_parameters)
        for one in prompts
    ]


def evaluate(
    prompt: Prompt,
    solutions: Sequence[SearchSolution],
    cost: SearchCost,
    policy_parameters: int,
    process_parameters: int,
) -> ProblemSearch:
    """What a search is worth on one problem.

    A token that passes through a model of P parameters costs 2 P floating-point operations, one
    multiplication and one addition each (Kaplan et al. 2020, https://arxiv.org/abs/2001.08361,
    section 2.1). Tokens that are read and tokens that are generated pass alike.

    Args:
        prompt: the problem with its gold answer.
        solutions: all that finished.
        cost: tokens.
        policy_parameters: of the policy, see `models/size`.
        process_parameters: of the process model.
    """
    right = [answer_checker.is_correct(row.completion, prompt.answer) for row in solutions]
    answers = [answer_of(row.completion) for row in solutions]
    scores = np.array([row.score for row in solutions])
    names = [answer for answer in dict.fromkeys(answers) if answer is not None]
    right_answers = {answer for answer, is_right in zip(answers, right, strict=True) if is_right}
    number = len(solutions)

    def flops(read: int, scored: int) -> float:
        policy_tokens = read + cost.generated_tokens
        return 2.0 * (policy_parameters * policy_tokens + process_parameters * scored)

    tokens = asdict(cost)
    del tokens["id"]
    return ProblemSearch(
        id=prompt.id,
        num_solutions=number,
        best=best_of_n(scores, np.array(right, dtype=np.float64), n=number),
        weighted=weighted_vote(
            np.array([UNREADABLE if one is None else names.index(one) for one in answers]),
            scores,
            np.array([name in right_answers for name in names], dtype=np.bool_),
            subsets=np.arange(number)[None, :],
        ),
        majority=float(majority(answers, right, ks=[number])[0]),
        any_right=any(right),
        flops=flops(cost.read_tokens, cost.scored_tokens),
        flops_once=flops(cost.read_tokens_once, cost.scored_tokens_once),
        **tokens,
    )


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


WAYS = ("best", "weighted", "majority")
ACCURACIES = (*WAYS, "any_right")
MEANS = (
    "num_solutions", "depth", "generated_tokens", "dropped_tokens", "read_tokens",
    "read_tokens_once", "scored_tokens", "scored_tokens_once", "flops", "flops_once",
)  # fmt: skip
"""Of a problem, on average."""


def methods(process: str) -> dict[str, str]:
    """Methods of evaluate -> what they are called; those by the process model pay for it."""
    return {
        "majority": "majority",
        "best_of/mean_logprob": "best-of-n, own log-prob",
        f"best_of/{process}": "best-of-n, process",
        f"weighted/{process}": "weighted vote, process",
    }


def searched(seeds: Sequence[Sequence[ProblemSearch]]) -> Searched:
    """One search: of each seed its problems."""

    def mean(name: str) -> float:
        return float(np.mean([[getattr(row, name) for row in rows] for rows in seeds]))

    return Searched(
        accuracy={way: column(seeds, way) for way in WAYS},
        costs={
            "flops": mean("flops"),
            "flops_once": mean("flops_once"),
            "tokens": mean("generated_tokens"),
        },
    )


def summarise(seeds: Sequence[Sequence[ProblemSearch]], *, confidence: float) -> dict[str, Any]:
    """`{accuracies: {name: {value, low, high}}, per_problem: {name: mean}}` of one search.

    Differences are paired on the same solutions. An accuracy that is 0 or 1 on every problem of
    every seed has Wilson's interval.
    """
    columns = {name: column(seeds, name) for name in ACCURACIES}
    for way in ("best", "weighted"):
        columns[f"{way}_minus_majority"] = columns[way] - columns["majority"]
    means = crossed_means.estimate(np.stack(list(columns.values()), -1), confidence=confidence)
    accuracies = {}
    for number, (name, values) in enumerate(columns.items()):
        bounds = means.low[number], means.high[number]
        if name in ACCURACIES and ((values == 0.0).all() or (values == 1.0).all()):
            right, problems = round(values[0].sum()), values.shape[1]
            bounds = intervals.wilson_interval(right, problems, confidence=confidence)
        accuracies[name] = named(means.value[number], *bounds)
    spent = [np.mean([[getattr(row, name) for row in rows] for rows in seeds]) for name in MEANS]
    return {
        "num_problems": len(seeds[0]),
        "generated_tokens": sum(row.generated_tokens for rows in seeds for row in rows),
        "accuracies": accuracies,
        "per_problem": dict(zip(MEANS, rounded(spent), strict=True)),
    }


def column(seeds: Sequence[Sequence[ProblemSearch]], name: str) -> Values:
    """A number of each seed and problem."""
    return np.array([[float(getattr(row, name)) for row in rows] for rows in seeds])


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
