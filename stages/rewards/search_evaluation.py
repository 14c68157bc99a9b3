"""Judge the solutions that a search found for one problem."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np

from stages.algorithms.selection.best_of_n import best_of_n
from stages.algorithms.selection.weighted_vote import UNREADABLE, weighted_vote
from stages.records.problem_search import ProblemSearch
from stages.records.prompt import Prompt
from stages.records.search_cost import SearchCost
from stages.records.search_solution import SearchSolution
from stages.rewards import answer_checker
from stages.rewards.problem_evaluation import answer_of, majority


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
