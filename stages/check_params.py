"""Check the whole params.yaml against every entry point, and tell everything that is wrong.

`python -m stages.check_params` imports each entry point that has a `Config` and validates the
sections that it names; a stage with variants (`VARIANTS` in its file) has one section each. The
runtime calls it before the first stage works, so a mistyped key of the last stage costs nothing.
Exit status 1 and a list on standard error when something is wrong.
"""

import ast
import difflib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pydantic

from stages import params


def main() -> None:
    """Tell every problem at once."""
    problems = find_problems(params.read(), list(entry_points()))
    if problems:
        sys.exit(f"{params.PARAMS_PATH} is not valid:\n" + "\n".join(f"  {p}" for p in problems))


def entry_points(folder: Path = Path(__file__).parent) -> Iterator[ModuleType]:
    """The modules of this folder that define a `Config`."""
    for path in sorted(folder.glob("*.py")):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        if any(isinstance(node, ast.ClassDef) and node.name == "Config" for node in body):
            yield importlib.import_module(f"stages.{path.stem}")


def find_problems(content: dict[str, Any], modules: list[ModuleType]) -> list[str]:
    """Everything in `content` that the modules' configurations do not allow, each once."""
    known = {name for module in modules for name in module.Config.model_fields}
    missing, unknown = sorted(known - content.keys()), sorted(content.keys() - known)
    problems = [*match(unknown, missing, "")]
    for module in modules:
        picked = {name: content[name] for name in module.Config.model_fields if name in content}
        section = list(module.Config.model_fields)[-1]
        variants: tuple[str, ...] | None = getattr(module, "VARIANTS", None)
        if variants is None or section not in picked:
            problems += validate(module.Config, picked)
            continue
        inside = picked[section]
        if not isinstance(inside, dict):
            problems.append(f"{section}: expected the keys {sorted(variants)}, found {inside!r}")
            continue
        odd, absent = sorted(inside.keys() - set(variants)), sorted(set(variants) - inside.keys())
        problems += match(odd, absent, f"{section}.")
        for variant in sorted(inside.keys() & set(variants)):
            problems += [
                problem.replace(f"{section}.", f"{section}.{variant}.", 1)
                if problem.startswith(f"{section}.")
                else problem
                for problem in validate(module.Config, picked | {section: inside[variant]})
            ]
    return list(dict.fromkeys(problems))


def validate(config: type[pydantic.BaseModel], picked: dict[str, Any]) -> Iterator[str]:
    """What is wrong inside the sections of one configuration."""
    try:
        config.model_validate(picked)
    except pydantic.ValidationError as error:
        unknown: dict[str, list[str]] = {}
        missing: dict[str, list[str]] = {}
        for item in error.errors():
            *parents, name = (str(part) for part in item["loc"])
            parent = "".join(f"{part}." for part in parents)
            if item["type"] == "extra_forbidden":
                unknown.setdefault(parent, []).append(name)
            elif item["type"] == "missing":
                # A whole section that is missing is told once, not by each of its readers.
                if parents:
                    missing.setdefault(parent, []).append(name)
            else:
                yield f"{parent}{name}: {item['msg']} (found {item['input']!r})"
        for parent in sorted(unknown.keys() | missing.keys()):
            yield from match(unknown.get(parent, []), missing.get(parent, []), parent)


def match(unknown: list[str], missing: list[str], parent: str) -> Iterator[str]:
    """Unknown keys, each with the missing key that it may be meant for; then the other missing.

    No key has a default, so a mistyped key always leaves one missing beside it.
    """
    left = list(missing)
    for name in unknown:
        close = difflib.get_close_matches(name, left, n=1)
        left = [other for other in left if other not in close]
        meant = f"; did you mean '{close[0]}'?" if close else "; remove it"
        yield f"{parent}{name}: unknown key{meant}"
    for name in left:
        yield f"{parent}{name}: missing"


if __name__ == "__main__":
    main()
