"""What a model is computed from here, and the check at load that its own logits come of the same.

Logits are made only of the positions that count: the hidden states of the model's body
(`base_model`), then its output matrix (`get_output_embeddings`). Some architectures do more on the
way: they scale logits, cap them, leave some out, or have a further layer. And some layers do not
keep to the masks and positions of a shared row. Both show on a few tokens, whatever the
architecture is called. A constant factor is kept, as `model.logit_factor`; the rest is refused.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel

from stages.algorithms.logprobs import OutputLayer
from stages.models.batch import Batch, Group, eval_no_grad, make_batch

GROUPS = (
    Group(prompt_ids=[2, 3, 4], completions=[[5, 6, 7], [8, 9]], indices=[0, 1]),
    Group(prompt_ids=[10], completions=[[11, 3]], indices=[2]),
)
LARGE_LOGIT = 100.0
"""A cap does little to the small logits of an untrained model: some are made as large as this."""
TOLERANCE = 1e-3
"""Of the largest number at a position; rounding in float32 is a hundred times smaller."""


def compute_hidden_states(model: nn.Module, batch: Batch) -> Float[Tensor, "position hidden"]:
    """Final hidden states of the batch, rows flattened; no logits are computed."""
    output = model.base_model(  # pyright: ignore[reportCallIssue]
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        position_ids=batch.position_ids,
        use_cache=False,
    )
    return output.last_hidden_state.flatten(0, 1)


def get_output_layer(model: PreTrainedModel) -> OutputLayer:
    """The layer that makes logits of hidden states."""
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        raise ValueError(
            f"{_name(model)}: expected a linear output layer from get_output_embeddings, found "
            f"{type(head).__name__}. Use a model of another architecture, such as Llama or Qwen."
        )
    return OutputLayer(head.weight, head.bias)


def check_forward(model: PreTrainedModel, *, shared: bool) -> None:
    """Refuse what would be computed otherwise than by the model itself, in float32 and eval mode.

    Of a model with any head, that hidden states in a row that groups share (with `shared`) are
    those of rows of their own, and do not see the padding after them; of a language model, that its
    logits are its output layer's of these hidden states.
    """
    rows = [
        [Group(prompt_ids=group.prompt_ids, completions=[ids], indices=[0])]
        for group in GROUPS
        for ids in group.completions
    ]
    plain = make_batch(rows, 0, model.device)
    with eval_no_grad(model), torch.autocast(model.device.type, enabled=False):
        batch = make_batch([GROUPS] if shared else rows, 1, model.device)
        found = compute_hidden_states(model, batch)[batch.predict_index]
        if model.can_generate():
            expected = _check_head(model, plain, found)
        else:
            expected = compute_hidden_states(model, plain)[plain.predict_index]
    if not expected.isfinite().all():
        raise ValueError(
            f"{_name(model)}: expected finite numbers, found NaN or infinity in its hidden states: "
            f"its weights are damaged. Copy or train it again."
        )
    if (gap := relative_gap(found, expected)) > TOLERANCE:
        where = "in rows that completions or prompts share" if shared else "whatever comes after"
        raise ValueError(
            f"{_name(model)}: expected the same hidden states {where}, found them {gap:.1%} apart: "
            f"some layer does not keep to masks and positions, such as one with a recurrent state. "
            f"Set compute.row_tokens and compute.pack_tokens to 0; if they are, use a causal model."
        )


def _check_head(
    model: PreTrainedModel, plain: Batch, hidden: Float[Tensor, "counted hidden"]
) -> Float[Tensor, "counted hidden"]:
    """Hold the model's logits of `plain` to its output layer; returns the hidden states of it.

    `hidden` says how loud the last row has to be made, after the body and before all that follows.
    """
    weight, bias = get_output_layer(model)
    gains = torch.ones_like(plain.input_ids, dtype=hidden.dtype)
    peak = linear(hidden, weight, bias).abs().max()
    gains[-1] = LARGE_LOGIT / peak if peak > 0 else 1.0
    kept: list[Tensor] = []

    def amplify(_module: nn.Module, _args: Any, output: Any) -> Any:
        kept.append(output.last_hidden_state.flatten(0, 1)[plain.predict_index])
        output.last_hidden_state = output.last_hidden_state * gains[..., None]
        return output

    hook = model.base_model.register_forward_hook(amplify)
    try:
        logits = model(input_ids=plain.input_ids, use_cache=False).logits
    finally:
        hook.remove()
    if not kept:  # a model that calls a part of its body, as OPT does
        kept.append(compute_hidden_states(model, plain)[plain.predict_index])
        gains.fill_(1)
    logits = logits.flatten(0, 1)[plain.predict_index]
    loud = kept[-1] * gains.flatten()[plain.predict_index, None]
    gap = relative_gap(logits, linear(loud, weight, bias))
    if gap > TOLERANCE and logits.shape[-1] == len(weight):
        product = linear(loud, weight).double()
        rest = logits.double() if bias is None else logits.double() - bias
        factor = ((rest * product).sum() / product.square().sum()).item()
        if factor > 0:
            gap = relative_gap(logits, linear(loud * factor, weight, bias))
            model.logit_factor = factor  # pyright: ignore[reportArgumentType]
    if gap > TOLERANCE:
        raise ValueError(
            f"{_name(model)}: expected logits that are the output layer (get_output_embeddings) of "
            f"the last hidden states (base_model), or of these times a constant, found them "
            f"{gap:.1%} apart, as where logits are capped or left out or come of a further "
            f"layer: its log-probabilities would be wrong here. Use a model of another "
            f"architecture, such as Llama or Qwen."
        )
    return kept[-1]


def relative_gap(found: Float[Tensor, "counted n"], expected: Float[Tensor, "counted m"]) -> float:
    """The largest difference at any position, of the largest number there; 1 if n is not m."""
    if found.shape != expected.shape:
        return 1.0
    largest = expected.abs().amax(-1).clamp(min=1e-12)
    return ((found - expected).abs().amax(-1) / largest).max().item()


def _name(model: PreTrainedModel) -> str:
    return f"{type(model).__name__} ({model.config.model_type})"
