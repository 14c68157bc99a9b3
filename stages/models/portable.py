"""Matrix products and elementary functions with the same bits on every x86-64 CPU with AVX2.

torch's wheels for x86-64 compute them by Intel's MKL. `MKL_CBWR=AVX2` fixes the order of its sums
(Intel, "Developer Guide for oneMKL", chapter "Obtaining Numerically Reproducible Results"), but on
other makers' processors MKL goes by their name and not by their instructions: it refuses the
setting, and offers COMPATIBLE alone, which is 2.5 times slower. So it is told that the processor is
Intel's, by the number in which it keeps the answer to that question (the same, by another way: de
Kok, "Intel MKL on AMD Zen", 2020, danieldk.eu). The code that then runs is the same everywhere,
attention, gradients and LAPACK included, and nothing is slower than without.

Not covered: `torch.log`, `sqrt` and `pow` of float64, and `log2` and `log10`, which MKL takes from
the processor's approximate 1/x and 1/√x; no stage uses them. tests/stages/models/test_portable.py
says what was compared between which processors.
"""

import ctypes
import logging
from pathlib import Path

import torch

import stages

logger = logging.getLogger(__name__)

LIBRARY = Path(torch.__path__[0]) / "lib" / "libtorch_cpu.so"
QUESTION = "mkl_serv_intel_cpu_true"
"""MKL's function that says whether the processor is Intel's, and asks the processor only once."""
LOAD, REST = bytes.fromhex("8b05"), bytes.fromhex("85c07801c3")
"""How it begins: `mov eax, [rip + distance]` (the stored answer), `test eax, eax`, `js` (below 0:
ask the processor), `ret`."""
UNKNOWN, YES = -1, 1
BRANCH = 10
"""MKL_CBWR_AVX2, as MKL's headers number it."""


def install() -> None:
    """Make this process compute with the pinned instructions; nothing where they are not pinned.

    Best before the first operation of torch: what computed already has chosen its instructions,
    which is logged.

    Raises:
        ValueError: a processor without AVX2, or another build of MKL than that of torch's wheels.
    """
    if stages.ROUNDING != "pinned":
        return
    if missing := sorted(stages.NEEDED - stages.flags()):
        raise ValueError(
            f"expected an x86-64 processor with AVX2 and FMA, on which results are the same to the "
            f"bit, found one without {', '.join(missing)}. Run on another one, or accept results "
            f"of this one alone: set the environment variable POSTTRAIN_ROUNDING=native."
        )
    if torch.backends.mkl.is_available():
        _take_for_intel()
    if found := in_force():
        logger.warning(
            "torch computed before the package `stages` was imported, and chose %s: numbers of "
            "this process can differ in rounding from those of another processor. Import `stages` "
            "first.",
            found,
        )


def in_force() -> str:
    """What computes with other instructions than the pinned ones; empty if all is as it should."""
    capability = torch.backends.cpu.get_cpu_capability()
    others = [] if capability == "AVX2" else [f"kernels for {capability}"]
    if torch.backends.mkl.is_available() and hasattr(library := _library(), "mkl_serv_cbwr_get"):
        branch = library.mkl_serv_cbwr_get(1)
        others += [] if branch == BRANCH else [f"branch {branch} of MKL"]
    return ", ".join(others)


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(LIBRARY))  # loaded already: this only names it


def _take_for_intel() -> None:
    answer = _stored_answer()
    if answer is None:
        if stages.processor().get("vendor_id") == "GenuineIntel":
            return
        raise ValueError(
            f"expected MKL as torch's wheels have it, {QUESTION} in {LIBRARY}, found another: on a "
            f"processor that is not Intel's it would round in its own way. Install torch as "
            f"constraints.txt has it, or set the environment variable POSTTRAIN_ROUNDING=native."
        )
    if answer.value == UNKNOWN:  # once MKL has computed, its choices are made
        answer.value = YES


def _stored_answer() -> ctypes.c_int | None:
    """Where `QUESTION` keeps its answer; None where that function is not, or not as we know it."""
    function = getattr(_library(), QUESTION, None) if LIBRARY.exists() else None
    if function is None:
        return None
    start = ctypes.cast(function, ctypes.c_void_p).value or 0
    size = len(LOAD) + ctypes.sizeof(ctypes.c_int)
    code = ctypes.string_at(start, size + len(REST))
    if not (code.startswith(LOAD) and code.endswith(REST)):
        return None
    # The distance counts from the end of the instruction that has it.
    return ctypes.c_int.from_address(
        start + size + int.from_bytes(code[len(LOAD) : size], "little", signed=True)
    )
