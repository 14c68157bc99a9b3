"""Why two runs differ: two dvc.lock files as text, with the cache that they name (why.yaml)."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from toy_repo import GIT, ToyRepo, init_dvc

from flows import why
from flows.lock import digest_entry, digest_inputs, parse_lock, show_file
from flows.why import changed_functions
from stages.runtime import identity

ROWS = YAML(typ="safe").load(Path(__file__).with_name("why.yaml"))
CASES, FUNCTIONS = ROWS["cases"], ROWS["functions"]
RATE = {"params": CASES["a number"]["params"]}
OTHER_LEFT = {"data/policies/left": "b"}


def list_files(contents: Mapping[str, Any], path: str) -> dict[str, str]:
    """The files of a folder: of an evaluation three problems, the same in three seeds."""
    match contents.get(path):
        case {"first_accuracy": float(first)}:
            rows = [{"id": str(i), "mean_accuracy": first + i / 10} for i in range(3)]
            text = "".join(json.dumps(row) + "\n" for row in rows)
            return {f"{seed}/per_problem.jsonl": text for seed in range(3)}
        case dict(files):
            return files
    inside = {name: item for name, item in contents.items() if name.startswith(f"{path}/")}
    return {name.removeprefix(f"{path}/"): json.dumps(item) for name, item in inside.items()}


class Place:
    """A folder with a DVC cache, into which runs are written as dvc.lock files."""

    def __init__(self, path: Path) -> None:
        self.path, self.cache = path, path / ".dvc/cache/files/md5"

    def store(self, content: str, suffix: str = "") -> str:
        digest = hashlib.md5(content.encode()).hexdigest() + suffix
        path = self.cache / digest[:2] / digest[2:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return digest

    def digest(self, contents: Mapping[str, Any], path: str) -> str:
        """The MD5 of a file or folder, which is in the cache afterwards."""
        value = contents.get(path)
        if isinstance(value, str):
            return self.store(value)
        if path.endswith(".json") and value is not None:
            return self.store(json.dumps(value))
        files = list_files(contents, path)
        listed = [{"md5": self.store(text), "relpath": name} for name, text in files.items()]
        return self.store(json.dumps(listed), ".dir")

    def write(self, file: str, stages: str = "stages", **changes: Any) -> str:
        """The run of why.yaml, or its studies, with some changes; the path of its lock."""
        contents = {**ROWS["contents"], **changes.get("contents", {})}
        params = {**ROWS["params"], **changes.get("params", {})}
        commands = changes.get("commands", {})
        locked = {
            name: {
                "cmd": commands.get(name, command),
                "deps": [{"path": path, "md5": self.digest(contents, path)} for path in deps],
                "params": params.get(name, {}),
                "outs": [{"path": path, "md5": self.digest(contents, path)} for path in outs],
            }
            for name, (command, deps, outs) in ROWS[stages].items()
            if changes.get("without", "nothing") not in name
        }
        path = self.path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"schema": "2.0", "stages": locked}))  # YAML, too
        return str(path)

    def describe(self, *runs: str) -> list[str]:
        return why.describe(self.path, *runs).splitlines()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    init_dvc(tmp_path)
    return Place(tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_causes_of(place: Place, name: str) -> None:
    case = CASES[name]
    old, new = place.write("old.lock", **case.get("old", {})), place.write("new.lock", **case)
    lines = place.describe(old, new)
    assert lines[0].split(": ")[1].startswith(f"{case['differing']} of ")
    assert [line.replace(old, "OLD") for line in lines[1:]] == case.get("says", "").splitlines()


def test_without_the_cache_it_says_what_it_does_not_know(place: Place) -> None:
    changes = CASES["a number"]["contents"] | CASES["files of people"]["contents"]
    changes |= CASES["a source file"]["contents"]
    runs = place.write("old.lock"), place.write("new.lock", contents=changes)
    shutil.rmtree(place.cache)
    lines = place.describe(*runs)
    assert "data/raw: other content" in lines
    assert any(line.startswith("data/code/train.json: ") for line in lines)
    assert any(line.startswith("  left: no ") for line in lines)


def test_other_bits_of_the_same_inputs_name_the_processors(place: Place) -> None:
    old, new = place.write("old.lock"), place.write("new.lock", contents=OTHER_LEFT)
    inputs = parse_lock(Path(new).read_bytes(), "new")["train@left"].inputs
    for ended, cpu in (("1", "first"), ("3", "last"), ("2", "another")):
        folder = place.path / f"data/runs/train/left/{inputs[:16]}-{cpu}"
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"cpu": {"model": cpu}, "ended": ended}))
    lines = place.describe(old, new)
    assert lines[2] == "nothing that train@left reads: it ran on another, then on last"


def test_a_study_is_outdated_until_it_is_run_again_and_then_has_a_cause(place: Place) -> None:
    old = place.write("one/dvc.lock")
    new = place.write("two/dvc.lock", **RATE, contents=OTHER_LEFT)
    for folder in ("one", "two"):
        place.write(f"{folder}/studies/dvc.lock", "studies")
    lines = place.describe(old, new)
    assert lines[0].split(": ")[1].startswith("1 of 8")
    title = lines.index("Studies of earlier results, to run again:")
    assert lines[title + 1] == "  rescore@left: data/policies/left"
    again = OTHER_LEFT | {"data/studies": "b"}
    place.write("two/studies/dvc.lock", "studies", contents=again)
    assert place.describe(old, new)[2:] == [
        "left.rate: 0.5 -> 0.75",
        "  other results: train@left studies/rescore@left",
    ]


def test_functions_of_a_commits_sources_are_named_also_below_a_larger_checkout(tmp_path) -> None:
    place = Place(tmp_path / "inner")
    init_dvc(place.path)
    shutil.rmtree(place.path / ".git")
    (place.path / "stages").mkdir()
    for number in range(2):
        text = f"def rate():\n    return {number}\n"
        (place.path / "stages/train.py").write_text(text)
        trace = {"stages/train.py": hashlib.sha256(text.encode()).hexdigest()}
        contents = {"data/policies/left": str(number), "data/code/train.json": trace}
        place.write("dvc.lock", contents=contents)
        if number == 0:
            for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
                subprocess.run([*GIT, *words], cwd=tmp_path, check=True)
    assert place.describe()[2:4] == ["stages/train.py: rate", "  other results: train@left"]
    assert place.describe("HEAD", "HEAD")[0].startswith("HEAD and HEAD: 0 of")


@pytest.mark.parametrize("edit", FUNCTIONS["edits"])
def test_functions_that_differ(edit: dict[str, Any]) -> None:
    source = FUNCTIONS["source"]
    assert edit["old"] in source
    assert changed_functions(source, source.replace(edit["old"], edit["new"])) == edit["names"]


def test_what_cannot_be_compared_is_refused(place: Place, monkeypatch) -> None:
    lock, cut = Path(place.write("dvc.lock")), place.path / "cut.lock"
    with pytest.raises(ValueError, match="nowhere"):
        place.describe("nowhere")
    cut.write_bytes(lock.read_bytes()[:-40] + b"'")
    with pytest.raises(ValueError, match=r"cut\.lock"):
        place.describe(str(cut))
    for rest in ("stages:\n", "stages:\n  a:\n", "stages:\n  a:\n    cmd: b\n    deps:\n"):
        cut.write_text(rest)
        with pytest.raises(ValueError, match=r"cut\.lock: it was cut off"):
            place.describe(str(cut))
    studies = place.path / "studies/dvc.lock"
    studies.parent.mkdir(exist_ok=True)
    studies.write_text("<<<<<<< ours\nstages: {}\n=======\n>>>>>>> theirs\n")
    with pytest.raises(ValueError, match=r"--ours studies/dvc\.lock.*dvc repro studies/dvc\.yaml"):
        place.describe(str(lock))
    studies.unlink()
    lock.write_text(f"<<<<<<< ours\n{lock.read_text()}=======\n>>>>>>> theirs\n")
    with pytest.raises(ValueError, match="ours and theirs"):
        place.describe(str(lock))
    (place.path / "below").mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(place.path))
    with pytest.raises(ValueError, match="below"):  # outside of a repository
        show_file(place.path / "below", "HEAD", "dvc.lock")


def test_names_in_dvcs_run_cache_are_our_digests(finished_toy: ToyRepo) -> None:
    paths = list((finished_toy.path / ".dvc/cache/runs").glob("*/*/*"))
    assert len(paths) == 4
    for path in paths:
        entry = YAML(typ="safe").load(path)
        assert (path.parent.name, path.name) == (digest_inputs(entry), digest_entry(entry))
        assert identity.lock_key(entry) == digest_inputs(entry)


def test_a_real_lock_is_compared(toy: ToyRepo) -> None:
    toy.commit()
    toy.change(left={"mode": "other"})
    toy.repro("-q")
    lines = toy.run(sys.executable, "-m", "flows.why").splitlines()
    assert lines[2:4] == ['left.mode: "work" -> "other"', "  other results: side@left"]
    assert toy.run(sys.executable, "-m", "flows.why", "nowhere", code=2).count("\n") == 1
