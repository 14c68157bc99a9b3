"""Comparison at each policy's best temperature, and split of gains into sharpening, format, rest.

A narrower distribution makes samples at temperature 1 correct more often, and a lower temperature
narrows it without any training. So policies are also compared at the best temperature of each, and
a gain at the sampling temperature is split.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from stages.records.metrics import round_metric

Table = Float[np.ndarray, "seed problem"]
DevTable = Float[np.ndarray, "seed dev_problem"]
MIN_DEV_PROBLEMS = 75
"""With fewer dev problems no temperature is chosen: see `choose_temperature`."""


@dataclass(frozen=True, kw_only=True)
class PolicyTemperatures:
    """Accuracy of a policy by temperature."""

    sampled: float
    """Temperature of the samples that all other metrics use."""
    dev: dict[float, DevTable]
    test: dict[float, Table]
    lenient: dict[float, Table]
    """Accuracy on test problems if the last number of a text also counts as its answer."""

    @property
    def is_chosen(self) -> bool:
        """Whether there are enough dev problems to choose a temperature."""
        return len(self.dev[self.sampled].T) >= MIN_DEV_PROBLEMS

    @property
    def best(self) -> float:
        """Temperature chosen on the dev problems, or, if these are too few, that of the samples."""
        return choose_temperature(self.dev) if self.is_chosen else self.sampled

    def summarise(self) -> dict[str, Any]:
        """The chosen temperature, if any, and mean accuracies by temperature."""
        means = {
            split: {f"{t:g}": round_metric(table.mean()) for t, table in sorted(tables.items())}
            for split, tables in (("dev", self.dev), ("test", self.test))
        }
        return {"best": self.best, **means} if self.is_chosen else means


def choose_temperature(dev: Mapping[float, DevTable]) -> float:
    """Temperature of the highest mean accuracy over all seeds and dev problems.

    On a tie the highest temperature, which changes the policy least. There is one for all seeds of
    a policy, since a choice per seed would rest on a fraction of the samples, and vary by chance.
    Only dev problems decide, so that the accuracy on test problems at this temperature is unbiased.

    The choice adds variance, since other dev problems would choose otherwise. Its share of the
    squared standard error of the gain at the best temperature, over the default run's four policies
    (three seeds, 4 samples per dev problem at temperature 1, 2 at 0.25 to 0.75, 1 at 0; 4,000 draws
    of so many of its 333 dev problems, with the accuracy on all 539 test problems at the
    temperature that they choose; `python -m tests.error_rates --temperatures`):

        dev problems                                      24     50     79    100    318
        test problems, in the default's proportion        39     81    128    162    515
        largest share of the squared error, %              7      5      3      4      5
        median share, %                                    3      3      3      3      2
        largest standard deviation by the choice, points 1.2    0.8    0.7    0.7    0.4

    On an easier task, on which seeds agree more, the largest share was 34, 21, 10, 7 and 0.4 %. A
    tenth of the variance is 5 % of an interval's width, which intervals neglect. With fewer than
    `MIN_DEV_PROBLEMS` it may be more, so no temperature is chosen: policies are compared at the
    sampling temperature, and the verdict reports it.

    With means of 0.5 at 1, 0.75 at 0.5 and 0.75 at 0, it is 0.5.
    """
    return max(dev, key=lambda temperature: (round_metric(dev[temperature].mean()), temperature))


def split_gain(baseline: PolicyTemperatures, policy: PolicyTemperatures) -> dict[str, Table]:
    """Gain over the baseline at the sampling temperature, as a sum of three parts.

    With b and p the accuracies of baseline and policy at the sampling temperature, b* and p* at
    their best temperatures, and lenient(b*), lenient(p*) the latter under the lenient reading:

        sharpening = (b* - b) - (p* - p)
        format     = (p* - lenient(p*)) - (b* - lenient(b*))
        rest       = lenient(p*) - lenient(b*)

    The three add up to p - b for every seed and problem, so that each has a paired interval.
    Sharpening: the baseline's gain by its best temperature, less the policy's; format: answers of
    the baseline that only the lenient reading counts, less the policy's; rest: the remaining gain.
    A part may be negative.

    With b = 0.5, p = 0.875, b* = 0.75, p* = 1, lenient(b*) = 0.875 and lenient(p*) = 1: of the
    0.375, sharpening is 0.25 - 0.125 = 0.125, format 0 + 0.125, and the rest 0.125.
    """
    b, p = (of.test[of.sampled] for of in (baseline, policy))
    best_b, best_p = (of.test[of.best] for of in (baseline, policy))
    lenient_b, lenient_p = (of.lenient[of.best] for of in (baseline, policy))
    return {
        "sharpening": (best_b - b) - (best_p - p),
        "format": (best_p - lenient_p) - (best_b - lenient_b),
        "rest": lenient_p - lenient_b,
    }
