"""Results and costs of searches: rows of a solution and of a problem."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from stages.algorithms.selection.best_of_n import best_of_n
from stages.algorithms.selection.votes import weighted_vote
from stages.records.problems import Prompt
from stages.rewards import answer_checker
from stages.rewards.problem_evaluation import majority_accuracy, number_answers, read_final_answer
from studies.equal_compute import SearchOutcome

WAYS = ("best", "weighted", "majority")
Finish = Literal["stop", "length", "step"]
"""`length`: a step was cut at its limit; `step`: the limit on steps was reached."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSolution:
    """One row of `data/studies/search/rows/<seed>/<preset>.jsonl`."""

    id: str
    index: int
    """From 0 among the problem's solutions, best first."""
    tree: int
    """The tree that it grew in."""
    completion: str
    """Decoded text without special tokens."""
    completion_ids: list[int]
    step_scores: list[float]
    """The process model's P(right so far) after each step."""
    score: float
    """Score by which the search compared it: its step scores aggregated."""
    kept: bool
    """Whether it is among the best of its tree; others finished too, and lost their place."""
    finish_reason: Finish


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchCost:
    """Tokens that went through a model on one problem."""

    id: str
    depth: int
    """Rounds of sampling until no solution was left to go on with."""
    generated_tokens: int
    """Sampled from the policy, those of dropped candidates included."""
    read_tokens: int
    """Tokens that the policy reads without a prefix cache: prompt and solution so far, once for
    each place at each depth. vLLM, whose prefix cache is on, reads most of them only once."""
    scored_tokens: int
    """Tokens that the process model reads: prompt, solution so far and step tokens, for each
    different candidate at each depth; candidates of one problem share a reading of the prompt."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemSearch(SearchCost):
    """One row of `data/studies/search/rows/<seed>/<preset>_problems.jsonl`.

    The accuracies are over what is left to chance, ties: 0 or 1 where there are none.
    """

    best: float
    """Whether the best-scored solution is right; of equal scores the mean."""
    weighted: float
    """Whether the answer with the greatest sum of scores is right."""
    majority: float
    """Whether the most frequent answer is right."""
    flops: float
    """2 P for each token that a model of P parameters read or generated."""


def evaluate_search(
    prompt: Prompt, solutions: Sequence[SearchSolution], cost: SearchCost, sizes: tuple[int, int]
) -> ProblemSearch:
    """Accuracy and cost of a search on one problem.

    A token that passes through a model of P parameters costs 2 P floating-point operations, one
    multiplication and one addition each (Kaplan et al. 2020, https://arxiv.org/abs/2001.08361,
    section 2.1). Tokens that are read and tokens that are generated pass alike. `sizes`: P of the
    policy and of the process model, see `models/size`.
    """
    right = [answer_checker.solves_problem(prompt, row.completion) for row in solutions]
    answers = [
        read_final_answer(prompt.whole(row.completion), prompt.gold, prompt.answer_forms)
        for row in solutions
    ]
    answer_numbers, answer_is_right = number_answers(answers, right)
    scores, number = np.array([row.score for row in solutions]), len(solutions)
    policy_tokens = cost.read_tokens + cost.generated_tokens
    return ProblemSearch(
        best=best_of_n(scores, np.array(right, dtype=np.float64), n=number),
        weighted=weighted_vote(
            answer_numbers, scores, answer_is_right, subsets=np.arange(number)[None, :]
        ),
        majority=float(majority_accuracy(answers, right, ks=[number])[0]),
        flops=2.0 * (sizes[0] * policy_tokens + sizes[1] * cost.scored_tokens),
        **asdict(cost),
    )


def average_searches(seeds: Sequence[Sequence[ProblemSearch]]) -> SearchOutcome:
    """One search: of each seed its problems."""
    columns = {
        name: np.array([[float(getattr(row, name)) for row in rows] for rows in seeds])
        for name in (*WAYS, "flops", "generated_tokens")
    }
    return SearchOutcome(
        accuracy={way: columns[way] for way in WAYS},
        costs={
            "flops": float(columns["flops"].mean()),
            "tokens": float(columns["generated_tokens"].mean()),
        },
    )
