"""Every choice of a policy's objective: those of the presets, and the others."""

from typing import Any, get_args

import presets
from hypothesis import strategies as st

from stages.loops.method import Method

LIMITS = {"clip_low": 0.2, "clip_high": 0.28}
SURROGATES: list[dict[str, Any]] = [
    {"surrogate": "clip", **LIMITS},
    {"surrogate": "dual_clip", **LIMITS, "dual_clip_cap": 3.0},
    {"surrogate": "sequence_ratio", **LIMITS, "normalise_ratio": True},
    {"surrogate": "sequence_ratio", **LIMITS, "normalise_ratio": False},
    {"surrogate": "cispo", "max_ratio": 2.0},
    {"surrogate": "reinforce"},
    {"surrogate": "kl_penalty"},
]
AGGREGATIONS: list[dict[str, Any]] = [
    {"aggregation": kind}
    for kind in ("sequence_mean", "token_mean", "fixed_length", "sequence_sum")
]
KL_LOSSES: list[dict[str, Any]] = [
    {"kl": "loss", "kl_estimator": estimator, "kl_level": level, "kl_corrected": is_corrected}
    for estimator in ("k1", "k2", "k3")
    for level in ("token", "sequence")
    for is_corrected in (False, True)
]
PENALTIES: list[dict[str, Any]] = [
    {"kl": "none"},
    {"kl": "reward", "kl_estimator": "k1"},
    *KL_LOSSES,
]
CORRECTIONS: list[dict[str, Any]] = [
    {"correction": "none"},
    {"correction": "token_truncated", "correction_cap": 1.1},
    {"correction": "token_masked", "correction_low": 0.8, "correction_high": 1.3},
    {"correction": "sequence_truncated", "correction_cap": 1.5},
    {"correction": "sequence_masked", "correction_low": 0.5, "correction_high": 2.0},
]
LISTED = {
    "surrogate": SURROGATES, "aggregation": AGGREGATIONS, "kl": PENALTIES,
    "correction": CORRECTIONS,
}  # fmt: skip
PRESETS = {name: presets.method(name) for name in (*presets.GROUP_RL, *presets.PPO)}
"""The method of every preset in presets.yaml, by the preset's name."""


def make(*choices: dict[str, Any], **changes: Any) -> Method:
    """A method of these choices, without correction unless one of them has it."""
    merged = {key: value for choice in choices for key, value in choice.items()}
    return Method(**{"correction": "none"} | merged | changes)


def any_objective() -> st.SearchStrategy[Method]:
    """Any combination at all, whether or not a preset has it."""
    return st.builds(
        make,
        *map(st.sampled_from, LISTED.values()),
        entropy_coef=st.sampled_from([0.0, 0.1]),
        positive_nll_coef=st.sampled_from([0.0, 0.2]),
    )


def kinds(choice: str) -> set[str]:
    """Values of a choice of `Method`, by its name."""
    return set(get_args(Method.model_fields[choice].annotation))
