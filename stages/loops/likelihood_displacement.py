"""Whether preference learning made the chosen completions less likely too.

A loss of margins is content when both fall, the rejected one faster: probability then goes
to completions of neither kind. Razin et al., "Unintentional Unalignment: Likelihood
Displacement in Direct Preference Optimization" (2024), https://arxiv.org/abs/2410.08847
"""

from collections.abc import Mapping, Sequence

LEAST_FALL = 0.1
"""Nats a completion must lose to have fallen: below that it is rounding and chance."""
LATE_SHARE = 0.1


def late_mean(history: Sequence[Mapping[str, float]], name: str) -> float | None:
    """Mean of a metric over the last tenth of the steps that have it; None if none has."""
    values = [metrics[name] for metrics in history if name in metrics]
    late = values[-max(1, round(LATE_SHARE * len(values))) :]
    return sum(late) / len(late) if late else None


def both_fell(history: Sequence[Mapping[str, float]]) -> bool:
    """Whether both log-ratios are at least `LEAST_FALL` below 0 in the last tenth of the steps.

    A log-ratio is measured from the reference, where training starts, so at 0 nothing has
    changed.

    Args:
        history: the metrics of every step, with `log_ratios/chosen` and `log_ratios/rejected`.
    """
    ends = [late_mean(history, f"log_ratios/{side}") for side in ("chosen", "rejected")]
    return all(end is not None and end <= -LEAST_FALL for end in ends)
