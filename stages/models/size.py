"""How large a model is: its parameters, and those of them that are matrices of a product."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
import transformers
from torch import nn
from transformers import AutoConfig

from stages.algorithms.flops import Matrices
from stages.models import scalar_head, start
from stages.models.start import ModelConfig

Size = dict[str, int]
"""`parameters`, `trained_parameters`, and the fields of `flops.Matrices`."""


def matrices(model: nn.Module) -> Matrices:
    """The matrices of a policy, a reward, process or value model, whatever its architecture.

    Every parameter of two axes in the model's body is one, but for embeddings that are looked up.
    """
    body = [
        parameter
        for module in model.base_model.modules()  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
        if not isinstance(module, nn.Embedding)
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


def measure(model: nn.Module) -> Size:
    """The size of a model as it stands, adapters included."""
    parameters = list(model.parameters())
    counts = {"parameters": _count(parameters), "trained_parameters": _trained(parameters)}
    return counts | asdict(matrices(model))


def frozen(model: nn.Module) -> Size:
    """`measure` of a model whose parameters nobody trains."""
    return measure(model) | {"trained_parameters": 0, "trained_body": 0, "trained_output": 0}


def of_scorer(path: Path) -> Size:
    """A reward model, an ensemble (its members together), a process model or a policy at `path`."""
    sizes = [_frozen(folder) for folder in scalar_head.folders(path)]
    return {name: sum(size[name] for size in sizes) for name in sizes[0]}


def of_policy(name: str, seed: int, config: ModelConfig) -> Size:
    """A row of `policies`, or the base model where it has a path."""
    return _frozen(*start.source(name, seed, config))


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
