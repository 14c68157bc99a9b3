"""LLM post-training as reproducible, cached stages.

This file runs before every import of a stage's process, which import torch, numpy and transformers.
It fixes the instructions with which they compute.
"""

import os
import pwd
import sys
from pathlib import Path

if sys.argv[:1] == ["-m"]:  # Python sets the path after this import
    _name = sys.orig_argv[sys.orig_argv.index("-m") + 1]
    _path = Path(__file__).parent.parent / f"{_name.replace('.', '/')}.py"
    if _path.is_file() and "__main__" not in _path.read_text(encoding="utf-8"):
        sys.exit(
            f"{_name}: expected a module with a command, found none: the stage of a row runs as "
            f"`python -m stages <entry point> <row>` (its `cmd` in dvc.yaml)"
        )

ROUNDING = os.environ.get("POSTTRAIN_ROUNDING", "pinned")
"""How this process rounds on a CPU. `pinned`: alike on every x86-64 processor with AVX2. `native`:
with the widest instructions that there are. In stages it is `compute.rounding` of params.yaml,
which every stage with a model depends on."""
ROUNDINGS = ("pinned", "native")
if ROUNDING not in ROUNDINGS:
    raise ValueError(
        f"POSTTRAIN_ROUNDING: expected pinned or native, found {ROUNDING!r}. Set one of "
        f"these, or nothing, which is pinned."
    )
THREADS = 1
"""Threads of a CPU run: the order of a sum depends on them."""
INSTRUCTIONS = {
    # torch's own kernels, and its matrix products
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "AVX2",  # heeded on Intel's processors alone: see models/device.py
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    # numpy's and scipy's matrix products, and numpy's functions
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_KNL AVX512_KNM AVX512_SKX AVX512_CLX "
    "AVX512_CNL AVX512_ICL AVX512_SPR",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""The pinned instruction set: what these libraries read when they are loaded, or first compute.
Wider vectors add in another order, and so do more threads."""
MEETING = "POSTTRAIN_MEETING"
"""The environment variable by which processes that train one model meet (`runtime/ranks`)."""
NEEDED = frozenset({"avx2", "fma"})
"""Flags of a processor that can compute so: Intel's since 2013, AMD's since 2015."""


def processor() -> dict[str, str]:
    """What the kernel tells of the first processor; empty where it has no /proc/cpuinfo."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    with path.open(encoding="utf-8") as file:
        first = file.read(8192).split("\n\n")[0]  # all of it is slow to tell where there are many
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def flags() -> frozenset[str]:
    """The instructions that the processor knows, as Linux names them."""
    return frozenset(processor().get("flags", "").split())


if ROUNDING == "pinned":
    if flags() >= NEEDED:  # or numpy would end this process with an illegal instruction
        os.environ.update(INSTRUCTIONS)
else:
    for _name in [name for name in INSTRUCTIONS if os.environ.get(name) == INSTRUCTIONS[name]]:
        del os.environ[_name]  # left by a pinned parent

# oneDNN compiles a product of bfloat16 for each new shape, and keeps 1,024 of them: 2 GB for a
# pretrained model, whose batches all differ. 64 are more than a pass has, and no slower.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")

try:
    pwd.getpwuid(os.getuid())
except KeyError:  # in a container; DVC, torch and MLflow ask for the name of the user
    os.environ.setdefault("USER", str(os.getuid()))
