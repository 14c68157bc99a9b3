"""Length limit of models whose rotary positions change with the longest row of a micro-batch.

Two methods for long contexts have such positions. `longrope` takes other frequencies for all
positions of a row that is longer than `original_max_position_embeddings`. `dynamic` (NTK) takes
other frequencies, different ones for each length, for a row longer than `max_position_embeddings`.
Beyond these lengths a completion's log-probabilities would depend on its neighbours in the batch,
and a sampler's cache would hold keys of both kinds. Below, both are ordinary rotary positions.
"""

from functools import partial
from typing import Any

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel


def get_rope_limit(config: PreTrainedConfig) -> int | None:
    """Length up to which a text's positions do not depend on its neighbours; None: no limit."""
    text = config.get_text_config(decoder=True)
    parameters = getattr(text, "rope_parameters", None) or {}
    # One dictionary for the model, or one for each type of layer.
    ropes = [parameters] if "rope_type" in parameters else filter(None, parameters.values())
    limits = []
    for rope in ropes:
        if rope["rope_type"] == "longrope":
            limits.append(rope["original_max_position_embeddings"])
        elif "dynamic" in rope["rope_type"]:
            limits.append(text.max_position_embeddings)
    return min(limits, default=None)


def get_num_positions(config: PreTrainedConfig) -> int | None:
    """Number of tokens of the longest text that the model can read; None: no limit."""
    text = config.get_text_config(decoder=True)
    return get_rope_limit(config) or getattr(text, "max_position_embeddings", None)


def refuse_long_texts(model: PreTrainedModel) -> None:
    """Make the model raise a ValueError for a text longer than `get_rope_limit`, if it has one."""
    limit = get_rope_limit(model.config)
    if limit is not None:
        for module in model.modules():
            if hasattr(module, "rope_type"):
                module.register_forward_pre_hook(partial(_check_length, limit), with_kwargs=True)


def _check_length(
    limit: int, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    position_ids = kwargs["position_ids"] if "position_ids" in kwargs else args[1]
    if (length := int(position_ids.max()) + 1) > limit:
        raise ValueError(
            f"expected texts of at most {limit} tokens, found one of {length}: for these, the "
            f"rotary positions of this model (rope_parameters in config.json) change with the "
            f"longest row of a micro-batch. Lower max_prompt_tokens, max_completion_tokens or "
            f"max_new_tokens, or use a model with more positions."
        )
