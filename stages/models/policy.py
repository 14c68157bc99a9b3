"""A causal language model as a policy: loading, log-probabilities of completions, saving."""

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.tokenization_utils_base import PreTrainedTokenizerBase
from transformers.utils import logging

from stages.algorithms.forward_kl import forward_kl
from stages.algorithms.logprobs import token_logprobs
from stages.models import (
    attention,
    compilation,
    forward_check,
    model_tokenizer,
    rope_limit,
    sharding,
)
from stages.models.batch import Batch, eval_no_grad
from stages.models.device import COMPUTE, ComputeConfig
from stages.models.forward_check import compute_hidden_states, get_output_layer

SDPA = "sdpa"
"""Name in transformers of attention by torch's scaled_dot_product_attention."""
NOT_OF_TEXT = re.compile(
    r"(^|[._])(vision|visual|image|audio|multi_modal|mtp|nextn|rotary_emb)"
    r"|\b(attn|attention)\.(bias|masked_bias)$|^decoder\.version$"
)
"""Names of tensors that change no logit of a text: weights for images and sound, heads that predict
later tokens, and buffers that are computed anew (rotary frequencies; the causal masks that GPT-2,
GPT-Neo and GPT-J were saved with)."""


def load_pretrained(
    auto_class: Any, path: str | Path, *, new: frozenset[str], **settings: Any
) -> PreTrainedModel:
    """The model of `auto_class` (an AutoModelFor...) at `path`, a folder or a hub id.

    Weights are read from safetensors, in float32. Whatever config.json names, attention is
    PyTorch's, which takes the boolean masks of shared rows, if the architecture supports it.
    A ValueError for missing weights, which would be random numbers, except those of a `new` head;
    and for weights in the file that have no place in the model (`_describe_fault`).
    """
    # Warnings and progress bars are noise in a log, or become an error below.
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        revision = settings.get("revision") or "main"
        config, _ = PreTrainedConfig.get_config_dict(str(path), revision=revision)
        quantisation = config.get("quantization_config") or config.get("compression_config")
        # transformers dequantises mxfp4 (gpt-oss); others would stay quantised and be saved so.
        if quantisation and (kind := quantisation.get("quant_method")) != "mxfp4":
            raise ValueError(
                f"quantised weights ({kind}, by its config.json), which cannot be trained as they "
                f"are: dequantise them elsewhere"
            )
        model, report = auto_class.from_pretrained(
            str(path), dtype=torch.float32, use_safetensors=True,
            output_loading_info=True, ignore_mismatched_sizes=True, **settings,
        )  # fmt: skip
        if model.config._attn_implementation != SDPA and model._supports_sdpa:
            model.set_attn_implementation(SDPA)
        fault, cause = _describe_fault(model, report, new), None
    except Exception as error:  # noqa: BLE001 - whatever transformers makes of the files
        model, cause = None, error
        fault = " ".join(str(error).split())
    finally:
        logging.set_verbosity(verbosity)
    if model is None or fault is not None:
        raise ValueError(
            f"{path}: expected a whole {auto_class.__name__} in safetensors, found {fault:.250}. "
            f"Save it again with save_pretrained, or name another in params.yaml."
        ) from cause
    return model


def _describe_fault(
    model: PreTrainedModel, report: Mapping[str, Any], new: frozenset[str]
) -> str | None:
    """Weights that the files lack, or that would be lost when the model is saved; else None."""
    missing = {*report["missing_keys"]} - new
    missing |= {str(name) for name, *_ in report["mismatched_keys"]}
    if missing:
        return f"{len(missing)} weights missing or of another shape: {sorted(missing)}"
    unread = {name for name in report["unexpected_keys"] if not NOT_OF_TEXT.search(name)}
    if new:  # the new head replaces the one in the file
        unread = {name for name in unread if name.startswith(f"{model.base_model_prefix}.")}
    if unread:
        return f"{len(unread)} weights for which its config.json has no place: {sorted(unread)}"
    if getattr(model, "_hf_peft_config_loaded", False):
        return "LoRA adapters (adapter_config.json), on weights from elsewhere: merge_and_unload()"
    return None


def load_policy(
    path: str | Path, compute: ComputeConfig, device: torch.device, revision: str | None = None, *,
    trained: bool = True,
) -> PreTrainedModel:  # fmt: skip
    """The causal language model at `path` (a folder or a hub id), after `prepare_model`."""
    version = revision or "main"
    model = load_pretrained(AutoModelForCausalLM, path, new=frozenset(), revision=version)
    if trained and model.generation_config is not None:
        try:  # else transformers would refuse to save it with the trained policy
            model.generation_config.validate(strict=True)
        except ValueError as error:
            raise ValueError(
                f"{path}: expected a generation_config.json that can be saved with the trained "
                f"policy, found {' '.join(str(error).split()):.250}. Correct the file: beside a "
                f"temperature or top_p, write do_sample: true."
            ) from error
    return prepare_model(model, compute, device, trained=trained)


