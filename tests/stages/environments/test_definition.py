"""Environments by the names of rows: presets, the user's class, and what their folder holds."""

from pathlib import Path

import pytest

from stages.environments import definition
from stages.environments.definition import EnvironmentFile, EnvironmentPreset

GAME = '''
class {name}:
    """A game of the highest number."""

    def __init__(self, highest=3):
        self.highest = highest

    def start(self, row, seed):
        return [], None

    def step(self, message):
        return None
'''
STARTS = {"train": 2, "dev": 1, "test": 1}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes a module of the package of one's own environments."""
    from stages.environments import own

    monkeypatch.setattr(own, "__path__", [str(tmp_path)])

    def write_module(word: str, text: str) -> None:
        (tmp_path / f"{word}.py").write_text(text)

    return write_module


def make_file(own: str, **preset) -> EnvironmentFile:
    return EnvironmentFile(
        kind="own", preset=EnvironmentPreset.model_validate({"starts": STARTS, **preset}), own=own,
        own_digest=None, packages={},
    )  # fmt: skip


def test_a_class_of_one_s_own_is_made_with_the_preset_s_options(write) -> None:
    write("high", GAME.format(name="High"))
    plain = definition.load_factory(make_file("high"))
    assert (plain().highest, plain() is plain()) == (3, False)
    file = make_file("high", options={"highest": 9})
    assert definition.load_factory(file)().highest == 9


def test_which_class_is_meant_must_be_clear(write) -> None:
    write("two", GAME.format(name="First") + GAME.format(name="Second"))
    write("borrows", "from stages.environments.own.two import First\n")
    for word, result in {"two": "First, Second", "borrows": "none"}.items():
        with pytest.raises(ValueError, match=f"expected one class .* found {result}"):
            definition.load_factory(make_file(word))
    for word, message in {
        "none": "there is no stages/environments/own/none.py",
        "../x": "letters",
    }.items():
        with pytest.raises(ValueError, match=message):
            definition.load_factory(make_file(word))


def test_a_folder_gives_back_what_was_written(tmp_path: Path) -> None:
    file = make_file("high", options={"highest": 9, "names": ["a"]})
    definition.write_environment(tmp_path, file)
    rows = [{"id": "ä", "index": 0}, {"id": "\ud800", "index": 1}]
    definition.write_rows(tmp_path, "train", rows)
    assert definition.read_environment(tmp_path) == file
    assert definition.read_rows(tmp_path, "train") == rows
    with pytest.raises(ValueError, match=r"found no dev\.jsonl"):
        definition.read_rows(tmp_path, "dev")
    with pytest.raises(ValueError, match=r"found no environment\.json"):
        definition.read_environment(tmp_path / "none")


def test_a_turn_shorter_than_the_transcript() -> None:
    with pytest.raises(ValueError, match="raise max_tokens"):
        make_file("high", max_turn_tokens=64, max_tokens=64)


def test_options_hold_what_json_holds() -> None:
    preset = {"starts": STARTS, "options": {"low": 1, "words": ["a", {"deep": 1.5}]}}
    assert EnvironmentPreset.model_validate(preset).options == preset["options"]
    for options, message in [
        ({"low": float("nan")}, r"options\.low: expected a finite number, found nan"),
        ({"low": ["a", {"deep": float("inf")}]}, r"options\.low\.1\.deep: .* found inf"),
        ({"sizes": {3: 1}}, r"options\.sizes: expected texts as keys, found 3"),
    ]:
        with pytest.raises(ValueError, match=message):
            EnvironmentPreset.model_validate({"starts": STARTS, "options": options})
