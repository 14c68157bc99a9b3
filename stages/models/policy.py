"""A causal language model as a policy: load, log-probabilities of completions, save."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.algorithms.logprobs import token_logprobs
from stages.models import checkpoint
from stages.models.batch import Batch
from stages.models.device import ComputeConfig

# Set by architectures that change the logits after the output matrix, which the chunked
# log-probabilities here would miss.
LOGIT_TRANSFORMS = ("final_logit_softcapping", "logits_scaling", "logit_scale")


def load(
    path: str | Path,
    compute: ComputeConfig,
    device: torch.device,
    revision: str | None = None,
) -> PreTrainedModel:
    """The causal language model at `path` (a folder or a hub id).

    Dropout is switched off: the old and the new log-probabilities of one completion
    must come from the same function.

    Raises:
        ValueError: an architecture whose logits are not a plain linear map.
    """
    model = checkpoint.read(
        AutoModelForCausalLM, path, new=frozenset(), revision=revision or "main"
    )
    return prepare(model, compute, device)


def prepare(
    model: PreTrainedModel, compute: ComputeConfig, device: torch.device
) -> PreTrainedModel:
    """Move to the device, switch dropout off, and checkpoint activations if asked to."""
    for name in LOGIT_TRANSFORMS:
        if getattr(model.config, name, None) not in (None, 1.0):
            raise ValueError(
                f"{model.config.model_type} sets `{name}`: its logits are not a linear map of "
                f"the hidden state, which this project does not support. Use a Llama, Qwen, "
                f"Mistral or GPT-2 type model."
            )
    if compute.row_tokens and "sliding_attention" in (
        getattr(model.config, "layer_types", None) or ()
    ):
        raise ValueError(
            f"{model.config.model_type} has sliding-window layers, which rows shared by several "
            f"completions would ignore: set compute.row_tokens to 0."
        )
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        # Attention dropout is a number on the attention module, read at every forward pass.
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0  # pyright: ignore[reportArgumentType]
    if compute.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    return model.to(device)  # pyright: ignore[reportArgumentType]


def hidden_states(model: PreTrainedModel, batch: Batch) -> Float[Tensor, "position hidden"]:
    """Final hidden states of the batch, rows flattened; no logits are computed."""
    output = model.base_model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        position_ids=batch.position_ids,
        use_cache=False,
    )
    return output.last_hidden_state.flatten(0, 1)


def completion_logprobs(
    model: PreTrainedModel, batch: Batch, *, temperature: float
) -> tuple[Float[Tensor, "batch token"], Float[Tensor, "batch token"]]:
    """log p of each completion token given what stands before it, and the entropy of p.

    Both are 0 where `batch.mask` is False. Only the predicting positions reach the
    output matrix.
    """
    head = model.get_output_embeddings()
    assert isinstance(head, nn.Linear), f"expected a linear output layer, found {type(head)}"
    logprobs, entropies = token_logprobs(
        hidden_states(model, batch)[batch.predict_index],
        head.weight,
        batch.token_ids[batch.mask],
        temperature=temperature,
        output_bias=head.bias,
    )
    return unflatten(logprobs, batch), unflatten(entropies, batch)


def unflatten(values: Float[Tensor, " counted"], batch: Batch) -> Float[Tensor, "batch token"]:
    """Values of the counted tokens, laid out as `batch.mask`; 0 elsewhere."""
    grid = values.new_zeros(batch.mask.shape)
    return grid.masked_scatter(batch.mask, values)


def decoder(tokenizer: PreTrainedTokenizerBase) -> Callable[[Sequence[int]], str]:
    """Token ids to text without special tokens."""

    def decode(token_ids: Sequence[int]) -> str:
        text = tokenizer.decode(list(token_ids), skip_special_tokens=True)
        assert isinstance(text, str)
        return text

    return decode


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, path: Path) -> None:
    """Write model (safetensors) and tokenizer in transformers' format."""
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