def prepare_model(
    model: PreTrainedModel, compute: ComputeConfig, device: torch.device, *, trained: bool = True
) -> PreTrainedModel:
    """Move a model to the device, switch dropout off, set gradient checkpointing as in `compute`.

    Without dropout old and new log-probabilities of a completion come from the same function. A
    ValueError for a model with wrong outputs: see `forward_check` and `rope_limit`. If not
    `trained`, weights have the compute dtype; a scalar or process head stays in float32.
    """
    shared = bool(compute.row_tokens or compute.pack_tokens)
    if shared and not _has_full_attention(model.config):
        raise ValueError(
            f"{model.config.model_type} has layers that do not attend to all that stands before, "
            f"such as sliding windows, which rows shared by several completions or prompts would "
            f"ignore: set compute.row_tokens and compute.pack_tokens to 0."
        )
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        # Other modules have dropout as a number that they read at every forward pass:
        # `attention_dropout` of Llama, `dropout` and `layerdrop` of OPT.
        for name, value in vars(module).items():
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)
    model.to(device)  # pyright: ignore[reportArgumentType]
    attention.use_attention(model)
    rope_limit.refuse_long_texts(model)
    forward_check.check_forward(model, shared=shared)
    if not trained:
        # `requires_grad` stays True: without it torch multiplies, and so rounds, in another way.
        part: nn.Module = model if model.can_generate() else model.base_model
        for parameter in part.parameters():  # not the buffers, which hold rotary frequencies
            parameter.data = parameter.data.to(getattr(torch, compute.dtype))
    else:
        forward_check.check_training(model)
        if compute.gradient_checkpointing is True:  # auto is decided by `stage.run`
            model.gradient_checkpointing_enable({"use_reentrant": False})
            model.enable_input_require_grads()
    if compilation.is_chosen(compute.compile, model, device):  # after the checks on short rows
        compilation.compile_layers(model, forward_check.get_body(model))
    return model


def can_share_rows(model: PreTrainedModel) -> bool:
    """Whether completions and prompts can share rows, as far as class and configuration tell.

    `forward_check` measures it when weights are loaded. An architecture's own attention takes no
    boolean masks, nor do biases by distance (ALiBi), as in the first Falcons.
    """
    has_bias = getattr(model.config.get_text_config(decoder=True), "alibi", False)
    return model._supports_sdpa and _has_full_attention(model.config) and not has_bias  # pyright: ignore[reportReturnType]


def _has_full_attention(whole_config: PreTrainedConfig) -> bool:
    """Whether every layer has full causal attention, which only a mask restricts."""
    config = whole_config.get_text_config(decoder=True)
    if layer_types := getattr(config, "layer_types", None):
        return set(layer_types) == {"full_attention"}
    return getattr(config, "sliding_window", None) is None  # Mistral: one window for all layers


DisableAdapters = Callable[[], AbstractContextManager[Any]]
"""Function that returns a context in which a model's adapters are disabled."""


class TokenLogprobs(NamedTuple):
    """Log-probabilities and entropies of a batch's tokens; 0 where `batch.mask` is False."""

    logprobs: Float[Tensor, "batch token"]
    """log p of each completion token given the tokens before it."""
    entropies: Float[Tensor, "batch token"]
    """The entropy of p."""


class TokenDivergences(NamedTuple):
    """Divergences from a teacher, and log-probabilities; 0 where `batch.mask` is False."""

    divergences: Float[Tensor, "batch token"]
    """KL(teacher || policy) of the next token, at the position of each completion token."""
    logprobs: Float[Tensor, "batch token"]
    """log p of each completion token at temperature 1."""


