"""How every model here attends: by the mask that a batch brings, and without repeating shared keys.

transformers' `sdpa` with two additions. Of one new token, keys and values that heads share
(Ainslie et al. 2023, "GQA", https://arxiv.org/abs/2305.13245) are not repeated for each head: with
6 heads a group, a thirteenth of the bytes at every layer and token of sampling. And long rows on a
GPU that prompts or completions share bring a `BlockMask` (`make_shared_mask`), for PyTorch's flex
attention (Dong et al. 2024, https://arxiv.org/abs/2412.05496): blocks in which no position attends
to another cost nothing, where a dense mask makes all of them cost, and rules out the fast kernels.
"""

from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "sdpa_by_mask"
"""`attend` as an `attn_implementation`."""
FLEX_MIN_LENGTH = 1024
"""Positions of a row from which a GPU's shared rows bring a `BlockMask`: below, flex attention's
blocks of 128 leave little out."""


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    **other: Any,
) -> tuple[Tensor, None]:
    """Attention of [batch, head, query, dim] over [batch, group, seq, dim], as transformers asks.

    For a single query the heads of a group are asked as if they were tokens of one head: there is
    no order to keep.
    """
    if isinstance(attention_mask, BlockMask):
        found = _flex(query.is_cuda)(
            query, key, value, block_mask=attention_mask, scale=other.get("scaling"),
            enable_gqa=key.shape[1] < query.shape[1],
        )  # fmt: skip
        return found.transpose(1, 2), None
    one = query.shape[2] == 1 and (attention_mask is None or attention_mask.shape[1] == 1)
    if not one or key.shape[1] == query.shape[1] or other.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **other)  # pyright: ignore[reportReturnType]
    heads = query.reshape(query.shape[0], key.shape[1], -1, query.shape[3])
    found = scaled_dot_product_attention(
        heads, key, value, attention_mask, other.get("dropout", 0.0), scale=other.get("scaling")
    )
    return found.reshape(query.shape[0], 1, query.shape[1], -1), None


@cache
def _flex(compiled: bool) -> Any:  # noqa: FBT001
    """Fused where it is compiled; as it stands it computes every score, for tests on the CPU."""
    return torch.compile(flex_attention) if compiled else flex_attention


def use_attention(model: PreTrainedModel) -> None:
    """Have the model `attend`; nothing where its architecture brings attention of its own."""
    if model.config._attn_implementation == "sdpa" and model._can_set_attn_implementation():
        model.set_attn_implementation(NAME)


def make_shared_mask(
    segments: Int[Tensor, "row seq"], prompts: Int[Tensor, "row seq"], device: torch.device
) -> Bool[Tensor, "row 1 seq seq"] | BlockMask:
    """Whether a position (third axis) may attend to another (fourth), on `device`.

    To those before it and itself, in its own segment and in its prompt: `segments` numbers prompts
    and completions within a row, and `prompts` says of each position its prompt's number.
    """
    width = segments.shape[1]
    if device.type == "cuda" and width >= FLEX_MIN_LENGTH:
        return make_block_mask(segments.to(device), prompts.to(device))
    causal = torch.ones(width, width, dtype=torch.bool).tril()
    same = segments[:, :, None] == segments[:, None, :]
    prompt = prompts[:, :, None] == segments[:, None, :]
    return (causal & (same | prompt))[:, None].to(device)


def make_block_mask(segments: Int[Tensor, "row seq"], prompts: Int[Tensor, "row seq"]) -> BlockMask:
    """`make_shared_mask` as flex attention takes it, on the device of the numbers."""
    num_rows, width = segments.shape

    # A lambda: the annotations of a function would be checked against flex attention's own numbers.
    found = create_block_mask(
        lambda row, _head, query, key: (
            (query >= key)
            & (
                (segments[row, query] == segments[row, key])
                | (prompts[row, query] == segments[row, key])
            )
        ),
        *(num_rows, None, width, width),
        str(segments.device),
    )
    found.ndim = 4  # pyright: ignore[reportAttributeAccessIssue] - GPT-2 asks
    return found


AttentionInterface.register(NAME, attend)  # pyright: ignore[reportArgumentType]
AttentionMaskInterface.register(NAME, sdpa_mask)
