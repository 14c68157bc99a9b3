"""How large a model is: its parameters, and those of them that are matrices of a product."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from stages.algorithms.flops import Matrices
from stages.auto import Facts
from stages.models import model_tokenizer, rope_limit, row_policy, scalar_head
from stages.models.row_policy import ModelConfig

Size = dict[str, int]
"""`parameters`, `trained_parameters`, and the fields of `flops.Matrices`."""


def count_matrices(model: nn.Module, *, adapters: bool = True) -> Matrices:
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
        body=_count(body), output=_count(output), trained_body=_trained(body),
        trained_output=_trained(output),
    )  # fmt: skip


def measure_model(model: nn.Module, *, adapters: bool = True) -> Size:
    """The size of a model as it stands, its adapters included unless they are off."""
    named = model.named_parameters()
    parameters = [one for name, one in named if adapters or ".lora_" not in name]
    counts = {"parameters": _count(parameters), "trained_parameters": _trained(parameters)}
    return counts | asdict(count_matrices(model, adapters=adapters))


def measure_frozen(model: nn.Module) -> Size:
    """`measure_model` of a model whose parameters nobody trains, without adapters."""
    return measure_model(model, adapters=False) | {
        "trained_parameters": 0, "trained_body": 0, "trained_output": 0,
    }  # fmt: skip


def measure_scorer(path: Path) -> Size:
    """A reward model, an ensemble (its members together), a process model or a policy at `path`."""
    sizes = [_frozen(folder) for folder in scalar_head.find_member_folders(path)]
    return {name: sum(size[name] for size in sizes) for name in sizes[0]}


def measure_policy(name: str, seed: int, config: ModelConfig) -> Size:
    """A row of `policies`, or the base model where it has a path."""
    return _frozen(*row_policy.locate_policy(name, seed, config))


def check_model_files(path: str | None) -> None:
    """Refuse, before any work, a folder that holds no whole model in safetensors."""
    folder = Path(path or "")
    if path is None or not folder.is_dir():
        return
    names = {one.name for one in folder.iterdir()}
    found = f"{', '.join(sorted(names)) or 'nothing':.200}. Save the whole model there"
    if "adapter_config.json" in names and "config.json" not in names:
        found = "LoRA adapters alone. Save there what merge_and_unload() makes of them"
    elif any(name.endswith((".bin", ".pt", ".pth")) for name in names):
        found = "pickled weights, which can run code. Load them elsewhere and save them"
    name = "model.safetensors.index.json"
    try:
        index = dict(json.loads((folder / name).read_bytes())) if name in names else {}
        needed = {*index.get("weight_map", {"": "model.safetensors"}).values()}
        for name in sorted(needed & names):
            with safe_open(folder / name, "pt"):
                pass
    except (AttributeError, SafetensorError, ValueError) as error:
        raise ValueError(
            f"{folder / name}: expected a whole file of weights, or their index, found something "
            f"else ({error}). Copy it again; a file of git LFS comes by `git lfs pull`."
        ) from error
    if missing := sorted({"config.json", *needed} - names):
        told = f"expected a model with a file {missing[0]}, found {found} by save_pretrained"
        raise ValueError(f"{folder}: {told}, in safetensors.")


def model_facts(model: Mapping[str, Any]) -> Facts | None:
    """What config.json and tokenizer of section `model` say, for `auto`; None without a path.

    Nothing of the data yet.
    """
    path, revision = model["path"], model["revision"]
    if path is None:
        return None
    text, tokenizer = (
        row_policy.load_model_config(path, revision),
        model_tokenizer.load_tokenizer(path, revision),
    )
    told = [getattr(text, "max_position_embeddings", None), rope_limit.get_rope_limit(text)]
    known = [one for one in told if one is not None]
    if not known:
        raise ValueError(
            f"expected max_position_embeddings in the config.json of '{path}', found none: what is "
            f"`auto` cannot be told. Add it there."
        )
    return Facts(
        parameters=_frozen(path, revision)["parameters"], positions=min(known),
        has_chat_template=tokenizer.chat_template is not None, thinks=model.get("thinking") is True,
    )  # fmt: skip


def _frozen(path: str | Path, revision: str | None = None) -> Size:
    """`measure_frozen`, from the configuration alone: on the meta device parameters have no
    memory."""
    config = AutoConfig.from_pretrained(str(path), revision=revision or "main")
    architecture = getattr(transformers, (config.architectures or ["none"])[0], None)
    with torch.device("meta"):
        return measure_frozen((architecture or AutoModelForCausalLM.from_config)(config))


def _count(parameters: Sequence[nn.Parameter]) -> int:
    return sum(one.numel() for one in parameters)


def _trained(parameters: Sequence[nn.Parameter]) -> int:
    return _count([one for one in parameters if one.requires_grad])
