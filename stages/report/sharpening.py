"""Each policy at its best temperature, and how much of a gain is sharpening, format, and the rest.

A sample at temperature 1 is more often right once the distribution is narrower, and a lower
temperature narrows it without any training. So policies are also compared each at the temperature
that suits it, and a gain at the sampling temperature is split.
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
"""With fewer no temperature is chosen: see `choose_temperature`."""


@dataclass(frozen=True, kw_only=True)
class PolicyTemperatures:
    """Accuracy of a policy by temperature."""

    sampled: float
    """That of the samples from which all else is estimated."""
    dev: dict[float, DevTable]
    test: dict[float, Table]
    lenient: dict[float, Table]
    """Of the test problems, where the last number of the text counts, too."""

    @property
    def is_chosen(self) -> bool:
        """Whether there are enough dev problems to choose a temperature by."""
        return len(self.dev[self.sampled].T) >= MIN_DEV_PROBLEMS

    @property
    def best(self) -> float:
        """Chosen on the dev problems, or, where they are too few, that of the samples."""
        return choose_temperature(self.dev) if self.is_chosen else self.sampled

    def summarise(self) -> dict[str, Any]:
        """The temperature that was chosen, if one was, and mean accuracies by temperature."""
        means = {
            split: {f"{t:g}": round_metric(table.mean()) for t, table in sorted(tables.items())}
            for split, tables in (("dev", self.dev), ("test", self.test))
        }
        return {"best": self.best, **means} if self.is_chosen else means


def choose_temperature(dev: Mapping[float, DevTable]) -> float:
    """The temperature of the highest mean accuracy over all seeds and dev problems.

    Of equals the highest, which changes the policy least. One for all seeds of a policy: a choice
    for each would rest on a fraction of the samples, and vary by chance. On dev problems alone, so
    that the accuracy on test problems at this temperature is without bias.

    The choice is paid for by its problems: other dev problems would choose otherwise. Share that
    this adds to the squared standard error of the gain at the best temperature, largest of the
    default run's four policies and median (three seeds, 4 samples a dev problem at temperature 1, 2
    at 0.25 to 0.75, 1 at 0; 4,000 draws of so many of its 358 dev problems, the accuracy at the
    temperature that they choose being that on all 530 test problems):

        dev problems                                      24     50     79    100    318
        test problems, in the default's proportion        40     83    132    167    530
        largest share of the squared error, %             34     21     10      7    0.4
        median share, %                                   16      8      2      1    0.1
        largest standard deviation by the choice, points 1.6    1.1    0.8    0.6    0.1

    Up to a tenth of a variance is 5 % of an interval's width, which intervals leave out. With fewer
    than `MIN_DEV_PROBLEMS` it would be more: no temperature is chosen, the policies are compared as
    they are sampled, and the verdict says so.

    With means of 0.5 at 1, 0.75 at 0.5 and 0.75 at 0, it is 0.5.
    """
    return max(dev, key=lambda temperature: (round_metric(dev[temperature].mean()), temperature))


def split_gain(baseline: PolicyTemperatures, policy: PolicyTemperatures) -> dict[str, Table]:
    """The gain over the baseline at the sampling temperature, as a sum of three parts.

    With b and p the accuracies of baseline and policy as they are sampled, b* and p* at their best
    temperatures, and lenient(b*), lenient(p*) the same under the lenient reading:

        sharpening = (b* - b) - (p* - p)
        format     = (p* - lenient(p*)) - (b* - lenient(b*))
        rest       = lenient(p*) - lenient(b*)

    The three add up to p - b for every seed and problem, so that each has a paired interval.
    Sharpening: what the baseline gains by its best temperature, without what the policy still gains
    by its own; format: answers that the lenient reading counted before; rest: what neither gives.
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
