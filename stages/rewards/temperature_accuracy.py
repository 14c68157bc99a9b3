"""Accuracy of a policy on each problem, at each temperature that it was sampled at."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from stages.records import lines, pools, temperatures
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.records.temperatures import SampledFile, Split, TemperatureResult
from stages.rewards.problem_evaluation import CheckedCompletion


def read_accuracies(samples: Path) -> list[TemperatureResult]:
    """What the samples of one policy and seed show, of problems with a gold answer."""
    by_split: dict[Split, list[SampledFile]] = defaultdict(list)
    for file in lines.read_lines(samples / temperatures.FILE, SampledFile):
        by_split[file.split].append(file)
    rows: list[TemperatureResult] = []
    for split, files in by_split.items():
        of_files = [pools.read_split(samples, split, file.name) for file in files]
        for of_problem in zip(*of_files, strict=True):
            prompt = of_problem[0][0]
            if prompt.answer is None:
                continue
            rows += measure_problem(prompt, files, [pool for _, pool in of_problem])
    return rows


def measure_problem(
    prompt: Prompt, files: Sequence[SampledFile], completions: Sequence[Sequence[Completion]]
) -> Iterator[TemperatureResult]:
    """A row a file, of the problem's completions in it; equal ones, which are common, read once."""
    texts = {row.completion for pool in completions for row in pool}
    readings = {text: CheckedCompletion(prompt, text) for text in texts}
    for file, pool in zip(files, completions, strict=True):
        checked = [readings[row.completion] for row in pool]
        yield TemperatureResult(
            id=prompt.id, file=file.name, split=file.split, temperature=file.temperature,
            num_samples=len(pool), accuracy=_share([reading.right for reading in checked]),
            strict=_share([reading.strictly_right for reading in checked]),
            lenient=_share([reading.leniently_right for reading in checked]),
        )  # fmt: skip


def _share(verdicts: Sequence[bool]) -> float:
    return sum(verdicts) / len(verdicts)
