"""Forward passes, and the check at load that they give the model's own hidden states and logits.

Logits are computed only at the positions that count: the hidden states of the model's body
(`get_body`) times its output matrix (`get_output_embeddings`). Some architectures do more: they
scale or cap logits, leave some out, or have a further layer. And some layers ignore the masks and
positions of a shared row. A few tokens show both, whatever the architecture's name. A constant
factor becomes `model.logit_factor`; the rest is refused.
"""

from typing import Any, NoReturn

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel

from stages.algorithms.logprobs import OutputLayer
from stages.models.batch import Batch, Group, eval_no_grad, make_batch, split_group

GROUPS = (
    Group(prompt_ids=[2, 3, 4], completions=[[5, 6, 7], [1, 2]], indices=[0, 1]),
    Group(prompt_ids=[6], completions=[[7, 3]], indices=[2]),
)
ROWS = [[part] for group in GROUPS for part in split_group(group, 0)]
"""Batch with one row per completion."""
LARGE_LOGIT = 100.0
"""Size to which some logits are scaled: a cap hardly changes the small logits of random weights."""
TOLERANCE = 0.03
"""Largest `relative_gap` accepted. Rounding in float32 gives 1e-6 with random weights; with
SmolLM2-135M's, where the first token's states are huge, 3e-5 on a CPU and 2e-3 on an H200. A layer
that ignores masks or positions gives 0.4 and more."""

TRAINING_TOLERANCE = 0.005
"""Largest `relative_gap` accepted between hidden states of a batch in training and in evaluation,
which differ only by noise."""


def get_body(model: nn.Module) -> nn.Module:
    """The layers of a model without its head; Llama 4 does not name them as its `base_model`."""
    body: Any = model.base_model
    return body if body is not model else body.model


def compute_hidden_states(model: nn.Module, batch: Batch) -> Float[Tensor, "position hidden"]:
    """Final hidden states of the batch, rows flattened; no logits are computed."""
    output = get_body(model)(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        position_ids=batch.position_ids,
        use_cache=False,
    )
    return output.last_hidden_state.flatten(0, 1)


def get_output_layer(model: PreTrainedModel) -> OutputLayer:
    """The layer from hidden states to logits; a ValueError if it is not linear."""
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        raise ValueError(
            f"{_describe(model)}: expected a linear output layer from get_output_embeddings, found "
            f"{type(head).__name__}. Use a model of another architecture, such as Llama or Qwen."
        )
    return OutputLayer(head.weight, head.bias)


def check_forward(model: PreTrainedModel, *, shared: bool) -> None:
    """Raise a ValueError if forward passes of this module differ from the model's, in float32.

    With any head, hidden states in a row that groups share (with `shared`) have to equal those of
    separate rows, whatever padding comes after them. A language model's logits have to be the
    output layer applied to these hidden states.
    """
    separate = make_batch([ROWS], 0, model.device)
    with eval_no_grad(model), torch.autocast(model.device.type, enabled=False):
        batch = make_batch([[GROUPS] if shared else ROWS], 1, model.device)
        try:
            hidden = compute_hidden_states(model, batch)[batch.predict_index]
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever an architecture stumbles over
            _refuse_rows(model, repr(error), shared=shared)
        if model.can_generate():
            expected = _check_logits(model, separate, hidden)
        else:
            expected = compute_hidden_states(model, separate)[separate.predict_index]
    if not expected.isfinite().all():
        raise ValueError(
            f"{_describe(model)}: expected finite numbers, found NaN or infinity in its hidden "
            f"states: its weights are damaged. Copy or train it again."
        )
    if (gap := relative_gap(hidden, expected)) > TOLERANCE:
        _refuse_rows(model, f"them {gap:.1%} apart", shared=shared)


def check_training(model: PreTrainedModel) -> None:
    """Raise a ValueError if hidden states in training differ from those in evaluation.

    `prepare_model` switches off dropout that modules hold. Falcon reads it from its configuration
    instead, and some routers of experts add noise.
    """
    batch = make_batch([ROWS], 0, model.device)
    devices = [model.device] if model.device.type == "cuda" else []
    with (
        eval_no_grad(model),
        torch.random.fork_rng(devices),
        torch.autocast(model.device.type, enabled=False),
    ):
        expected = compute_hidden_states(model, batch)[batch.predict_index]
        model.train()
        trained = compute_hidden_states(model, batch)[batch.predict_index]
    gap = relative_gap(trained, expected)
    if gap > TRAINING_TOLERANCE:
        raise ValueError(
            f"{_describe(model)}: expected the same hidden states in training as in evaluation, "
            f"found them {gap:.1%} apart: it adds noise in training, such as a random choice of "
            f"experts, so that log-probabilities before and after an update would be of different "
            f"functions. Set that noise to 0 in config.json (keys with dropout or jitter), "
            f"or use a model of another architecture, such as Llama or Qwen."
        )


