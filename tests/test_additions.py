"""CONTRIBUTING's lists "To add" hold: editing the files that a list names adds what it promises."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline_copy import ROOT, PipelineCopy
from ruamel.yaml import YAML

pytestmark = pytest.mark.slow

ADDITIONS = YAML(typ="safe").load(Path(__file__).with_name("additions.yaml"))


def read_lists() -> Iterator[tuple[str, set[str]]]:
    """Name of each list, and the files that its items begin with or name further on."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## To add")[2]
    for name, items in re.findall(r"(?m)^A \*\*(.*?)\*\*[^\n]*\n(?:[^\n]+\n)*\n((?:.+\n)+)", page):
        yield name, set(re.findall(r"`((?:stages|data)/[\w<>/]+\.(?:py|yaml|md))`", items))


LISTS = dict(read_lists())


def test_every_list_has_its_addition() -> None:
    assert LISTS.keys() == ADDITIONS.keys()


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.weekly] * (name == "kind of stage"))
    for name in ADDITIONS
])  # fmt: skip
def test_following_a_list_adds_what_it_promises(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addition = ADDITIONS[name]
    edited = {path for path in addition["edits"] if not path.startswith("tests/")}
    patterns = [re.sub(r"<\w+>", r"\\w+", path) for path in LISTS[name]]
    for path in edited:
        assert [it for it in patterns if re.fullmatch(it, path)], (
            f"{path} is in no item of the list"
        )
    assert len(edited) == len(patterns)

    def change(params: dict[str, Any], _presets: dict[str, Any]) -> None:
        for place, value in addition["params"].items():
            section, key = place.split(".")
            params[section][key] = value

    copy = PipelineCopy(tmp_path, change)
    for path, edits in addition["edits"].items():
        for edit in edits if isinstance(edits, list) else [edits]:
            insert(copy.path / path, **edit)
    for line in addition["runs"]:
        first, *words = shlex.split(line)
        with monkeypatch.context() as patch:
            if "=" in first:
                patch.setenv(*first.split("="))
                first, *words = words
            copy.run("-m", first, *words)
    if fault := addition.get("fault"):
        path = copy.path / fault["path"]
        content = path.read_text(encoding="utf-8")
        assert content.count(fault["text"]) == 1
        path.write_text(content.replace(fault["text"], fault["becomes"]), encoding="utf-8")
        with pytest.raises(AssertionError, match=r"exit status 1\n(?s:.*)1 failed"):
            copy.run("-m", *shlex.split(addition["runs"][-1]))


def insert(path: Path, *, text: str, after: str = "") -> None:
    """Put a text after another one, which stands there once, or at the end of a file or a new."""
    content = path.read_text(encoding="utf-8") if path.exists() else ""
    if after:
        assert content.count(after) == 1, (path, after)
        content = content.replace(after, after + text)
    else:
        content += text
    path.write_text(content, encoding="utf-8")
