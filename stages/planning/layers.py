"""A model with fewer layers, and the line through two of them: costs that grow layer by layer."""

import copy
from collections.abc import Mapping

from transformers import PretrainedConfig

EXACT_LAYERS = 4
"""Models of so many layers are measured whole."""


def choose_layers(base: PretrainedConfig, growth: int = 2) -> tuple[int, ...]:
    """Numbers of layers to measure: all, or n and `growth` times n of more than that."""
    text = base.get_text_config(decoder=True)
    total, kinds = int(text.num_hidden_layers), getattr(text, "layer_types", None)
    # Where layers differ, a stretch that repeats.
    period = next(p for p in range(1, total + 1) if not kinds or kinds[p:] == kinds[:-p])
    num_small = period * -(-2 // period)
    num_large = growth * num_small
    return (total,) if total <= max(EXACT_LAYERS, num_large) else (num_small, num_large)


def keep_layers(base: PretrainedConfig, num_layers: int) -> PretrainedConfig:
    """Configuration of the model with its first `num_layers` layers."""
    base = copy.deepcopy(base)
    text = base.get_text_config(decoder=True)
    text.num_hidden_layers = num_layers
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:num_layers]
    return base


def extend_line(costs: Mapping[int, float], total: int) -> float:
    """Cost of `total` layers on the line through two costs by number of layers, or the only one."""
    small, large = min(costs), max(costs)
    if small == large:
        return costs[small]
    return costs[small] + (costs[large] - costs[small]) / (large - small) * (total - small)