def _refuse_rows(model: PreTrainedModel, problem: str, *, shared: bool) -> NoReturn:
    where = "in rows that completions or prompts share" if shared else "whatever comes after"
    raise ValueError(
        f"{_describe(model)}: expected the same hidden states {where}, found {problem:.200}: some "
        f"layer ignores masks or positions, such as custom attention or a layer with a recurrent "
        f"state. "
        + (
            "Set compute.row_tokens and compute.pack_tokens to 0."
            if shared
            else "Use a causal model of another architecture, such as Llama or Qwen."
        )
    )


def _check_logits(
    model: PreTrainedModel, batch: Batch, hidden: Float[Tensor, "counted hidden"]
) -> Float[Tensor, "counted hidden"]:
    """Compare the model's logits of `batch` with its output layer's; returns its hidden states.

    Between the body and the layers after it, the last row's hidden states are scaled by the factor
    that takes the largest logit of `hidden` to `LARGE_LOGIT`.
    """
    weight, bias = get_output_layer(model)
    if hidden.shape[-1] != weight.shape[-1]:
        _refuse_logits(model, f"them of {hidden.shape[-1]} and {weight.shape[-1]} numbers")
    scales = torch.ones_like(batch.input_ids, dtype=hidden.dtype)
    peak = linear(hidden, weight, bias).abs().max()
    scales[-1] = LARGE_LOGIT / peak if peak > 0 else 1.0
    states: list[Tensor] = []

    def scale_states(_module: nn.Module, _args: Any, output: Any) -> Any:
        states.append(output.last_hidden_state.flatten(0, 1)[batch.predict_index])
        output.last_hidden_state = output.last_hidden_state * scales[..., None]
        return output

    hook = get_body(model).register_forward_hook(scale_states)
    try:
        logits = model(input_ids=batch.input_ids, use_cache=False).logits
    finally:
        hook.remove()
    if not states:  # a model that calls only a part of its body, as OPT does
        states.append(compute_hidden_states(model, batch)[batch.predict_index])
        scales.fill_(1)
    logits = logits.flatten(0, 1)[batch.predict_index]
    scaled = states[-1] * scales.flatten()[batch.predict_index, None]
    gap = relative_gap(logits, linear(scaled, weight, bias))
    if gap > TOLERANCE and logits.shape[-1] == len(weight):
        product = linear(scaled, weight).double()
        unbiased = logits.double() if bias is None else logits.double() - bias
        factor = ((unbiased * product).sum() / product.square().sum()).item()
        if factor > 0:
            gap = relative_gap(logits, linear(scaled * factor, weight, bias))
            model.logit_factor = factor  # pyright: ignore[reportArgumentType]
    if gap > TOLERANCE:
        _refuse_logits(model, f"them {gap:.1%} apart")
    return states[-1]


def _refuse_logits(model: PreTrainedModel, problem: str) -> NoReturn:
    raise ValueError(
        f"{_describe(model)}: expected logits that are the output layer (get_output_embeddings) of "
        f"the last hidden states (base_model), or of these times a constant, found {problem}, as "
        f"if logits are capped or left out, or a further layer follows: its log-probabilities "
        f"would be wrong here. Use a model of another architecture, such as Llama or Qwen."
    )


def relative_gap(actual: Float[Tensor, "counted n"], expected: Float[Tensor, "counted m"]) -> float:
    """max over positions of max |actual - expected| / max |expected|; 1 if n is not m."""
    if actual.shape != expected.shape:
        return 1.0
    largest = expected.abs().amax(-1).clamp(min=1e-12)
    return ((actual - expected).abs().amax(-1) / largest).max().item()


def _describe(model: PreTrainedModel) -> str:
    return f"{type(model).__name__} ({model.config.model_type})"
