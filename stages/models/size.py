"""Size of a model: its parameters, and those that are matrices of a product."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from stages.algorithms.flops import Matrices
from stages.auto import Facts
from stages.models import model_files, model_tokenizer, policy, rope_limit, row_policy, scalar_head
from stages.models.forward_check import get_body
from stages.models.row_policy import ModelConfig

Size = dict[str, int]
"""`parameters`, `trained_parameters`, and the fields of `flops.Matrices`."""


def count_matrices(model: nn.Module, *, adapters: bool = True) -> Matrices:
    """Numbers in the matrices of a policy, reward, process or value model, of any architecture.

    Matrices are the parameters of two axes in the model's body, except for embeddings, which are
    looked up, and for adapters that are off.
    """
    trunk = get_body(model)
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
        body=_count(body), output=_count(output), trained_body=_count(body, trained=True),
        trained_output=_count(output, trained=True),
    )  # fmt: skip


def _count(parameters: Sequence[nn.Parameter], *, trained: bool = False) -> int:
    return sum(weight.numel() for weight in parameters if weight.requires_grad or not trained)


def measure_model(model: nn.Module, *, adapters: bool = True) -> Size:
    """Size of a model as it is, its adapters included unless they are off."""
    parameters = [
        parameter
        for name, parameter in model.named_parameters()
        if adapters or ".lora_" not in name
    ]
    trained = _count(parameters, trained=True)
    matrices = asdict(count_matrices(model, adapters=adapters))
    return {"parameters": _count(parameters), "trained_parameters": trained} | matrices


def measure_frozen(model: nn.Module) -> Size:
    """`measure_model` of a model without adapters that is not trained."""
    return measure_model(model, adapters=False) | {
        "trained_parameters": 0, "trained_body": 0, "trained_output": 0,
    }  # fmt: skip


def measure_scorer(path: Path) -> Size:
    """Size of the model at `path`; of an ensemble, its members together."""
    folders = scalar_head.find_member_folders(path)
    sizes = [measure_frozen(_build_on_meta(folder, None)) for folder in folders]
    return {name: sum(size[name] for size in sizes) for name in sizes[0]}


def measure_policy(name: str, seed: int, config: ModelConfig) -> Size:
    """Size of a row of `policies`, or of the base model if it has a path."""
    return measure_frozen(_build_on_meta(*row_policy.locate_policy(name, seed, config)))


def model_facts(model: Mapping[str, Any]) -> Facts | None:
    """Facts of config.json and tokenizer of section `model`, for `auto`; None without a path.

    `preparation.measure_data` adds those of the data.
    """
    if model["path"] is None:
        return None
    path, revision = model_files.locate_folder(model["path"]), model["revision"]
    config = row_policy.load_model_config(path, revision)
    tokenizer = model_tokenizer.load_tokenizer(path, revision)
    positions = rope_limit.get_num_positions(config)
    if positions is None:
        raise ValueError(
            f"expected max_position_embeddings in the config.json of '{model['path']}', found "
            f"none: values for `auto` cannot be computed. Add it there."
        )
    model_without_weights = _build_on_meta(path, revision)
    return Facts(
        parameters=measure_frozen(model_without_weights)["parameters"], positions=positions,
        shares_rows=policy.can_share_rows(model_without_weights),
        has_chat_template=tokenizer.chat_template is not None or bool(model.get("chat_template")),
        thinks=model.get("thinking") is True,
    )  # fmt: skip


def _build_on_meta(path: str | Path, revision: str | None) -> PreTrainedModel:
    """The model of a config.json on the meta device, where parameters have no memory."""
    config = AutoConfig.from_pretrained(str(path), revision=revision or "main")
    architecture = getattr(transformers, (config.architectures or ["none"])[0], None)
    with torch.device("meta"):
        return (architecture or AutoModelForCausalLM.from_config)(config)
