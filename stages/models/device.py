"""Device and precision of a stage, with the same bits on every x86-64 CPU with AVX2.

torch's wheels for x86-64 compute matrix products and elementary functions by Intel's MKL.
`MKL_CBWR=AVX2` fixes the order of its sums (Intel, "Developer Guide for oneMKL", chapter "Obtaining
Numerically Reproducible Results"). On other makers' processors, though, MKL goes by their name and
not by their instructions: it refuses the setting, and offers only COMPATIBLE, which is 2.5 times
slower. So MKL's cached answer to the question whether the processor is Intel's is set to yes (de
Kok, "Intel MKL on AMD Zen", 2020, danieldk.eu, does the same in another way). The same code then
runs everywhere, attention, gradients and LAPACK included, and nothing is slower than without.

Not covered: `torch.log`, `sqrt` and `pow` of float64, and `log2` and `log10`, which MKL computes
from the processor's approximate 1/x and 1/√x; no stage uses them.
tests/stages/models/test_device.py has the comparisons between processors.
"""

import ctypes
import logging
import os
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field

import stages
from stages.config import Params
from stages.models import sharding

logger = logging.getLogger(__name__)

LIBRARY = Path(torch.__path__[0]) / "lib" / "libtorch_cpu.so"
QUESTION = "mkl_serv_intel_cpu_true"
"""MKL function that returns whether the processor is Intel's, and caches the answer."""
LOAD, REST = bytes.fromhex("8b05"), bytes.fromhex("85c07801c3")
"""Its first instructions: `mov eax, [rip + distance]` (the cached answer), `test eax, eax`, `js`
(below 0: ask the processor), `ret`."""
UNKNOWN, YES = -1, 1
INTEL = "GenuineIntel"
BRANCH = 10
"""Value of MKL_CBWR_AVX2 in MKL's headers."""


class ComputeConfig(Params):
    """Numerics of every stage with a model; each of them can change an output."""

    dtype: Literal["float32", "bfloat16"]
    """Precision of matrix products, of weights that are not trained (references, scorers, judges,
    samplers) and of saved policies. Weights in training and their optimizer stay in float32: steps
    of a small learning rate would be lost in the rounding of bfloat16."""
    rounding: Literal["pinned", "native"] = "pinned"
    """Instructions on a CPU. pinned: the same bits on every x86-64 processor with AVX2. native: the
    widest instructions of this machine, faster with AVX-512 or AMX, the same bits only on
    processors of its kind."""
    compile: bool | Literal["auto"] = "auto"
    """Whether decoder layers are compiled (`models/compilation`); auto: on a GPU, from 100 M
    parameters, if one process trains a model."""
    gradient_checkpointing: bool | Literal["auto"]
    """Whether activations are recomputed in the backward pass: less memory, about a third more
    time, the same bits; auto: on a GPU, if a stage would else take more than 80 % of its memory
    (`planning/checkup`)."""
    max_tokens: int = Field(gt=0)
    """Padded tokens in a micro-batch; changes memory and rounding, nothing else."""
    row_tokens: int = Field(ge=0)
    """Completions of a prompt share one copy of it in rows up to this length; 0: never."""
    pack_tokens: int = Field(ge=0)
    """Prompts with their completions are packed into rows up to this length (and up to
    `max_tokens`), none attending to another; longer ones, and with 0 all, have separate rows."""
    max_batch: int = Field(gt=0)
    """Sequences decoded side by side by the transformers engine."""


COMPUTE = ComputeConfig(
    dtype="float32",
    rounding=stages.ROUNDING,  # type: ignore[arg-type]  # one of them: stages/__init__.py
    gradient_checkpointing=False,
    max_tokens=4096,
    row_tokens=512,
    pack_tokens=0,
    max_batch=256,
)
"""Default where there is no params.yaml: in `stages.library` and in tests."""


