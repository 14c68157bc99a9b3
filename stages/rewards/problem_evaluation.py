"""Judge the completions of one problem and compute its expected accuracies."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from stages.algorithms.selection.best_of_n import best_of_n
from stages.algorithms.selection.majority_vote import majority_vote
from stages.algorithms.selection.pass_at_k import pass_at_k
from stages.records.completion import Completion
from stages.records.problem_result import ProblemResult
from stages.records.prompt import Prompt
from stages.rewards import answer_checker, format_reward


def evaluate(
    prompt: Prompt,
    pool: Sequence[Completion],
    greedy: Completion,
    scores: Sequence[float],
    *,
    ks: Sequence[int],
) -> ProblemResult:
    """What a policy did on one problem.

    Args:
        prompt: the problem with its gold answer.
        pool: its N sampled completions.
        greedy: its greedy completion.
        scores: the reward model's score of each of `pool`.
        ks: how many samples are drawn from the pool, each at most N.
    """
    right = [answer_checker.is_correct(row.completion, prompt.answer) for row in pool]
    answers = [answer_of(row.completion) for row in pool]
    votes = majority(answers, right, ks=ks)
    score_array, quality = np.array(scores, dtype=np.float64), np.array(right, dtype=np.float64)
    return ProblemResult(
        id=prompt.id,
        num_samples=len(pool),
        num_correct=sum(right),
        greedy_correct=answer_checker.is_correct(greedy.completion, prompt.answer),
        mean_accuracy=sum(right) / len(pool),
        pass_at={str(k): pass_at_k(len(pool), sum(right), k=k) for k in ks},
        majority_at={str(n): float(vote) for n, vote in zip(ks, votes, strict=True)},
        best_of={str(n): best_of_n(score_array, quality, n=n) for n in ks},
        readable_rate=sum(answer is not None for answer in answers) / len(pool),
        format_rate=sum(format_reward.has_format(row.completion) for row in pool) / len(pool),
        truncation_rate=sum(row.finish_reason == "length" for row in pool) / len(pool),
        mean_tokens=sum(len(row.completion_ids) for row in pool) / len(pool),
    )


def majority(
    answers: Sequence[str | None], right: Sequence[bool], *, ks: Sequence[int]
) -> Float[np.ndarray, " k"]:
    """The accuracy of the majority of k of a problem's samples, for each of `ks`.

    Answers are grouped by value, without a look at the gold answer: the vote has none either.
    """
    sizes = Counter(answer for answer in answers if answer is not None)
    right_answers = {answer for answer, is_right in zip(answers, right, strict=True) if is_right}
    return majority_vote(
        np.array(list(sizes.values()), dtype=np.int64),
        np.array([answer in right_answers for answer in sizes], dtype=np.bool_),
        num_unreadable=answers.count(None),
        ns=list(ks),
    )


def answer_of(completion: str) -> str | None:
    """The final answer as a value, one text for all ways to write it; None: none can be read."""
    answer = answer_checker.extract(completion)
    return None if answer is None else answer_checker.canonical(answer)
