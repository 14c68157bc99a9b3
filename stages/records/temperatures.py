"""Records of accuracy at several temperatures: temperature of each file, results by problem."""

from dataclasses import dataclass
from typing import Literal

Split = Literal["dev", "test"]
FILE = "temperatures.jsonl"
"""Name of the files with these records, in a policy's samples and in its evaluation."""


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
    """`SampledFile.name`; the split's name is that of the samples which all other metrics use."""
    split: Split
    temperature: float
    num_samples: int
    accuracy: float
    """Share of correct samples, as in `mean_accuracy`."""
    strict: float
    lenient: float
