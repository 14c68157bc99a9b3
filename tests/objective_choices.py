"""Every choice of a policy's objective: those of the presets, and the others."""

from typing import Any, get_args

import presets
from hypothesis import strategies as st
from stages.loops.divergence import KlPenalty
from stages.loops.objective import Aggregation, Correction, ObjectiveConfig, Surrogate

from stages.choice import OneOf

FIXED = 0.3
LIMITS = {"low": 0.2, "high": 0.28}
SURROGATES = [
    {"kind": "clip", **LIMITS},
    {"kind": "dual_clip", **LIMITS, "cap": 3.0},
    {"kind": "sequence_ratio", **LIMITS, "normalise": True},
    {"kind": "sequence_ratio", **LIMITS, "normalise": False},
    {"kind": "cispo", "cap": 2.0},
    {"kind": "reinforce"},
    {"kind": "kl_penalty"},
]
AGGREGATIONS = [{"kind": kind} for kind in ("sequence_mean", "token_mean", "fixed_length")]
AGGREGATIONS += [{"kind": "sequence_sum"}]
IN_LOSS = [
    {"kind": "loss", "estimator": estimator, "level": level, "corrected": corrected, "coef": FIXED}
    for estimator in ("k1", "k2", "k3")
    for level in ("token", "sequence")
    for corrected in (False, True)
]
PENALTIES = [
    {"kind": "none"},
    {"kind": "reward", "estimator": "k1", "coef": FIXED},
    *IN_LOSS,
]
CORRECTIONS = [
    {"kind": "none"},
    {"kind": "token_truncated", "cap": 1.1},
    {"kind": "token_masked", "low": 0.8, "high": 1.3},
    {"kind": "sequence_truncated", "cap": 1.5},
    {"kind": "sequence_masked", "low": 0.5, "high": 2.0},
]
LISTED = {
    "surrogate": (Surrogate, SURROGATES),
    "aggregation": (Aggregation, AGGREGATIONS),
    "kl": (KlPenalty, PENALTIES),
    "correction": (Correction, CORRECTIONS),
}


def make(
    surrogate: dict[str, Any], aggregation: dict[str, Any], kl: dict[str, Any], **rest: Any
) -> ObjectiveConfig:
    held = surrogate["kind"] == "kl_penalty"
    found = {
        "correction": "none",
        "old_kl": 0.7 if held else None,
        "entropy_coef": 0.0,
        "positive_nll_coef": 0.0,
    }
    return ObjectiveConfig(**found | rest, surrogate=surrogate, aggregation=aggregation, kl=kl)


def from_presets() -> dict[str, ObjectiveConfig]:
    """The objective of every preset in presets.yaml, by the preset's name."""
    keys = ObjectiveConfig.model_fields
    return {
        name: ObjectiveConfig(**{key: presets.CONTENT[name][key] for key in keys})
        for name in (*presets.GROUP_RL, *presets.PPO)
    }


def any_objective() -> st.SearchStrategy[ObjectiveConfig]:
    """Any combination at all, whether or not a preset has it."""
    return st.builds(
        make,
        surrogate=st.sampled_from(SURROGATES),
        aggregation=st.sampled_from(AGGREGATIONS),
        kl=st.sampled_from(PENALTIES),
        correction=st.sampled_from(CORRECTIONS),
        entropy_coef=st.sampled_from([0.0, 0.1]),
        positive_nll_coef=st.sampled_from([0.0, 0.2]),
    )


def kinds(choice: Any) -> set[str]:
    """The kinds that a choice can be of."""
    union, *metadata = get_args(choice)
    tables = [one for one in metadata if isinstance(one, OneOf)]
    if tables:
        return set(tables[0].functions)
    return {get_args(cls.model_fields["kind"].annotation)[0] for cls in get_args(union)}
