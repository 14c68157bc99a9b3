"""Judge a whole pool once, for all that score it."""

from collections.abc import Sequence

from stages.records.completion import Completion
from stages.records.prompt import Prompt
from stages.records.verdicts import Verdicts
from stages.rewards import answer_checker
from stages.rewards.problem_evaluation import answer_of, majority


def judge(prompt: Prompt, pool: Sequence[Completion]) -> Verdicts:
    """The verdicts on one problem's completions."""
    right = [answer_checker.is_correct(row.completion, prompt.answer) for row in pool]
    answers = [answer_of(row.completion) for row in pool]
    (vote,) = majority(answers, right, ks=[len(pool)])
    return Verdicts(id=prompt.id, right=right, majority=float(vote))
