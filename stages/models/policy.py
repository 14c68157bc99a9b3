"""A causal language model as a policy: load, log-probabilities of completions, save."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase
from transformers.utils import logging

from stages.algorithms.logprobs import token_logprobs
from stages.models import attention, forward_check, rope_limit, sharding
from stages.models.batch import Batch
from stages.models.device import COMPUTE, ComputeConfig
from stages.models.forward_check import compute_hidden_states, get_output_layer


def load_checkpoint(
    auto_class: Any, path: str | Path, *, new: frozenset[str], **settings: Any
) -> PreTrainedModel:
    """The model of `auto_class` (an AutoModelFor...) at `path`, a folder or a hub id.

    Weights are read from safetensors, in float32; attention is PyTorch's, which takes the boolean
    masks of shared rows (eager would add them). Weights that are missing would be random numbers:
    only those of a `new` head may be.
    """
    # What the report and the bar say is checked below, or is noise in a log.
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model: Any = None
    try:
        model, report = auto_class.from_pretrained(
            str(path), dtype=torch.float32, use_safetensors=True, attn_implementation="sdpa",
            output_loading_info=True, ignore_mismatched_sizes=True, **settings,
        )  # fmt: skip
        wrong = set(report["missing_keys"]) - new
        wrong |= {str(one[0]) for one in report["mismatched_keys"]}
        found, cause = f"{len(wrong)} weights missing or of another shape: {sorted(wrong)}", None
    except Exception as error:  # noqa: BLE001 - whatever transformers makes of what is there
        wrong = found = " ".join(str(error).split())
        cause = error
        model = None
    finally:
        logging.set_verbosity(verbosity)
    if model is None or wrong:
        raise ValueError(
            f"{path}: expected a whole {auto_class.__name__} in safetensors, found {found:.250}. "
            f"Save it again with save_pretrained, or name another in params.yaml."
        ) from cause
    return model


def load_policy(
    path: str | Path, compute: ComputeConfig, device: torch.device, revision: str | None = None, *,
    trained: bool = True,
) -> PreTrainedModel:  # fmt: skip
    """The causal language model at `path` (a folder or a hub id), prepared."""
    read = load_checkpoint(AutoModelForCausalLM, path, new=frozenset(), revision=revision or "main")
    return prepare_model(read, compute, device, trained=trained)


def prepare_model(
    model: PreTrainedModel, compute: ComputeConfig, device: torch.device, *, trained: bool = True
) -> PreTrainedModel:
    """Move to the device, switch dropout off, and checkpoint activations if asked to.

    Without dropout old and new log-probabilities of a completion come from the same function. A
    model that would be computed wrong is refused: see `own_logits` and `positions`. One that is not
    `trained` has its weights in the compute dtype; a scalar or process head stays in float32.
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
    attention.use_attention(model)
    rope_limit.refuse_long_texts(model)
    forward_check.check_forward(model, shared=shared)
    if not trained:
        # They keep asking for a gradient: by others torch multiplies in another way, and rounds so.
        part: nn.Module = model if model.can_generate() else model.base_model
        for parameter in part.parameters():  # not the buffers, which hold positions' frequencies
            parameter.data = parameter.data.to(getattr(torch, compute.dtype))
    elif compute.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    return model


def _attends_to_all(model: PreTrainedModel) -> bool:
    """Whether every layer is plain causal attention, in which alone a mask says it all."""
    config = model.config.get_text_config(decoder=True)
    if layer_types := getattr(config, "layer_types", None):
        return set(layer_types) == {"full_attention"}
    return getattr(config, "sliding_window", None) is None  # Mistral: one for all layers, or none


DisableAdapters = Callable[[], AbstractContextManager[Any]]
"""Within this context a model is as it was before its adapters."""


class TokenLogprobs(NamedTuple):
    """What a policy says of the tokens of a batch; each is 0 where `batch.mask` is False."""

    logprobs: Float[Tensor, "batch token"]
    """log p of each completion token given what stands before it."""
    entropies: Float[Tensor, "batch token"]
    """The entropy of p."""