def setup(config: ComputeConfig) -> torch.device:
    """Make torch deterministic and join the process group.

    Returns the first visible GPU, or the CPU. A ValueError if this process was started with a
    rounding other than `config.rounding` (`params.adopt_rounding`).
    """
    if config.rounding != stages.ROUNDING:
        raise ValueError(
            f"compute.rounding: expected {stages.ROUNDING}, with which this process was started, "
            f"found {config.rounding}: set the environment variable POSTTRAIN_ROUNDING="
            f"{config.rounding} before Python starts"
        )
    # cuBLAS reads this when it starts; without it its sums are not reproducible.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(stages.THREADS)
    # The same as `use_deterministic_algorithms(True)` without its import of torch's compiler and of
    # sympy, 0.6 s in the process of every seed.
    torch.set_deterministic_debug_mode("error")
    # torch would fill each new tensor with NaN, in case it is read before it is written: a fourth
    # of the kernels of a decoding step on a GPU.
    torch.utils.deterministic.fill_uninitialized_memory = False  # pyright: ignore[reportAttributeAccessIssue]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        pin_instructions()
        if config.dtype == "bfloat16" and config.rounding == "pinned":
            logger.warning(
                "compute.dtype bfloat16 with compute.rounding pinned is many times slower than "
                "float32 on a CPU: the pinned instructions (AVX2) have no product of bfloat16. Set "
                "compute.dtype: float32, or rounding: native if `python -m stages.doctor` shows "
                "that it is faster"
            )
    if config.dtype == "bfloat16":
        torch.set_autocast_dtype(device.type, torch.bfloat16)
        torch.set_autocast_enabled(device.type, True)
        # A cached cast would outlive the optimizer step that makes it stale.
        torch.set_autocast_cache_enabled(False)
    sharding.init_process_group()
    return device


def pin_instructions() -> None:
    """Pin the instructions of this process, unless `compute.rounding` is native.

    Call this before the first operation of torch: libraries that have computed have chosen their
    instructions, and a warning names them. A ValueError for a processor without AVX2, and for an
    MKL other than that of torch's wheels.
    """
    if stages.ROUNDING != "pinned":
        return
    if missing := sorted(stages.NEEDED - stages.flags()):
        raise ValueError(
            f"expected an x86-64 processor with AVX2 and FMA, on which results are the same to the "
            f"bit, found one without {', '.join(missing)}. Run on another one, or accept results "
            f"that only this kind reproduces: set compute.rounding: native."
        )
    answer = _cached_answer() if torch.backends.mkl.is_available() else None
    if answer is not None:
        if answer.value == UNKNOWN:  # once MKL has computed, its choices are made
            answer.value = YES
    elif torch.backends.mkl.is_available() and stages.processor().get("vendor_id") != INTEL:
        raise ValueError(
            f"expected MKL as torch's wheels have it, {QUESTION} in {LIBRARY}, found another: on a "
            f"processor that is not Intel's it would round in its own way. Install torch as "
            f"constraints.txt has it, or set compute.rounding: native."
        )
    if unpinned := unpinned_instructions():
        logger.warning(
            "torch computed before the package `stages` was imported, and chose %s: numbers of "
            "this process can differ in rounding from those of another processor. Import `stages` "
            "first.",
            unpinned,
        )


def unpinned_instructions() -> str:
    """Libraries that compute with other instructions than the pinned ones; empty: none."""
    capability = torch.backends.cpu.get_cpu_capability()
    unpinned = [] if capability == "AVX2" else [f"kernels for {capability}"]
    if torch.backends.mkl.is_available() and hasattr(library := _library(), "mkl_serv_cbwr_get"):
        branch = library.mkl_serv_cbwr_get(1)
        unpinned += [] if branch == BRANCH else [f"branch {branch} of MKL"]
    return ", ".join(unpinned)


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(LIBRARY))  # loaded already: this only names it


def _cached_answer() -> ctypes.c_int | None:
    """Memory of the cached answer of `QUESTION`; None if the function is missing or differs."""
    function = getattr(_library(), QUESTION, None) if LIBRARY.exists() else None
    if function is None:
        return None
    start = ctypes.cast(function, ctypes.c_void_p).value or 0
    size = len(LOAD) + ctypes.sizeof(ctypes.c_int)
    code = ctypes.string_at(start, size + len(REST))
    if not (code.startswith(LOAD) and code.endswith(REST)):
        return None
    # The distance counts from the end of the first instruction.
    distance = int.from_bytes(code[len(LOAD) : size], "little", signed=True)
    return ctypes.c_int.from_address(start + size + distance)
