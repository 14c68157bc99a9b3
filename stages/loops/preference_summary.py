"""What a whole run of preference learning is told by: a few numbers, and a warning."""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.loops.likelihood_displacement import both_fell, late_mean

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