class Policy(nn.Module):
    """A causal language model that reads batches of completions.

    One with adapters is its own reference, asked with `adapted=False`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        compute: ComputeConfig = COMPUTE,
        pad_id: int = 0,
        without: DisableAdapters | None = None,
    ) -> None:
        """`model` is prepared (see `prepare_model`); its adapters, if any, are off within
        `without`."""
        super().__init__()
        self.model, self.compute, self.pad_id = model, compute, pad_id
        self._without = without or nullcontext

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.model.device

    def logit_states(self, batch: Batch, *, adapted: bool) -> Float[Tensor, "counted hidden"]:
        """What the output layer makes the logits of each completion token from."""
        factor = getattr(self.model, "logit_factor", 1.0)
        with nullcontext() if adapted else self._without():
            states = compute_hidden_states(self.model, batch)[batch.predict_index]
        return states if factor == 1 else states * factor

    def forward(
        self,
        batch: Batch,
        *,
        temperature: float,
        entropy: bool = True,
        entropy_gradient: bool = False,
        adapted: bool = True,
    ) -> TokenLogprobs:
        """The log-probs and entropies.

        Without `entropy` the entropies are not computed, but NaN. No gradient flows through them,
        but with `entropy_gradient`.
        """
        found = token_logprobs(
            self.logit_states(batch, adapted=adapted),
            get_output_layer(self.model),
            batch.counted_ids(),
            temperature=temperature,
            entropy=entropy,
            entropy_gradient=entropy_gradient,
        )
        return TokenLogprobs(*(unflatten(values, batch) for values in found))


def unflatten(own: Float[Tensor, " counted"], batch: Batch) -> Float[Tensor, "batch token"]:
    """Values of the counted tokens, laid out as `batch.mask`; 0 elsewhere."""
    values = sharding.gather_completions(own, batch.lengths, batch.own)
    return values.new_zeros(batch.mask.shape).masked_scatter(batch.mask, values)


def apply_head(
    head: nn.Module, hidden: Float[Tensor, "position hidden"]
) -> Float[Tensor, "position output"]:
    """What a head makes of hidden states, in float32 (float64 stays as it is).

    In bfloat16 a score would have 8 bits: ties where there are none.
    """
    hidden = hidden if hidden.dtype == torch.float64 else hidden.float()
    with torch.autocast(hidden.device.type, enabled=False):
        return head(hidden)


def make_decode(tokenizer: PreTrainedTokenizerBase) -> Callable[[Sequence[int]], str]:
    """Token ids to text without special tokens."""
    return lambda token_ids: str(tokenizer.decode(list(token_ids), skip_special_tokens=True))


def merged_weights(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Name and value of each weight as the model itself has them, adapters merged, one at a time.

    The model stays as it is: merging in place and taking apart again would round it. What two names
    share has the first.
    """
    owners = {name for name, _ in model.named_parameters()}
    shared = {name for name, _ in model.named_parameters(remove_duplicate=False)} - owners
    with torch.no_grad(), torch.autocast(model.device.type, enabled=False):
        for name, value in model.state_dict().items():
            if name in shared or ".lora_" in name or ".original_module." in name:
                continue
            layer, base, _ = name.partition(".base_layer.weight")
            if base:
                delta: Any = model.get_submodule(layer).get_delta_weight
                value = value + delta("default")  # noqa: PLW2901
            plain = name.replace(".base_layer.", ".").replace(".modules_to_save.default.", ".")
            yield plain, sharding.full_tensor(value)


def save_model(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, path: Path,
    dtype: Literal["float32", "bfloat16"] = "float32",
) -> None:  # fmt: skip
    """Write model (safetensors, adapters merged) and tokenizer in transformers' format.

    `dtype` is that of the weights in the file, and of `config.json`, from which others take it. Of
    several processes the first writes.
    """
    kept, precision = {}, getattr(torch, dtype)
    for name, value in merged_weights(model):
        if sharding.get_rank() == 0:
            kept[name] = value.to("cpu", precision) if value.is_floating_point() else value.cpu()
    if sharding.get_rank() > 0:
        return
    model.save_pretrained(path, state_dict=kept)
    config = copy.copy(model.config)
    config.dtype = dtype
    config.save_pretrained(path)
    tokenizer.save_pretrained(path)
