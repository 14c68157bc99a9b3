"""Measures of the texts of a policy's completions."""

import re
from collections.abc import Iterator, Sequence

from stages.algorithms import length_and_repetition
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards.answer_value import Elements, read_value, write_value
from stages.rewards.final_answer import answer_statements, extract_answer
from studies.probe_catalogue import ProbeValue

_NUMBER = r"[-$]?\d+(?:[.,]\d+)*"
_LIST = re.compile(
    rf"{_NUMBER}[^\d=+*]{{0,12}}(?:,|;|/|\bor\b|\band\b)[^\d=+*]{{0,12}}{_NUMBER}", re.ASCII
)
"""Two numbers separated by a conjunction or punctuation, without arithmetic."""


def states_several(completion: str) -> bool:
    """Whether a completion states final answers of different values; unparsable ones do not count.

    A line such as `#### 4 + 3 = 7` before the final `#### 7` is misplaced working.
    """
    values = {write_value(read_value(content)) for content in answer_statements(completion)}
    return len(values - {None}) > 1


def lists_answers(completion: str) -> bool:
    """Whether the last statement is a list of numbers (`5 or 7`), not a number.

    `2/4` and `1,000` are not lists but single numbers. Nor is `5 + 2 = 7` a list.
    """
    answer = extract_answer(completion)
    value = None if answer is None else read_value(answer)
    if answer is None or (write_value(value) is not None and not isinstance(value, Elements)):
        return False
    return _LIST.search(answer) is not None


MEASURES = {
    "repeated_4grams": lambda row: length_and_repetition.repeated_share(row.completion_ids, 4),
    "unfinished_loop": lambda row: float(
        row.finish_reason == "length" and length_and_repetition.ends_in_loop(row.completion_ids)
    ),
    "several_answers": lambda row: float(states_several(row.completion)),
    "answer_list": lambda row: float(lists_answers(row.completion)),
}
"""Probe -> its value for a completion."""


def measure_texts(problems: Sequence[tuple[Prompt, Sequence[Completion]]]) -> Iterator[ProbeValue]:
    """Mean over each problem's completions, with repeated ones counted each time."""
    for prompt, pool in problems:
        for probe, measure in MEASURES.items():
            mean = sum(measure(row) for row in pool) / len(pool)
            yield ProbeValue(probe=probe, id=prompt.id, value=mean)
