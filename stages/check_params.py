"""Check all parameters against every entry point, and tell everything that is wrong.

`python -m stages.check_params` imports each entry point that has a `Config` and validates the
sections that it names; those that its `TABLES` names are tables, whose entries are validated one
by one and may have any name. Then every recipe, whether planned or not. The runtime calls it before
the first stage works, so a mistyped key of the last stage costs nothing. Exit status 1 and a list
on standard error when something is wrong.
"""

import ast
import difflib
import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pydantic

from stages import check_recipes, params, recipe_budgets


def main() -> None:
    """Tell every problem at once."""
    try:
        content = params.read()
    except ValueError as error:
        sys.exit(str(error))
    problems = find_problems(content, list(entry_points()))
    problems += [*check_recipes.find_problems(content), *recipe_budgets.find_problems(content)]
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
    missing = sorted(known - content.keys())
    unknown = sorted(content.keys() - known - {check_recipes.RECIPES})
    problems = [*match(unknown, missing, "")]
    for module in modules:
        picked = {name: content[name] for name in module.Config.model_fields if name in content}
        tables = [name for name in getattr(module, "TABLES", ()) if name in picked]
        odd = [name for name in tables if not isinstance(picked[name], dict) or not picked[name]]
        problems += [
            f"{name}: expected a table of at least one entry, found {picked[name]!r}"
            for name in odd
        ]
        if not odd:
            planned = check_recipes.planned(content, module.__name__.rpartition(".")[2])
            # A preset that nothing runs need not fit the sizes that others run with.
            every = choices({name: picked[name] for name in tables})
            chosen = [(entries, planned is None) for entries in every]
            chosen += [(entries, True) for entries in planned or () if has(picked, entries)]
            for entries, together in chosen:
                inside = {name: picked[name][entry] for name, entry in entries.items()}
                found = validate(module.Config, picked | inside, together=together)
                problems += [named(problem, entries) for problem in found]
    # What a recipe lacks is told with the recipe's name, by check_recipes.
    told = (problem for problem in problems if not problem.startswith(f"{check_recipes.PLAN}."))
    return list(dict.fromkeys(told))


def choices(tables: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    """Selections of one entry a table in which every entry of every table occurs."""
    first = {name: next(iter(table)) for name, table in tables.items()}
    if not tables:
        yield {}
    for name, table in tables.items():
        for entry in table:
            yield first | {name: entry}


def has(tables: Mapping[str, Any], entries: Mapping[str, str]) -> bool:
    """Whether all these entries are there; what a recipe names in vain is told with the recipe."""
    return all(entry in tables.get(name, ()) for name, entry in entries.items())


def named(problem: str, entries: Mapping[str, str]) -> str:
    """The problem, told of the entry where it is inside a table."""
    for section, entry in entries.items():
        problem = re.sub(rf"^{re.escape(section)}(?=[.:])", f"{section}.{entry}", problem)
    return problem


def validate(
    config: type[pydantic.BaseModel], picked: dict[str, Any], *, together: bool = True
) -> Iterator[str]:
    """What is wrong inside the sections of one configuration, and with them `together`."""
    try:
        config.model_validate(picked)
    except pydantic.ValidationError as error:
        unknown: dict[str, list[str]] = {}
        missing: dict[str, list[str]] = {}
        for item in error.errors():
            if not item["loc"]:
                # Of two sections that do not go together.
                if together:
                    yield item["msg"].removeprefix("Value error, ")
                continue
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