class Policy(nn.Module):
    """Causal language model that computes log-probs of batches of completions.

    With adapters it is its own reference, computed with `adapted=False`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        compute: ComputeConfig = COMPUTE,
        pad_id: int = 0,
        disable_adapters: DisableAdapters | None = None,
    ) -> None:
        """`model` is from `prepare_model`, `disable_adapters` from `row_policy.add_adapters`."""
        super().__init__()
        self.model, self.compute, self.pad_id = model, compute, pad_id
        self._disable_adapters = disable_adapters or nullcontext

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.model.device

    def logit_states(self, batch: Batch, *, adapted: bool) -> Float[Tensor, "counted hidden"]:
        """Final hidden states before each completion token: the inputs of the output layer."""
        factor = getattr(self.model, "logit_factor", 1.0)
        with nullcontext() if adapted else self._disable_adapters():
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
        """Log-probs and entropies of the batch's tokens.

        Entropies are NaN without `entropy`, and have a gradient only with `entropy_gradient`.
        """
        outputs = token_logprobs(
            self.logit_states(batch, adapted=adapted),
            get_output_layer(self.model),
            batch.counted_ids(),
            temperature=temperature,
            entropy=entropy,
            entropy_gradient=entropy_gradient,
        )
        return TokenLogprobs(*(unflatten(values, batch) for values in outputs))

    def compute_forward_kl(
        self, batch: Batch, teacher: "Policy", *, temperature: float, learn_likelihood: bool
    ) -> TokenDivergences:
        """Forward KL from a frozen teacher, which reads the same batch, and log-probs.

        The log-probs have a gradient only with `learn_likelihood`.
        """
        states, output = self.logit_states(batch, adapted=True), get_output_layer(self.model)
        with eval_no_grad(teacher.model):
            teacher_states = teacher.logit_states(batch, adapted=True)
        # Sharded weights outside of blocks stay gathered from here to the end of the backward pass.
        teacher_output = get_output_layer(teacher.model)
        divergences = forward_kl(
            states, output, teacher_states, teacher_output, temperature=temperature
        )
        with torch.set_grad_enabled(learn_likelihood and torch.is_grad_enabled()):
            logprobs, _ = token_logprobs(
                states, output, batch.counted_ids(), temperature=1.0, entropy=False
            )
        return TokenDivergences(*(unflatten(values, batch) for values in (divergences, logprobs)))


def unflatten(values: Float[Tensor, " counted"], batch: Batch) -> Float[Tensor, "batch token"]:
    """Grid of all ranks' counted tokens, 0 where `batch.mask` is False; `values`: this rank's."""
    gathered = sharding.gather_completions(values, batch.lengths, batch.local)
    return gathered.new_zeros(batch.mask.shape).masked_scatter(batch.mask, gathered)


def apply_head(
    head: nn.Module, hidden: Float[Tensor, "position hidden"]
) -> Float[Tensor, "position output"]:
    """Output of a head in float32 (float64 stays as it is), also under autocast.

    In bfloat16 a score would have 8 bits, and different scores would tie.
    """
    hidden = hidden if hidden.dtype == torch.float64 else hidden.float()
    with torch.autocast(hidden.device.type, enabled=False):
        return head(hidden)


def merged_weights(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Name and value of each weight, unsharded and with adapters merged, one at a time.

    The model stays as it is: merging in place and unmerging would round it. A weight with two names
    comes under the first.
    """
    names = {name for name, _ in model.named_parameters()}
    shared = {name for name, _ in model.named_parameters(remove_duplicate=False)} - names
    with torch.no_grad(), torch.autocast(model.device.type, enabled=False):
        for name, value in model.state_dict().items():
            if name in shared or ".lora_" in name or ".original_module." in name:
                continue
            layer, is_adapted, _ = name.partition(".base_layer.weight")
            if is_adapted:
                get_delta: Any = model.get_submodule(layer).get_delta_weight
                value = value + get_delta("default")  # noqa: PLW2901
            plain = name.replace(".base_layer.", ".").replace(".modules_to_save.default.", ".")
            yield plain, sharding.full_tensor(value)


def save_model(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, path: Path,
    dtype: Literal["float32", "bfloat16"] = "float32",
) -> None:  # fmt: skip
    """Write model (safetensors, adapters merged) and tokenizer in transformers' format.

    `dtype` is the dtype of the weights in the file and in `config.json`, where other tools look it
    up. All ranks call this, and rank 0 writes.
    """
    state_dict, precision = {}, getattr(torch, dtype)
    for name, value in merged_weights(model):
        if sharding.get_rank() == 0:
            value = value.to("cpu", precision) if value.is_floating_point() else value.cpu()  # noqa: PLW2901
            state_dict[name] = value
    if sharding.get_rank() > 0:
        return
    if model.can_generate() and (generation := model.generation_config) is not None:
        # Other tools end a completion where it ends here.
        end, ends = model_tokenizer.end_id(tokenizer), generation.eos_token_id
        ends = ends if isinstance(ends, list) else [ends] if isinstance(ends, int) else []
        if end not in ends:
            generation.eos_token_id = [*ends, end]
    model.save_pretrained(path, state_dict=state_dict)
    config = copy.copy(model.config)
    config.dtype = dtype
    config.save_pretrained(path)
    tokenizer.save_pretrained(path)
