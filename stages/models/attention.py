"""Attention of every model here: with the mask of the batch, and without repeated shared keys.

transformers' `sdpa` with three additions. For a single new token, keys and values that query heads
share (Ainslie et al. 2023, "GQA", https://arxiv.org/abs/2305.13245) are not repeated for each head:
with 6 heads a group they are read once, and not also written and read 6 times, at every layer and
token of sampling. On a GPU, long rows that several prompts or completions share have a `BlockMask`
(`make_shared_mask`), for PyTorch's flex attention (Dong et al. 2024,
https://arxiv.org/abs/2412.05496): blocks in which no position attends to another cost nothing,
while a dense mask computes them all, and rules out the fast kernels. On a GPU in bfloat16, rows of
sequences that share no prompt have the starts of these sequences instead (`make_starts`), for
FlashAttention's kernels (Dao 2023, https://arxiv.org/abs/2307.08691).
"""

from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "sdpa_by_mask"
"""Name of `attend` as an `attn_implementation`."""
FLEX_MIN_LENGTH = 1024
"""Length from which shared rows on a GPU have a `BlockMask`: in shorter rows, flex attention can
skip few of its blocks of 128."""


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention of [batch, head, query, dim] over [batch, group, seq, dim]; no weights.

    The signature is transformers'. Returns [batch, query, head, dim]. For a single query the heads
    of a group are computed as if they were queries of one head, since they need no causal mask.
    """
    if isinstance(attention_mask, BlockMask):
        output = _flex_attention(query.is_cuda)(
            query, key, value, block_mask=attention_mask, scale=options.get("scaling"),
            enable_gqa=key.shape[1] < query.shape[1],
        )  # fmt: skip
        return output.transpose(1, 2), None
    if attention_mask is not None and attention_mask.dtype == torch.int32:
        return _attend_packed(query, key, value, attention_mask, options.get("scaling")), None
    is_single = query.shape[2] == 1 and (attention_mask is None or attention_mask.shape[1] == 1)
    is_grouped = key.shape[1] != query.shape[1]
    if not is_single or not is_grouped or options.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)  # pyright: ignore[reportReturnType]
    heads = query.reshape(query.shape[0], key.shape[1], -1, query.shape[3])
    dropout, scale = options.get("dropout", 0.0), options.get("scaling")
    output = scaled_dot_product_attention(heads, key, value, attention_mask, dropout, scale=scale)
    return output.reshape(query.shape[0], 1, query.shape[1], -1), None


def _attend_packed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Int[Tensor, "1 1 longest start"],
    scale: float | None,
) -> Tensor:
    """Causal attention within the sequences whose starts are those of `make_starts`."""
    parts = [states.transpose(1, 2).flatten(0, 1) for states in (query, key, value)]
    starts, longest, is_grouped = mask[0, 0, 0], mask.shape[2], key.shape[1] < query.shape[1]
    if _has_flash_attention(query.device) and _fits_flash_attention(key, value):
        dtype = torch.get_autocast_dtype("cuda")
        queries, keys, values = (states.to(dtype) for states in parts)
        output: Any = varlen_attn(
            queries, keys, values, starts, starts, longest, longest, scale=scale,
            window_size=(-1, 0), enable_gqa=is_grouped,
        )  # fmt: skip
    else:
        sizes = starts.diff().tolist()
        sequences = zip(*(states.transpose(0, 1).split(sizes, 1) for states in parts), strict=True)
        outputs = [
            scaled_dot_product_attention(
                *(states[None] for states in sequence), is_causal=True, scale=scale,
                enable_gqa=is_grouped,
            )[0]
            for sequence in sequences
        ]  # fmt: skip
        output = torch.cat(outputs, dim=1).transpose(0, 1)
    return output.unflatten(0, (query.shape[0], -1))


def _has_flash_attention(device: torch.device) -> bool:
    if device.type != "cuda" or not torch.is_autocast_enabled("cuda"):
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)  # Ampere


def _fits_flash_attention(key: Tensor, value: Tensor) -> bool:
    """Whether its kernels take heads of this size; `scaled_dot_product_attention` pads them."""
    size = key.shape[-1]
    return size == value.shape[-1] and size % 8 == 0 and size <= 256


@cache
def _flex_attention(compiled: bool) -> Any:  # noqa: FBT001
    """Flex attention, fused if `compiled`; else it computes every score, for tests on the CPU."""
    return torch.compile(flex_attention) if compiled else flex_attention


def use_attention(model: PreTrainedModel) -> None:
    """Set `attend` as the model's attention, unless its architecture defines its own."""
    if model.config._attn_implementation == "sdpa" and model._can_set_attn_implementation():
        model.set_attn_implementation(NAME)


def make_shared_mask(
    segments: Int[Tensor, "row seq"], prompts: Int[Tensor, "row seq"], device: torch.device
) -> Bool[Tensor, "row 1 seq seq"] | Int[Tensor, "1 1 longest start"] | BlockMask:
    """Mask of rows with several segments, on `device`: [row, 1, query, key], True to attend.

    On a GPU a `BlockMask` or `make_starts`, if these are faster.

    A position attends to itself and to those before it in its segment or its prompt. `segments`
    numbers the prompts and completions of a row; `prompts`: each position's prompt, by its number.
    """
    width = segments.shape[1]
    if _has_flash_attention(device) and is_packed(segments, prompts):
        return make_starts(prompts).to(device)
    if device.type == "cuda" and width >= FLEX_MIN_LENGTH:
        return make_block_mask(segments.to(device), prompts.to(device))
    causal = torch.ones(width, width, dtype=torch.bool).tril()
    same_segment = segments[:, :, None] == segments[:, None, :]
    in_prompt = prompts[:, :, None] == segments[:, None, :]
    return (causal & (same_segment | in_prompt))[:, None].to(device)


def is_packed(segments: Int[Tensor, "row seq"], prompts: Int[Tensor, "row seq"]) -> bool:
    """Whether no prompt has a second completion, so that attention is causal in each sequence."""
    return bool((segments - prompts).max() <= 1)


def make_starts(prompts: Int[Tensor, "row seq"]) -> Int[Tensor, "1 1 longest start"]:
    """Starts of the sequences of packed rows, in order, and the end of the last.

    A sequence is a prompt with its completion, or a row's padding. The length of the longest one is
    that of an axis, so the host knows it; the shape makes transformers take the tensor for a mask.
    """
    is_start = torch.ones_like(prompts, dtype=torch.bool)
    is_start[:, 1:] = prompts[:, 1:] != prompts[:, :-1]
    end = torch.tensor([prompts.numel()])
    starts = torch.cat([is_start.flatten().nonzero().squeeze(1), end]).int()
    return starts.expand(1, 1, int(starts.diff().max()), -1)


def make_block_mask(segments: Int[Tensor, "row seq"], prompts: Int[Tensor, "row seq"]) -> BlockMask:
    """`make_shared_mask` for flex attention, on the device of `segments`."""
    num_rows, width = segments.shape

    # A lambda: the annotations of a function would be checked against flex attention's own numbers.
    mask = create_block_mask(
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
    mask.ndim = 4  # pyright: ignore[reportAttributeAccessIssue] - GPT-2 reads it
    return mask


AttentionInterface.register(NAME, attend)  # pyright: ignore[reportArgumentType]
AttentionMaskInterface.register(NAME, sdpa_mask)
