"""A causal language model as a policy: load, log-probabilities of completions, save."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase
from transformers.utils import logging

from stages.algorithms.logprobs import full_kl, token_logprobs
from stages.models import own_logits, positions
from stages.models.batch import Batch
from stages.models.device import ComputeConfig
from stages.models.own_logits import hidden_states, output_layer


def read_checkpoint(
    auto_class: Any, path: str | Path, *, new: frozenset[str], **settings: Any
) -> PreTrainedModel:
    """The model of `auto_class` (an AutoModelFor...) at `path`, a folder or a hub id.

    Weights are read from safetensors, in float32; attention is PyTorch's, which takes
    the boolean masks of shared rows (eager attention would add them to the scores). A weight that
    is missing would be a random number, so only those of a `new` head may be.
    """
    # What the report and the bar say is checked below, or is noise in a log.
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        model, report = auto_class.from_pretrained(
            str(path),
            dtype=torch.float32,
            use_safetensors=True,
            attn_implementation="sdpa",
            output_loading_info=True,
            **settings,
        )
    finally:
        logging.set_verbosity(verbosity)
    wrong = (set(report["missing_keys"]) - new) | {str(key) for key in report["mismatched_keys"]}
    if wrong:
        raise ValueError(
            f"{path}: weights missing or of another shape: {', '.join(sorted(wrong))}. The "
            f"checkpoint is not a whole {auto_class.__name__}: save it again with "
            f"save_pretrained, or name another in params.yaml."
        )
    return model


def load(
    path: str | Path, compute: ComputeConfig, device: torch.device, revision: str | None = None
) -> PreTrainedModel:
    """The causal language model at `path` (a folder or a hub id), prepared."""
    revision = revision or "main"
    model = read_checkpoint(AutoModelForCausalLM, path, new=frozenset(), revision=revision)
    return prepare(model, compute, device)


def prepare(
    model: PreTrainedModel, compute: ComputeConfig, device: torch.device
) -> PreTrainedModel:
    """Move to the device, switch dropout off, and checkpoint activations if asked to.

    Without dropout old and new log-probabilities of a completion come from the same function. A
    model that would be computed wrong is refused: see `own_logits` and `positions`.
    """
    shared = bool(compute.row_tokens or compute.pack_tokens)
    if shared and not _attends_to_all(model):
        raise ValueError(
            f"{model.config.model_type} has layers that do not attend to all that stands before, "
            f"such as sliding windows, which rows shared by several completions or prompts would "
            f"ignore: set compute.row_tokens and compute.pack_tokens to 0."
        )
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        # Attention dropout is a number on the attention module, read at every forward pass.
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0  # pyright: ignore[reportArgumentType]
    model.to(device)  # pyright: ignore[reportArgumentType]
    positions.refuse_longer(model)
    own_logits.check(model, shared=shared)
    if compute.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    return model


def _attends_to_all(model: PreTrainedModel) -> bool:
    """Whether every layer is plain causal attention, in which alone a mask says it all."""
    config = model.config.get_text_config(decoder=True)
    if layer_types := getattr(config, "layer_types", None):
        return set(layer_types) == {"full_attention"}
    # Mistral: one window for all layers, or none
    return getattr(config, "sliding_window", None) is None


def states(model: PreTrainedModel, batch: Batch) -> Float[Tensor, "counted hidden"]:
    """What the output layer makes the logits of each completion token from."""
    factor = getattr(model, "logit_factor", 1.0)
    found = hidden_states(model, batch)[batch.predict_index]
    return found if factor == 1 else found * factor


def state_logprobs(
    model: PreTrainedModel,
    hidden: Float[Tensor, "counted hidden"],
    batch: Batch,
    *,
    temperature: float,
    entropy_gradient: bool = False,
) -> tuple[Float[Tensor, "batch token"], Float[Tensor, "batch token"]]:
    """See `completion_logprobs`, from the batch's `states`."""
    logprobs, entropies = token_logprobs(
        hidden,
        output_layer(model),
        batch.token_ids[batch.mask],
        temperature=temperature,
        entropy_gradient=entropy_gradient,
    )
    return unflatten(logprobs, batch), unflatten(entropies, batch)


def completion_logprobs(
    model: PreTrainedModel, batch: Batch, *, temperature: float
) -> tuple[Float[Tensor, "batch token"], Float[Tensor, "batch token"]]:
    """log p of each completion token given what stands before it, and the entropy of p.

    Both are 0 where `batch.mask` is False. No gradient flows through the entropy.
    """
    return state_logprobs(model, states(model, batch), batch, temperature=temperature)


def state_kl(
    model: PreTrainedModel,
    hidden: Float[Tensor, "counted hidden"],
    reference: PreTrainedModel,
    batch: Batch,
    *,
    temperature: float,
) -> Float[Tensor, "batch token"]:
    """KL(model || reference) over the whole vocabulary at each token, from the model's `states`."""
    with torch.no_grad():
        ref_hidden = states(reference, batch)
    found = full_kl(
        hidden, output_layer(model), ref_hidden, output_layer(reference), temperature=temperature
    )
    return unflatten(found, batch)


def unflatten(values: Float[Tensor, " counted"], batch: Batch) -> Float[Tensor, "batch token"]:
    """Values of the counted tokens, laid out as `batch.mask`; 0 elsewhere."""
    return values.new_zeros(batch.mask.shape).masked_scatter(batch.mask, values)


def in_full(
    head: nn.Module, hidden: Float[Tensor, "position hidden"]
) -> Float[Tensor, "position output"]:
    """What a head makes of hidden states, in float32 (float64 stays as it is).

    In bfloat16 a score would have 8 bits: ties where there are none.
    """
    hidden = hidden if hidden.dtype == torch.float64 else hidden.float()
    with torch.autocast(hidden.device.type, enabled=False):
        return head(hidden)


def decoder(tokenizer: PreTrainedTokenizerBase) -> Callable[[Sequence[int]], str]:
    """Token ids to text without special tokens."""
    return lambda token_ids: str(tokenizer.decode(list(token_ids), skip_special_tokens=True))


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, path: Path) -> None:
    """Write model (safetensors) and tokenizer in transformers' format."""
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
