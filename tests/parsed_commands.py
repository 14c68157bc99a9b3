"""Parsing of a command's words by the command's own parser, without its work."""

import argparse
import ast
import importlib
import importlib.util
import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flows.command_line import COMMANDS
from stages.config import read_yaml
from stages.rows import TABLES, parse_row
from studies import __main__ as studies
from studies.study import DEFINITIONS, STUDY_PARAMS

ROOT = Path(__file__).parents[1]


class ParsedError(Exception):
    """Raised once the words are parsed, in place of the work."""


def parse(words: Sequence[str], folder: Path = ROOT) -> None:
    """Parse the words of a command in a folder; raise an exception if its parser refuses them."""
    program, *arguments = words
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        PARSERS[program](arguments)
    for word in arguments:
        check_word(word)


def has_parser(words: Sequence[str], folder: Path) -> bool:
    """Whether the program has a parser here; a script outside of this repository has none."""
    is_script = words[0] == "python" and words[1].endswith(".py")
    return words[0] in PARSERS and (not is_script or (folder / words[1]).exists())


def check_word(word: str) -> None:
    """Assert that a stage of a row, a source file or a key of params.yaml exists."""
    params = read_yaml(ROOT / "params.yaml")
    if match := re.fullmatch(r"(\w+)@([\w-]+)", word):
        rows = {name for table in TABLES for name in params[table]}
        stages = {
            **read_yaml(ROOT / "dvc.yaml")["stages"],
            **read_yaml(ROOT / DEFINITIONS)["stages"],
        }
        assert match[1] in stages, word
        assert match[2] in rows, word
    elif re.fullmatch(r"(stages|flows|studies|tests)/\S+", word):
        assert (ROOT / word).exists(), word
    elif match := re.fullmatch(r"([a-z_.]+)=\S+", word):
        for key in match[1].split("."):
            params = params[key]


def parse_posttrain(words: Sequence[str]) -> None:
    module, *first = COMMANDS[words[0]].split()
    parse_module(importlib.import_module(module), [*first, *words[1:]])


def parse_python(words: Sequence[str]) -> None:
    if words[0] == "-m" and words[1] == "studies":
        definitions, parameters = read_yaml(ROOT / DEFINITIONS), read_yaml(ROOT / STUDY_PARAMS)
        names = [word for word in words[2:] if not word.startswith("-")]
        studies.resolve_names(names, definitions["stages"], parameters)
        parse_dvc(["repro", *(word for word in words[2:] if word not in names)])
    elif words[0] == "-m":
        parse_module(importlib.import_module(words[1]), words[2:])
    elif words[0] == "-c":
        tree = ast.parse(words[1])
        for node in ast.walk(tree):
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                assert hasattr(importlib.import_module(str(node.module)), alias.name)  # type: ignore[union-attr]
    else:
        specification = importlib.util.spec_from_file_location("script", words[0])
        assert specification is not None
        assert specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        parse_module(module, words[1:])


def parse_module(module: ModuleType, words: Sequence[str]) -> None:
    """Call `main` up to the end of parsing; without a parser, compare words with its help."""
    main, source = module.main, inspect.getsource(module)
    inspect.signature(main).bind(*(words if inspect.signature(main).parameters else ()))
    if not re.search(r"\.parse_(known_)?args\(", source):
        for word in words:
            assert not word.startswith("-") or word in str(module.__doc__), word
        return
    parse_known_args: Callable[..., Any] = argparse.ArgumentParser.parse_known_args

    def stop(*arguments: Any, **keywords: Any) -> tuple[argparse.Namespace, list[str]]:
        namespace, unknown = parse_known_args(*arguments, **keywords)
        if not unknown:
            raise ParsedError
        return namespace, unknown

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_known_args", stop)
        patch.setattr(sys, "argv", [str(module.__name__), *words])
        with pytest.raises(ParsedError):
            main(*(words if inspect.signature(main).parameters else ()))


def parse_pip(words: Sequence[str]) -> None:
    from pip._internal.commands import create_command

    options, _ = create_command(words[0]).parse_args(list(words[1:]))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for path in options.editables:
        match = re.fullmatch(r"\.(?:\[([\w,]+)\])?", path)
        assert match is not None, path
        for extra in match[1].split(",") if match[1] else ():
            assert extra in extras["optional-dependencies"], extra
    for path in [*options.constraints, *options.requirements]:
        assert Path(path).is_file(), path


def parse_dvc(words: Sequence[str]) -> None:
    from dvc.cli import parse_args

    parse_args(list(words))


def parse_prefect(words: Sequence[str]) -> None:
    from prefect.cli._app import _app

    _, session, _ = _app.meta.parse_args(list(words), exit_on_error=False, print_error=False)
    command = [str(word) for word in session.args]
    _, bound, _ = _app.parse_args(command, exit_on_error=False, print_error=False)
    deployments = read_yaml(ROOT / "prefect.yaml")["deployments"]
    if command[0] == "deploy":
        assert {*bound.arguments["names"]} <= {item["name"] for item in deployments}


def parse_pytest(words: Sequence[str]) -> None:
    from _pytest.config import get_config

    config = get_config()
    config.pluginmanager.import_plugin("xdist.plugin")
    options = config._parser.parse(list(words))
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    markers = {
        line.partition(":")[0] for line in content["tool"]["pytest"]["ini_options"]["markers"]
    }
    assert {*re.findall(r"\w+", options.markexpr or "")} <= {*markers, "and", "or", "not"}
    assert all(Path(path).exists() for path in options.file_or_dir)


def parse_torchrun(words: Sequence[str]) -> None:
    from torch.distributed.run import parse_args

    script = parse_args(list(words))
    assert script.training_script == "stages"
    parse_row(script.training_script_args[1:])


def parse_click(place: str, words: Sequence[str]) -> None:
    """`place`: the module of an application of click or typer, and its name there."""
    import typer

    module, _, name = place.partition(":")
    application = getattr(importlib.import_module(module), name)
    is_typer = isinstance(application, typer.Typer)
    command: Any = typer.main.get_command(application) if is_typer else application
    context, rest = command.make_context("", list(words)), list[str]()
    while hasattr(command, "resolve_command"):
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)


PARSERS: dict[str, Callable[[Sequence[str]], None]] = {
    "posttrain": parse_posttrain, "python": parse_python, "pip": parse_pip, "dvc": parse_dvc,
    "prefect": parse_prefect, "pytest": parse_pytest, "torchrun": parse_torchrun,
    "mlflow": partial(parse_click, "mlflow.cli:cli"),
    "hf": partial(parse_click, "huggingface_hub.cli.hf:app"),
    "transformers": partial(parse_click, "transformers.cli.transformers:app"),
}  # fmt: skip
"""Program -> function that parses its words."""
