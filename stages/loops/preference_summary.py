"""A whole run of preference learning in a few numbers, and a warning of likelihood displacement.

A loss of margins is content when both completions become less likely, the rejected one faster:
probability then goes to completions of neither kind. Razin et al., "Unintentional Unalignment:
Likelihood Displacement in Direct Preference Optimization" (2024), https://arxiv.org/abs/2410.08847
"""

from collections.abc import Mapping, Sequence
from typing import Any

BOTH_FELL = (
    "the chosen completions became less likely than under the reference, together with the "
    "rejected ones: mean log-ratios %(final_chosen_log_ratio).2f and "
    "%(final_rejected_log_ratio).2f over the last tenth of the steps. Look at the greedy "
    "accuracy; lower the learning rate or num_epochs, or take a loss with a likelihood term "
    "(orpo, cpo)."
)
"""For a logger, with what `summarise` returned, where `both_logprobs_fell`."""


def summarise(history: Sequence[Mapping[str, int | float]]) -> dict[str, Any]:
    """The numbers of `metrics.json`; what is `final` is a mean over the last tenth of the steps.

    Args:
        history: the metrics of every step of `preference.train` or `kto.train`.
    """
    return {
        "generated_tokens": 0,
        "trained_tokens": sum(int(metrics["tokens/trained"]) for metrics in history),
        "final_margin_accuracy": late_mean(history, "margin/accuracy"),
        "final_chosen_log_ratio": late_mean(history, "log_ratios/chosen"),
        "final_rejected_log_ratio": late_mean(history, "log_ratios/rejected"),
        "both_logprobs_fell": both_fell(history),
    }


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
