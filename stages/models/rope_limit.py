"""How long a row may be where rotary positions change with the longest row of a micro-batch.

Two ways of reading long contexts do: `longrope` takes other frequencies for all positions once a
row is longer than those of its first training, `dynamic` (NTK) beyond the model's positions, and
there anew for each length. A completion's log-probabilities would depend on its neighbours, and a
sampler's cache would hold keys of both kinds. Up to that length they are ordinary rotary positions.
"""

from functools import partial
from typing import Any

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel


def get_rope_limit(config: PreTrainedConfig) -> int | None:
    """The most positions of one text that are the same in any company; None: no such limit."""
    text = config.get_text_config(decoder=True)
    found = getattr(text, "rope_parameters", None) or {}
    # One for the model, or one for each type of layer.
    kinds = [found] if "rope_type" in found else [one for one in found.values() if one]
    limits = []
    for kind in kinds:
        if kind["rope_type"] == "longrope":
            limits.append(kind["original_max_position_embeddings"])
        elif "dynamic" in kind["rope_type"]:
            limits.append(text.max_position_embeddings)
    return min(limits, default=None)


def refuse_long_texts(model: PreTrainedModel) -> None:
    """From now on raise a ValueError where a text has more positions than `get_rope_limit`, if
    any."""
    longest = get_rope_limit(model.config)
    if longest is not None:
        for module in model.modules():
            if hasattr(module, "rope_type"):
                module.register_forward_pre_hook(partial(_check, longest), with_kwargs=True)


def _check(longest: int, _module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    position_ids = named["position_ids"] if "position_ids" in named else args[1]
    if (found := int(position_ids.max()) + 1) > longest:
        raise ValueError(
            f"expected texts of at most {longest} tokens, found one of {found}: beyond, the "
            f"rotary positions of this model (rope_parameters in config.json) change with the "
            f"longest row of a micro-batch. Lower max_prompt_tokens, max_completion_tokens or "
            f"max_new_tokens, or use a model with more positions."
        )
