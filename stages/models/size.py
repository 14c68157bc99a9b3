"""How large a model is: its parameters, and those of them that are matrices of a product."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import AutoConfig

from stages.algorithms.flops import Matrices
from stages.models import model_tokenizer, positions, scalar_head, start
from stages.models.start import ModelConfig
from stages.rules import Facts

Size = dict[str, int]
"""`parameters`, `trained_parameters`, and the fields of `flops.Matrices`."""


def matrices(model: nn.Module, *, adapters: bool = True) -> Matrices:
    """The matrices of a policy, a reward, process or value model, whatever its architecture.

    Every parameter of two axes in the model's body is one, but for embeddings that are looked up,
    and the adapters, if they are off.
    """
    trunk: Any = model.base_model
    body = [
        parameter
        for name, module in trunk.named_modules()
        if not isinstance(module, nn.Embedding) and (adapters or ".lora_" not in name)
        for parameter in module.parameters(recurse=False)
        if parameter.ndim == 2
    ]
    output_layer = getattr(model, "get_output_embeddings", lambda: None)()
    output = [output_layer.weight] if output_layer is not None else []
    return Matrices(
        body=_count(body),
        output=_count(output),
        trained_body=_trained(body),
        trained_output=_trained(output),
    )


def measure(model: nn.Module, *, adapters: bool = True) -> Size:
    """The size of a model as it stands, its adapters included unless they are off."""
    named = model.named_parameters()
    parameters = [one for name, one in named if adapters or ".lora_" not in name]
    counts = {"parameters": _count(parameters), "trained_parameters": _trained(parameters)}
    return counts | asdict(matrices(model, adapters=adapters))


def frozen(model: nn.Module) -> Size:
    """`measure` of a model whose parameters nobody trains, without adapters."""
    return measure(model, adapters=False) | {
        "trained_parameters": 0,
        "trained_body": 0,
        "trained_output": 0,
    }


def of_scorer(path: Path) -> Size:
    """A reward model, an ensemble (its members together), a process model or a policy at `path`."""
    sizes = [_frozen(folder) for folder in scalar_head.folders(path)]
    return {name: sum(size[name] for size in sizes) for name in sizes[0]}


def of_policy(name: str, seed: int, config: ModelConfig) -> Size:
    """A row of `policies`, or the base model where it has a path."""
    return _frozen(*start.source(name, seed, config))


def facts(model: Mapping[str, Any]) -> Facts | None:
    """What config.json and tokenizer of section `model` say, for `auto`; None without a path.

    Nothing of the data yet.
    """
    path, revision = model["path"], model["revision"]
    if path is None:
        return None
    tokenizer = model_tokenizer.load(path, revision)
    config = AutoConfig.from_pretrained(path, revision=revision or "main")
    text = config.get_text_config(decoder=True)
    told = [getattr(text, "max_position_embeddings", None), positions.limit(config)]
    known = [one for one in told if one is not None]
    if not known:
        raise ValueError(
            f"expected max_position_embeddings in the config.json of '{path}', found none: what is "
            f"`auto` cannot be told. Add it there."
        )
    return Facts(
        parameters=_frozen(path, revision)["parameters"],
        positions=min(known),
        has_chat_template=tokenizer.chat_template is not None,
        thinks=model.get("thinking") is True,
    )


def _frozen(path: str | Path, revision: str | None = None) -> Size:
    """`frozen`, from the configuration alone: on the meta device parameters have no memory."""
    config = AutoConfig.from_pretrained(str(path), revision=revision or "main")
    architecture, *_ = config.architectures or ["none"]
    with torch.device("meta"):
        return frozen(getattr(transformers, architecture)(config))


def _count(parameters: Sequence[nn.Parameter]) -> int:
    return sum(one.numel() for one in parameters)


def _trained(parameters: Sequence[nn.Parameter]) -> int:
    return _count([one for one in parameters if one.requires_grad])
