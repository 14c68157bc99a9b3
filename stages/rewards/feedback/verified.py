"""What is known of judged completions without the judge."""

from collections.abc import Sequence

from stages.rewards import answer_checker
from stages.rewards.feedback.judging import Pair


def facts(asked: Sequence[Pair]) -> tuple[dict[tuple[str, int], bool], dict[tuple[str, int], int]]:
    """By problem and index: is its final answer right, and how many tokens has it."""
    rows = {
        (pair.prompt.id, row.index): (pair.prompt.answer, row)
        for pair in asked
        for row in (pair.a, pair.b)
    }
    return (
        {key: answer_checker.is_correct(row.completion, gold) for key, (gold, row) in rows.items()},
        {key: len(row.completion_ids) for key, (_, row) in rows.items()},
    )
