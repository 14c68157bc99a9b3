"""Why two runs differ: two dvc.lock files as text, with the cache that they name.

A new kind of cause is a row of `CASES`.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from toy_repo import GIT, ToyRepo, init_dvc

from flows import why
from flows.entries import digest_entry, digest_inputs
from flows.git import show_file
from flows.lock import parse_lock
from flows.why import changed_functions, find_number

# Stage -> command, dependencies, outputs.
STAGES = {
    "plan": ("python plan.py", ["data/raw"], ["data/inputs.json", "data/raw.json"]),
    "trace_code": ("python trace.py", ["stages"], ["data/code"]),
    "prepare_data": (
        "python prepare.py",
        ["data/code/prepare.json", "data/inputs.json", "raw.txt"],
        ["data/prompts"],
    ),
    "train@left": (
        "python check.py\npython train.py left",
        ["data/code/train.json", "data/prompts", "data/prompts-more.txt"],
        ["data/policies/left"],
    ),
    "train@right": (
        "python train.py right", ["data/code/train.json", "data/prompts"], ["data/policies/right"],
    ),
    "evaluate@left": (
        "python evaluate.py left",
        ["data/policies/left"],
        ["data/evaluations/left", "data/journals/evaluate/left"],
    ),
    "evaluate@right": (
        "python evaluate.py right", ["data/policies/right"], ["data/evaluations/right"],
    ),
    "reward": ("python reward.py", [], ["data/rewards/preference"]),
    "compare": ("python compare.py", ["data/evaluations"], ["data/report"]),
}  # fmt: skip


def evaluate(first: float) -> dict[str, str]:
    """Three problems, the same accuracies in three seeds: their spread is that of problems."""
    rows = [{"id": str(i), "mean_accuracy": first + i / 10} for i in range(3)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    return {f"{seed}/per_problem.jsonl": text for seed in range(3)}


def measure(*accuracies: float) -> dict[str, str]:
    """Metrics of a reward by seed: a name with a slash, and a name in another."""
    metrics = [{"heldout/accuracy": {"value": a}, "heldout": {"auc": 0.5}} for a in accuracies]
    return {f"{seed}/metrics.json": json.dumps(item) for seed, item in enumerate(metrics)}


CONTENTS: dict[str, Any] = {
    "raw.txt": "1", "stages": "s", "data/prompts": "1", "data/prompts-more.txt": "1",
    "data/raw": {"source/one.txt": "0", "source/two.txt": "0", "other.txt": "0"},
    "data/inputs.json": {"data/raw/source/one.txt": "0", "data/raw/source/two.txt": "0"},
    "data/raw.json": {"data/raw/source/one.txt": "0", "data/raw/source/two.txt": "0",
                      "data/raw/other.txt": "0"},
    "data/code/prepare.json": {"stages/prepare.py": "0"},
    "data/code/train.json": {"stages/train.py": "0", "stages/rate.py": "0"},
    "data/policies/left": "a", "data/policies/right": "a",
    "data/evaluations/left": evaluate(0.51), "data/evaluations/right": evaluate(0.25),
    "data/journals/evaluate/left": "j", "data/report": "r",
    "data/rewards/preference": measure(0.5, 0.6),
}  # fmt: skip
PARAMS: dict[str, Any] = {
    "train@left": {"params.yaml": {"left": {"rate": 0.5}}, "stages/presets.yaml": {"p": {"b": 1}}},
    "train@right": {"params.yaml": {"right": {"rate": 0.5}}},
}


class Place:
    """A folder with a DVC cache, into which runs are written as dvc.lock files."""

    def __init__(self, path: Path) -> None:
        self.path, self.cache = path, path / ".dvc/cache/files/md5"

    def store(self, content: bytes, suffix: str = "") -> str:
        digest = hashlib.md5(content).hexdigest() + suffix
        path = self.cache / digest[:2] / digest[2:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return digest

    def digest(self, contents: Mapping[str, Any], path: str) -> str:
        """The MD5 of a file or folder, which is in the cache afterwards."""
        value = contents.get(path)
        if isinstance(value, str):
            return self.store(value.encode())
        if path.endswith(".json") and value is not None:
            return self.store(json.dumps(value).encode())
        files = value or {
            f"{name.removeprefix(path)[1:]}/{below}": text
            for name, item in contents.items()
            if name.startswith(f"{path}/")
            for below, text in (item if isinstance(item, dict) else {"": str(item)}).items()
        }
        listed = [
            {"md5": self.store(text.encode()), "relpath": name} for name, text in files.items()
        ]
        return self.store(json.dumps(listed).encode(), ".dir")

    def write(
        self,
        file: str,
        contents: Mapping[str, Any] = {},
        params: Mapping[str, Any] = {},
        commands: Mapping[str, str] = {},
        without: str = "nothing",
        stages: Mapping[str, Any] = STAGES,
    ) -> str:
        """A run that differs by these from the one above; its path."""
        every, parameters = {**CONTENTS, **contents}, {**PARAMS, **params}
        locked = {
            name: {
                "cmd": commands.get(name, command),
                "deps": [{"path": path, "md5": self.digest(every, path)} for path in deps],
                "params": parameters.get(name, {}),
                "outs": [{"path": path, "md5": self.digest(every, path)} for path in outs],
            }
            for name, (command, deps, outs) in stages.items()
            if without not in name
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


def left(rate: float) -> dict[str, Any]:
    return {"train@left": PARAMS["train@left"] | {"params.yaml": {"left": {"rate": rate}}}}


ACCURACIES = "Mean accuracy on the test problems, %, and the difference:"
OTHER_LEFT = {"data/policies/left": "b"}
EVALUATED_LEFT = OTHER_LEFT | {"data/evaluations/left": evaluate(0.76), "data/report": "s"}
OTHER = {"data/prompts": "2", "data/policies/left": "b", "data/policies/right": "b"}
FILES = {"data/raw/source/one.txt": "1", "data/raw/source/three.txt": "2"}
OF_ALL = "  other results: prepare_data train@left train@right"
CASES: dict[str, tuple[dict[str, Any], int, list[str]]] = {
    # what the later run differs by, stages with other results, all lines below the first
    "nothing": ({}, 0, []),
    "a number": (
        {"params": left(0.75), "contents": EVALUATED_LEFT}, 3,
        ["", "left.rate: 0.5 -> 0.75", "  other results: train@left evaluate@left compare", "",
         ACCURACIES, "  left: 61.0 [25.9, 96.1] -> 86.0 [50.9, 100.0], "
         "25.0 [-100.0, 100.0] of the same 3 problems"],
    ),
    "a number that is gone": (
        {"params": {"train@right": {}}, "contents": {"data/policies/right": "b"}}, 1,
        ["", 'right.rate: 0.5 -> "not there"', "  other results: train@right"],
    ),
    "a preset": (
        {"params": {"train@left": PARAMS["train@left"] | {"stages/presets.yaml": {"p": {"b": 2}}}},
         "contents": OTHER_LEFT}, 1,
        ["", "presets.p.b: 1 -> 2", "  other results: train@left"],
    ),
    "a row": (
        {"commands": {"train@left": "python check.py\npython train.py left --on x"},
         "contents": OTHER_LEFT}, 1,
        ["", "the row of train@left: python train.py left -> python train.py left --on x",
         "  other results: train@left"],
    ),
    "the check before a command": (
        {"commands": {"train@left": "python other.py\npython train.py left"}}, 0, [],
    ),
    "an input": (
        {"contents": OTHER | {"raw.txt": "2"}}, 3, ["", "raw.txt: other content", OF_ALL],
    ),
    "an input whose name begins like an output": (
        {"contents": OTHER_LEFT | {"data/prompts-more.txt": "2"}}, 1,
        ["", "data/prompts-more.txt: other content", "  other results: train@left"],
    ),
    "files of people": (
        {"contents": OTHER | {"data/raw": "other", "data/inputs.json": FILES,
                              "data/raw.json": FILES | {"data/raw/other.txt": "0"}}}, 3,
        ["", "data/raw/source/one.txt: edited", "data/raw/source/three.txt: new",
         "data/raw/source/two.txt: gone", OF_ALL],
    ),
    "a file of people that nothing reads": (
        {"contents": {"data/raw": "other",
                      "data/raw.json": CONTENTS["data/raw.json"] | {"data/raw/other.txt": "1"}}},
        0, [],
    ),
    "a source file": (
        {"contents": OTHER | {"data/prompts": "1", "data/code": "other", "stages": "t",
                              "data/code/train.json": {"stages/train.py": "1", "stages/b.py": ""}}},
        2,
        ["", "stages/b.py: read now", "stages/rate.py: no longer read", "stages/train.py",
         "  other results: train@left train@right"],
    ),
    "a source file without effect": (
        {"contents": {"data/code/train.json": {"stages/train.py": "0", "stages/rate.py": "1"}}},
        0, ["", "Without effect on any result:", "  stages/rate.py"],
    ),
    "a number, beside one without effect": (
        {"params": left(0.75), "contents": OTHER_LEFT | {"data/evaluations/left": evaluate(0.51),
                                                         "data/report": "s"},
         "commands": {"evaluate@right": "python evaluate.py right --again"}}, 2,
        ["", "left.rate: 0.5 -> 0.75", "  other results: train@left", "",
         "nothing that compare reads: it ran on an unknown processor, then on an unknown processor",
         "  other results: compare", "", "Without effect on any result:",
         "  the row of evaluate@right: python evaluate.py right -> "
         "python evaluate.py right --again"],
    ),
    "an effect beside a neighbour without": (
        {"params": left(0.75), "contents": EVALUATED_LEFT,
         "commands": {"evaluate@right": "python evaluate.py right --again"}}, 3,
        ["", "left.rate: 0.5 -> 0.75", "  other results: train@left evaluate@left compare", "",
         "Without effect on any result:", "  the row of evaluate@right: "
         "python evaluate.py right -> python evaluate.py right --again", "",
         ACCURACIES, "  left: 61.0 [25.9, 96.1] -> 86.0 [50.9, 100.0], "
         "25.0 [-100.0, 100.0] of the same 3 problems"],
    ),
    "a reward": (
        {"commands": {"reward": "python reward.py --more"},
         "contents": {"data/rewards/preference": measure(0.7, 0.9)}}, 1,
        ["", "the row of reward: python reward.py -> python reward.py --more",
         "  other results: reward", "", "Other held-out metrics, means over seeds:",
         "  rewards/preference, accuracy: 0.550 -> 0.800, +0.250 (+0.200 to +0.300 in 2 seeds)",
         "  rewards/preference, AUC: 0.500 -> 0.500, +0.000 (+0.000 to +0.000 in 2 seeds)"],
    ),
    "a journal": ({"contents": {"data/journals/evaluate/left": "k"}}, 0, []),
    "a row that is gone": (
        {"without": "@right"}, 0, ["", "Only in OLD: train@right evaluate@right"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_causes_of(place: Place, name: str) -> None:
    changes, number, expected = CASES[name]
    old, new = place.write("old.lock"), place.write("new.lock", **changes)
    lines = place.describe(old, new)
    assert lines[0].split(": ")[1].startswith(f"{number} of ")
    assert [line.replace(old, "OLD") for line in lines[1:]] == expected


def test_a_row_that_is_new_has_no_other_cause(place: Place) -> None:
    lines = place.describe(place.write("old.lock", without="@right"), place.write("new.lock"))
    assert lines[1:4] == ["", "train@right is new", "  other results: train@right"]


def test_without_the_cache_it_says_what_it_does_not_know(place: Place) -> None:
    trace = {"data/code/train.json": {"stages/train.py": "1"}, "data/raw": "other"}
    changes = EVALUATED_LEFT | trace | {"data/inputs.json": FILES, "data/prompts": "2"}
    runs = place.write("old.lock"), place.write("new.lock", contents=changes)
    subprocess.run(["rm", "-r", str(place.cache)], check=True)
    lines = place.describe(*runs)
    assert "data/raw: other content" in lines
    assert any(line.startswith("data/code/train.json: ") for line in lines)
    assert any(line.startswith("  left: no ") for line in lines)


def test_other_bits_of_the_same_inputs_name_the_processors(place: Place) -> None:
    old, new = place.write("old.lock"), place.write("new.lock", contents=OTHER_LEFT)
    inputs = parse_lock(Path(new).read_bytes(), "new")["train@left"].inputs
    for number, cpu in enumerate(("first", "last", "another")):
        folder = place.path / f"data/runs/train/left/{inputs[:16]}-{number}"
        folder.mkdir(parents=True)
        record = {"cpu": {"model": cpu}, "ended": {"first": "1", "another": "2", "last": "3"}[cpu]}
        (folder / "run.json").write_text(json.dumps(record))
    lines = place.describe(old, new)
    assert lines[2] == "nothing that train@left reads: it ran on another, then on last"


STUDY = {"rescore@left": ("python rescore.py", ["data/policies/left"], ["data/studies"])}


def test_a_study_is_outdated_until_it_is_run_again_and_then_has_a_cause(place: Place) -> None:
    changes = {"params": left(0.75), "contents": OTHER_LEFT}
    old, new = place.write("one/dvc.lock"), place.write("two/dvc.lock", **changes)
    for folder in ("one", "two"):
        place.write(f"{folder}/studies/dvc.lock", stages=STUDY)
    lines = place.describe(old, new)
    assert lines[0].split(": ")[1].startswith("1 of 8")
    assert lines[lines.index("Studies of earlier results, to run again:") + 1] == (
        "  rescore@left: data/policies/left"
    )
    again = OTHER_LEFT | {"data/studies": "b"}
    place.write("two/studies/dvc.lock", stages=STUDY, contents=again)
    lines = place.describe(old, new)
    results = "  other results: train@left studies/rescore@left"
    assert lines[2:] == ["left.rate: 0.5 -> 0.75", results]


def test_functions_of_a_commits_sources_are_named_also_below_a_larger_checkout(tmp_path) -> None:
    place = Place(tmp_path / "inner")
    init_dvc(place.path)
    subprocess.run(["rm", "-r", str(place.path / ".git")], check=True)
    subprocess.run([*GIT, "init", "-q", str(tmp_path)], check=True)
    (place.path / "stages").mkdir()
    texts = "def rate():\n    return 1\n", "def rate():\n    return 2\n"
    for number, text in enumerate(texts):
        (place.path / "stages/train.py").write_text(text)
        trace = {"stages/train.py": hashlib.sha256(text.encode()).hexdigest()}
        contents = OTHER_LEFT | {"data/policies/left": str(number), "data/code/train.json": trace}
        place.write("dvc.lock", contents=contents)
        if number == 0:
            for words in (["add", "."], ["commit", "-qm", "first"]):
                subprocess.run([*GIT, *words], cwd=tmp_path, check=True)
    assert place.describe()[2:4] == ["stages/train.py: rate", "  other results: train@left"]
    assert place.describe("HEAD", "HEAD")[0].startswith("HEAD and HEAD: 0 of")


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("return 1", "return 3", ["Same.one"]),
        ("A = 1", "A = 2", ["A"]),
        ("x: int = 1", "x: int = 2", ["Same.x"]),
        ("import os", "import sys", ["imports"]),
        ("class Same:", "class Same(dict):", ["Same"]),
        ("class Same:", "@final\nclass Same:", ["Same"]),
        ("print(A)", "print(B)", ["statements"]),
        ("def two(self):", "def two(self, a):", ["Same.two"]),
        ("Doc", "Text", []),
        ("A = 1", "A = 1  # why", []),
    ],
)
def test_functions_that_differ(old: str, new: str, names: list[str]) -> None:
    source = '''"""Doc."""
import os
A = 1
class Same:
    """Doc."""
    x: int = 1
    def one(self):
        return 1
    def two(self):
        """Doc."""
        return 2
print(A)
'''
    assert old in source
    assert changed_functions(source, source.replace(old, new)) == names


@pytest.mark.parametrize(
    ("metrics", "number"),
    [
        ({"a/b": 1.0}, 1.0),
        ({"a/b": {"value": 2.0, "low": 0.0}}, 2.0),
        ({"a": {"b": {"value": 3.0}}}, 3.0),
        ({"a": 4.0, "c": 5.0}, 5.0),
        ({"a/b": 0.0, "c": 5.0}, 0.0),
        ({}, None),
    ],
)
def test_a_headline_is_the_first_key_that_exists(metrics, number) -> None:
    assert find_number(metrics, ("a/b", "c")) == number


def test_what_cannot_be_compared_is_refused(place: Place, monkeypatch) -> None:
    place.write("dvc.lock")
    with pytest.raises(ValueError, match="nowhere"):
        place.describe("nowhere")
    lock = place.path / "dvc.lock"
    cut = place.path / "cut.lock"
    cut.write_bytes(lock.read_bytes()[:-40] + b"'")
    with pytest.raises(ValueError, match=r"cut\.lock"):
        place.describe(str(cut))
    lock.write_text(f"<<<<<<< ours\n{lock.read_text()}=======\n>>>>>>> theirs\n")
    with pytest.raises(ValueError, match="ours and theirs"):
        place.describe(str(lock))
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(ValueError, match=r"safe\.directory"):
        place.describe("HEAD~9")
    monkeypatch.setattr(sys, "argv", ["why", "a", "b", "c"])
    assert why.main() == 2


def test_outside_of_a_repository_the_message_names_the_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(ValueError, match=tmp_path.name):
        show_file(tmp_path, "HEAD", "dvc.lock")


def test_names_in_dvcs_run_cache_are_our_digests(finished_toy: ToyRepo) -> None:
    paths = list((finished_toy.path / ".dvc/cache/runs").glob("*/*/*"))
    assert len(paths) == 4
    for path in paths:
        entry = YAML(typ="safe").load(path)
        assert (path.parent.name, path.name) == (digest_inputs(entry), digest_entry(entry))


def test_a_real_lock_is_compared(toy: ToyRepo) -> None:
    toy.commit()
    toy.change(left={"mode": "other"})
    toy.repro("-q")
    lines = toy.run(sys.executable, "-m", "flows.why").splitlines()
    assert lines[2:4] == ['left.mode: "work" -> "other"', "  other results: side@left"]
    assert toy.run(sys.executable, "-m", "flows.why", "nowhere", code=2).count("\n") == 1
