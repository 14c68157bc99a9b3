"""What can be seen in a policy's completions without asking anybody."""

import re
from collections.abc import Callable, Iterator, Sequence

from stages.algorithms import repetition
from stages.algorithms.repetition import repeated_share
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import answer_checker
from stages.rewards.answer_checker import extract, statements
from stages.studies.probe_catalogue import ProbeValue

_NUMBER = r"[-$]?\d+(?:[.,]\d+)*"
_LIST = re.compile(
    rf"{_NUMBER}[^\d=+*]{{0,12}}(?:,|;|/|\bor\b|\band\b)[^\d=+*]{{0,12}}{_NUMBER}", re.ASCII
)
"""Two numbers with a word or sign of listing between them, and no arithmetic."""


def states_several(completion: str) -> bool:
    """Whether final answers of different values are stated; what cannot be read is none.

    A line such as `#### 4 + 3 = 7` before the final `#### 7` is working in the wrong place.
    """
    values = {answer_checker.canonical(content) for content in statements(completion)}
    return len(values - {None}) > 1


def lists_answers(completion: str) -> bool:
    """Whether the last statement lists numbers (`5 or 7`) and is no number itself.

    `2/4` and `1,000` are no lists: they are read as one number. Nor is `5 + 2 = 7`.
    """
    answer = extract(completion)
    if answer is None or answer_checker.canonical(answer) is not None:
        return False
    return _LIST.search(answer) is not None


MAX_CHARACTERS = 300
"""Refusals come first; further on, the phrases belong to answers."""
_NOT = r"(?:can(?:no|')t|can not|won't|will not|am not able to|am unable to|must decline to)"
_PHRASES = re.compile(
    rf"\bI(?:'m sorry,? but)? {_NOT}\b|\bI'm (?:not able|unable) to\b|\bI(?: am|'m) sorry\b"
    r"|\bI apologi[sz]e\b|\bas an AI\b|\bI (?:must|have to) (?:refuse|decline)\b"
    r"|\bI do(?: not|n't) (?:feel comfortable|think it(?: is|'s) appropriate)\b"
    r"|\b(?:cannot|can't) (?:help|assist|comply|provide)\b",
    re.IGNORECASE,
)


def refuses(reply: str) -> bool:
    """Whether the reply refuses, by the rule above."""
    start = reply.strip()[:MAX_CHARACTERS].replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return not start or _PHRASES.search(start) is not None


Measure = Callable[[Completion], float]

MEASURES: dict[str, Measure] = {
    "repeated_4grams": lambda row: repeated_share(row.completion_ids, 4),
    "longest_repeat": lambda row: float(repetition.longest_repeat(row.completion_ids)),
    "compression_ratio": lambda row: repetition.compression_ratio(row.completion),
    "unfinished_loop": lambda row: float(
        row.finish_reason == "length" and repetition.ends_in_loop(row.completion_ids)
    ),
    "several_answers": lambda row: float(states_several(row.completion)),
    "answer_list": lambda row: float(lists_answers(row.completion)),
}
"""Probe -> its value at one completion."""


def written(problems: Sequence[tuple[Prompt, Sequence[Completion]]]) -> Iterator[ProbeValue]:
    """The mean over each problem's completions, equal ones counted as often as they were drawn."""
    for prompt, pool in problems:
        for probe, measure in MEASURES.items():
            mean = sum(measure(row) for row in pool) / len(pool)
            yield ProbeValue(probe=probe, id=prompt.id, value=mean)
