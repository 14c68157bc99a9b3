"""What can be seen in a policy's completions without asking anybody."""

from collections.abc import Callable, Iterator, Sequence

from stages.algorithms.statistics import repetition
from stages.records.completion import Completion
from stages.records.probe_value import ProbeValue
from stages.records.prompt import Prompt
from stages.rewards.components.ngram_repetition import repeated_share
from stages.rewards.probes import final_answers

Measure = Callable[[Completion], float]

MEASURES: dict[str, Measure] = {
    "repeated_4grams": lambda row: repeated_share(row.completion_ids, 4),
    "longest_repeat": lambda row: float(repetition.longest_repeat(row.completion_ids)),
    "compression_ratio": lambda row: repetition.compression_ratio(row.completion),
    "unfinished_loop": lambda row: float(
        row.finish_reason == "length" and repetition.ends_in_loop(row.completion_ids)
    ),
    "several_answers": lambda row: float(final_answers.states_several(row.completion)),
    "answer_list": lambda row: float(final_answers.lists_answers(row.completion)),
}
"""Probe -> its value at one completion."""


def values(problems: Sequence[tuple[Prompt, Sequence[Completion]]]) -> Iterator[ProbeValue]:
    """The mean over each problem's completions, equal ones counted as often as they were drawn."""
    for prompt, pool in problems:
        for probe, measure in MEASURES.items():
            mean = sum(measure(row) for row in pool) / len(pool)
            yield ProbeValue(probe=probe, id=prompt.id, value=mean)
