"""Rows on accuracy at several temperatures: which file was sampled at which, and each problem's."""

from dataclasses import dataclass
from typing import Literal

Split = Literal["dev", "test"]
FILE = "temperatures.jsonl"
"""The name of both files of these rows, in a policy's samples and in its evaluation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledFile:
    """A file of completions, beside `data/samples/<policy>/<seed>/temperatures.jsonl`."""

    name: str
    """Without `.jsonl`."""
    split: Split
    temperature: float
    """0: greedy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TemperatureResult:
    """Accuracy of a policy on a problem at one temperature: a row of its evaluation."""

    id: str
    file: str
    """`SampledFile.name`; the name of the split itself marks the samples from which everything else
    is estimated."""
    split: Split
    temperature: float
    num_samples: int
    accuracy: float
    """The share of right samples, as `mean_accuracy` is."""
    strict: float
    lenient: float
