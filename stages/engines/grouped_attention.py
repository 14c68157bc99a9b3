"""Attention of a next token over keys that several heads share, without a copy for each head.

transformers' `sdpa` repeats grouped keys and values (Ainslie et al. 2023, "GQA",
https://arxiv.org/abs/2305.13245) for every head wherever there is a mask, at every layer and token:
with 6 heads a group, 13 times the bytes. One new token has no order to keep, so the heads of a
group are asked as if they were as many tokens of one head.
"""

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "sdpa_grouped"
"""The `attn_implementation`."""


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **settings: Any,
) -> tuple[Tensor, None]:
    """`sdpa` but for one new token: [batch, head, 1, dim] over [batch, group, seq, dim]."""
    one = query.shape[2] == 1 and (attention_mask is None or attention_mask.shape[1] == 1)
    if not one or key.shape[1] == query.shape[1] or settings.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)  # pyright: ignore[reportReturnType]
    found = scaled_dot_product_attention(
        query.reshape(query.shape[0], key.shape[1], -1, query.shape[3]),
        key,
        value,
        attn_mask=attention_mask,
        dropout_p=settings.get("dropout", 0.0),
        scale=settings.get("scaling"),
    )
    return found.reshape(query.shape[0], 1, query.shape[1], -1), None


def use(model: PreTrainedModel) -> None:
    """Have the model attend so, wherever it reads; its results change by rounding alone.

    Nothing where no heads share keys, or an architecture brings attention of its own.
    """
    config = model.config.get_text_config(decoder=True)
    num_heads = getattr(config, "num_attention_heads", 1)
    grouped = (getattr(config, "num_key_value_heads", None) or num_heads) < num_heads
    if grouped and config._attn_implementation == "sdpa" and model._can_set_attn_implementation():
        model.set_attn_implementation(NAME)


AttentionInterface.register(NAME, attend)  # pyright: ignore[reportArgumentType]
AttentionMaskInterface.register(NAME, sdpa_mask)
