"""Tiny Llamas in float64, in which two ways of doing one sum agree to 1e-10."""

import copy

import torch
from tiny_checkpoints import CPU, PAD, build, checkpoint, compute
from torch import nn
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from stages.models import policy, scalar_head


def exact(model: PreTrainedModel) -> PreTrainedModel:
    """The model in float64: Llama's own norm computes in float32, torch's does not."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, LlamaRMSNorm):
                norm = nn.RMSNorm(child.weight.shape[0], eps=child.variance_epsilon)
                norm.weight = child.weight
                setattr(module, name, norm)
    return model.double()


def language_model() -> PreTrainedModel:
    return exact(policy.prepare_model(build("llama"), compute(), CPU))


def scalar_model() -> PreTrainedModel:
    """A reward or value model whose head is not zero."""
    model = scalar_head.init_scalar_model(checkpoint("llama"), PAD, compute(), CPU)
    generator = torch.Generator().manual_seed(1)
    nn.init.normal_(model.score.weight, std=0.5, generator=generator)
    return exact(model)


def near(model: PreTrainedModel, seed: int, distance: float = 0.05) -> PreTrainedModel:
    """Another policy: each weight moved at random, so that ratios differ from 1."""
    moved = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in moved.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(distance * noise)
    return moved


def take_gradient(model: nn.Module) -> torch.Tensor:
    """All of it as one vector; the model has none afterwards."""
    parts = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()]
    model.zero_grad(set_to_none=True)
    return torch.cat([part.flatten() for part in parts])


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    """To 1e-10 of the largest number."""
    assert found.dtype == torch.float64
    assert expected.isfinite().all()
    assert (found - expected).abs().max() <= 1e-10 * expected.abs().max().clamp(min=1e-12)
