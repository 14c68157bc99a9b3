"""CONTRIBUTING's lists "To add" hold: editing the files that a list names adds what it promises."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline_copy import ROOT, PipelineCopy
from ruamel.yaml import YAML

ADDITIONS = YAML(typ="safe").load(Path(__file__).with_name("additions.yaml"))


def read_lists() -> Iterator[tuple[str, set[str]]]:
    """Name of each list, and the files that its items begin with or name further on."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## To add")[2]
    for name, items in re.findall(r"(?m)^A \*\*(.*?)\*\*[^\n]*\n(?:[^\n]+\n)*\n((?:.+\n)+)", page):
        yield name, set(re.findall(r"`((?:stages|data)/[\w<>/]+\.(?:py|yaml|md))`", items))


LISTS = dict(read_lists())


def test_every_list_has_its_addition() -> None:
    assert LISTS.keys() == ADDITIONS.keys()


@pytest.mark.parametrize("name", ADDITIONS)
def test_an_addition_edits_one_file_of_each_item(name: str) -> None:
    patterns = [re.sub(r"<\w+>", r"\\w+", path) for path in LISTS[name]]
    edited = [path for path, _content in edit(name, ROOT) if not path.startswith("tests/")]
    for path in edited:
        assert [it for it in patterns if re.fullmatch(it, path)], (
            f"{path} is in no item of the list"
        )
    assert len(edited) == len(patterns)


@pytest.mark.weekly
@pytest.mark.parametrize("name", ADDITIONS)
def test_following_a_list_adds_what_it_promises(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addition = ADDITIONS[name]

    def change(params: dict[str, Any], _presets: dict[str, Any]) -> None:
        for place, value in addition["params"].items():
            section, key = place.split(".")
            params[section][key] = value

    copy = PipelineCopy(tmp_path, change)
    for path, content in edit(name, copy.path):
        (copy.path / path).write_text(content, encoding="utf-8")
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


def edit(name: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Each file that an addition edits with its new content.

    A text is put after another one, which stands there once, or at the end of a file.
    """
    for path, edits in ADDITIONS[name]["edits"].items():
        content = (folder / path).read_text(encoding="utf-8") if (folder / path).exists() else ""
        for it in edits if isinstance(edits, list) else [edits]:
            after = it.get("after", content)
            assert content.count(after) == 1 or not content, (path, after)
            content = content.replace(after, after + it["text"]) if content else it["text"]
        yield path, content
