"""What is shown of a training run: quantities by step, from its rollouts and its journal."""

from collections.abc import Mapping, Sequence

from stages.reports.group_signal import GroupPoint
from stages.reports.learning_curve import CurvePoint

Series = list[tuple[int, float]]
"""(step, value), steps rising."""
Steps = Sequence[tuple[int, Mapping[str, float]]]
"""(step, its metrics) of a journal."""

HIDDEN = ("optim/", "time/", "tokens/")
"""What a journal's metrics begin with that say nothing about learning."""


def of_rollouts(
    curve: Sequence[CurvePoint], groups: Sequence[GroupPoint], journal: Steps
) -> dict[str, Series]:
    """Of a reinforcement-learning run; quantities that were never measured are left out."""
    named = by_name(journal)
    variance = [(one.step, one.within_variance) for one in groups]
    flat = [(one.step, one.flat_share) for one in groups]
    found: dict[str, Series] = {
        "reward": [(one.step, one.reward) for one in curve],
        "true accuracy": [(one.step, one.accuracy) for one in curve],
        "KL to reference, nats/token": named.get("kl/k1", []),
        "tokens": [(one.step, one.tokens) for one in curve],
        "entropy, nats/token": named.get("entropy", []),
        "share cut at the limit": [(one.step, one.truncation_rate) for one in curve],
        "repeated 4-grams": [(one.step, one.repetition) for one in groups],
        "variance of reward in a group": _known(variance),
        "groups without a signal": _known(flat),
        "groups all right": [(one.step, one.all_right) for one in groups],
        "groups all wrong": [(one.step, one.all_wrong) for one in groups],
    }
    return {name: series for name, series in found.items() if series}


def of_journal(journal: Steps) -> dict[str, Series]:
    """Of a run that samples nothing: every metric that says something about learning."""
    return {n: series for n, series in by_name(journal).items() if not n.startswith(HIDDEN)}


def by_name(journal: Steps) -> dict[str, Series]:
    """Metric -> its values by step; names in alphabetical order."""
    found: dict[str, Series] = {}
    for step, metrics in journal:
        for name, value in metrics.items():
            found.setdefault(name, []).append((step, float(value)))
    return dict(sorted(found.items()))


def _known(series: Sequence[tuple[int, float | None]]) -> Series:
    return [(step, value) for step, value in series if value is not None]
