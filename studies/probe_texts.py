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
"""Two numbers with a word or sign of listing between them, and no arithmetic."""


def states_several(completion: str) -> bool:
    """Whether final answers of different values are stated; what cannot be read is none.

    A line such as `#### 4 + 3 = 7` before the final `#### 7` is working in the wrong place.
    """
    values = {write_value(read_value(content)) for content in answer_statements(completion)}
    return len(values - {None}) > 1


def lists_answers(completion: str) -> bool:
    """Whether the last statement lists numbers (`5 or 7`) and is no number itself.

    `2/4` and `1,000` are no lists: they are read as one number. Nor is `5 + 2 = 7`.
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
"""Probe -> its value at one completion."""


def measure_texts(problems: Sequence[tuple[Prompt, Sequence[Completion]]]) -> Iterator[ProbeValue]:
    """The mean over each problem's completions, equal ones counted as often as they were drawn."""
    for prompt, pool in problems:
        for probe, measure in MEASURES.items():
            mean = sum(measure(row) for row in pool) / len(pool)
            yield ProbeValue(probe=probe, id=prompt.id, value=mean)
