"""Where and in what precision a stage computes."""

import os
from typing import Literal

import torch
from pydantic import Field

from stages import THREADS
from stages.models import portable
from stages.params import Params


class ComputeConfig(Params):
    """Numerics that every stage with a model shares; each of them can change an output."""

    dtype: Literal["float32", "bfloat16"]
    """Precision of matrix products. Weights and optimizer stay in float32: steps of a small
    learning rate would be lost in the rounding of bfloat16 weights."""
    gradient_checkpointing: bool
    """Recompute activations in the backward pass: less memory, about a third more time."""
    max_tokens: int = Field(gt=0)
    """Padded tokens in a micro-batch; changes memory and rounding, nothing else."""
    row_tokens: int = Field(ge=0)
    """Completions of a prompt share one copy of it in rows up to this length; 0: never."""
    pack_tokens: int = Field(ge=0)
    """Prompts with their completions stand side by side in rows up to this length (and up to
    `max_tokens`), none seeing another; a longer one has rows of its own; 0: all have."""
    max_batch: int = Field(gt=0)
    """Sequences decoded side by side by the transformers engine."""


def setup(config: ComputeConfig) -> torch.device:
    """Make torch deterministic and return the device: the first visible GPU, or the CPU.

    On the CPU results are the same to the bit on every processor that `portable.install` admits.

    Raises:
        ValueError: see `portable.install`.
    """
    # cuBLAS reads this when it starts; without it its sums are not reproducible.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        portable.install()
    if config.dtype == "bfloat16":
        torch.set_autocast_dtype(device.type, torch.bfloat16)
        torch.set_autocast_enabled(device.type, True)
        # A cached cast would outlive the optimizer step that makes it stale.
        torch.set_autocast_cache_enabled(False)
    return device
