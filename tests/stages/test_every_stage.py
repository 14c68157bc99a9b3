"""What holds of every kind of stage that works on a row: a new kind is a row of kinds.yaml.
What a kind cannot work with is a row of refused.yaml.

Each is run on the same small inputs (`stage_inputs`). The digests of what it wrote then are in
every_stage.yaml: `GOLDEN_WRITE=1 python -m pytest -n 0 tests/stages/test_every_stage.py` writes
them anew, for a commit that changes a number on purpose and says which.
"""

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import stage_inputs
from stage_inputs import OTHER_SEED, PRESETS, ROOT, SEED, SEEDS, read_files

from stages import rows
from stages.config import read_yaml
from stages.models import model_tokenizer
from stages.records import lines
from stages.records.episodes import EPISODES
from stages.rows import DATA
from stages.runtime import checkpoints, identity, journal
from stages.runtime.progress import Progress

GOLDEN = Path(__file__).with_name("every_stage.yaml")
KINDS = read_yaml(Path(__file__).with_name("kinds.yaml"))
ADAPTERS = {name for name, module in rows.ENTRY_POINTS.items() if module == "environment"} - {
    "environment_own"
}
"""Environments of packages, by the same module: tests/stages/environments has a row for each."""
REFUSED = read_yaml(Path(__file__).with_name("refused.yaml"))["rows"]
DVC = read_yaml(ROOT / "dvc.yaml")["stages"]
NOTHING: Mapping[str, Any] = {}


def find_entry_point(name: str) -> str:
    """Entry point of a row of kinds.yaml: the first word of its name."""
    return name.split(maxsplit=1)[0]


def list_words(name: str, changes: Mapping[str, Any] = NOTHING) -> list[str]:
    """The command line of a row of kinds.yaml, with changes."""
    kind = KINDS[name] | changes
    if "words" in kind:
        return kind["words"].split()
    return stage_inputs.make_words(find_entry_point(name), kind["on"], kind.get("from", "sft"))


def varies(name: str) -> bool:
    """Whether another seed writes something else."""
    return KINDS[name].get("of_seeds", True)


def run(
    name: str, seeds: Sequence[int] = (SEED,), changes: Mapping[str, Any] = NOTHING
) -> dict[str, bytes]:
    """What lies in data/ after a run in the working folder, of a row with changes."""
    kind = KINDS[name] | changes
    data = read_yaml(ROOT / "params.yaml")["data"]
    lengths = {"mixture": None, "max_prompt_tokens": 9, "max_completion_tokens": 9}
    preset = PRESETS.get(kind.get("like"), {}) | KINDS[name].get("preset", {})
    sections = {key: stage_inputs.SECTIONS[key] | section
                for key, section in changes.get("sections", {}).items()}  # fmt: skip
    stage_inputs.run_stage(
        find_entry_point(name), list_words(name, changes), preset | changes.get("preset", {}),
        seeds, data=data | lengths, **sections,
    )  # fmt: skip
    return read_files(Path("data"))


def enter_world(folder: Path, patch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What the folder has in data/ before a run there; every run has one input key: it goes on."""
    stage_inputs.copy_world(folder)
    patch.chdir(folder)
    patch.setattr(identity, "uuid", SimpleNamespace(uuid4=lambda: SimpleNamespace(hex="7" * 32)))
    stage_inputs.write_environment("short", max_turn_tokens=12)
    return read_files(Path("data"))


@functools.cache
def run_once(name: str, folder: Path) -> tuple[dict[str, bytes], int, int, list[dict[str, Any]]]:
    """What a kind writes, the number of its items, of the rows in its journal, and its parts."""
    items, logged, begun = [], [], []
    advance, log, begin = Progress.advance, journal.Journal.__call__, Progress.begin
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        before = enter_world(folder, patch)
        patch.setattr(Progress, "advance", lambda *a: (items.append(1), advance(*a)))
        patch.setattr(journal.Journal, "__call__", lambda *a: (logged.append(1), log(*a)))
        patch.setattr(Progress, "begin", lambda progress, label="", **words: (
            begun.append({"label": label, "total": None, "unit": ""} | words),
            begin(progress, label, **words)))  # fmt: skip
        after = run(name)
    assert {path: after.get(path) for path in before} == before, "it changes what it reads"
    return list_written(before, after), len(items), len(logged), begun


def list_written(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> dict[str, bytes]:
    """The new files but the run record."""
    return {path: content for path, content in after.items()
            if path not in before and not path.startswith("runs/")}  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole")


@pytest.fixture(params=sorted(KINDS))
def name(request: pytest.FixtureRequest, torch_settings: None) -> str:
    return request.param


@pytest.fixture
def whole(name: str, folders: Path) -> dict[str, bytes]:
    """What an undisturbed run of one seed writes."""
    return run_once(name, folders / name)[0]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The inputs, in the working folder."""
    return enter_world(tmp_path, monkeypatch)


def test_every_entry_point_is_a_row_here():
    assert {*map(find_entry_point, KINDS)} | ADAPTERS == rows.ENTRY_POINTS.keys()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stages.evaluate", "sft"], "python -m stages <entry point> <row>"),
        (["stages.compare"], "python -m stages <entry point> <row>"),
        (["stages", "sft"], "expected an entry point, found sft"),
    ],
)
def test_a_command_without_work_ends_with_an_error(words, message):
    command = [sys.executable, "-m", *words]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert message in result.stderr


def test_a_stage_writes_the_outputs_that_dvc_yaml_declares(name: str, whole: dict[str, bytes]):
    entry_point = find_entry_point(name)
    stage = entry_point.partition("_")[0]
    commands = (f" stages {entry_point} $", f" stages {stage}_${{item.")
    (declared,) = [
        entry["do"]["outs"]
        for entry in DVC.values()
        if any(text in entry.get("do", {}).get("cmd", "") for text in commands)
    ]
    outs = [out.replace("${key}", list_words(name)[0]).removeprefix("data/") for out in declared]
    places = {path: [out for out in outs if path.startswith(f"{out}/")] for path in whole}
    assert [path for path, inside in places.items() if len(inside) != 1] == []
    assert {out for inside in places.values() for out in inside} == set(outs)
    if varies(name):
        assert {path.split("/")[-1] for path in whole} >= {"metrics.json", "key.json"}


def test_another_seed_changes_no_bit_of_a_seed_and_writes_other_ones(
    name: str, whole: dict[str, bytes], world: dict[str, bytes]
):
    """The seeds are run a second time, in processes side by side, and none is the first of all."""
    both = list_written(world, run(name, SEEDS[::-1]))
    assert {path: both.get(path) for path in whole} == whole
    others = {
        path: re.sub(rf"\b{OTHER_SEED}\b", str(SEED), path) for path in both.keys() - whole.keys()
    }
    assert set(others.values()) <= whole.keys()
    assert bool(others) == varies(name)
    if others:
        assert any(both[path] != whole[of_seed] for path, of_seed in others.items()
                   if "journal" not in path)  # fmt: skip


def test_an_interrupted_run_goes_on_to_the_same_bits(
    name: str, whole: dict[str, bytes], world: dict[str, bytes], folders: Path,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    _, num_items, num_logged, _ = run_once(name, folders / name)
    if not num_items:
        pytest.skip("all of its work is one item")
    monkeypatch.setenv(checkpoints.INTERVAL_VARIABLE, "0")
    advance, log, items, logged = Progress.advance, journal.Journal.__call__, [], []

    def interrupt(*arguments: Any) -> None:
        items.append(1)
        if len(items) == 1 + 3 * num_items // 4:
            raise KeyboardInterrupt
        advance(*arguments)

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Progress, "advance", interrupt)
        run(name)
    assert list_written(world, read_files(Path("data"))) == {}
    monkeypatch.setattr(journal.Journal, "__call__", lambda *a: (logged.append(1), log(*a)))
    assert list_written(world, run(name)) == whole
    if "train" in name or name.startswith("reward_"):
        assert len(logged) < num_logged, "the first steps are not made again"


def test_the_time_that_remains_is_that_of_the_parts_that_follow_too(name: str, folders: Path):
    parts = [part for part in run_once(name, folders / name)[3] if part["total"] is not None]
    for _, same in groupby(parts, key=itemgetter("unit")):
        following = list(same)
        while following:
            part, *following = following
            assert (part["after"] or 0) == sum(later["total"] for later in following), part
            assert not part["label"] or part["after"] is not None, part


def test_outputs_have_the_digests_of_before(name: str, whole: dict[str, bytes]):
    digests = {
        path: hashlib.sha256(content).hexdigest()[:12]
        for path, content in sorted(whole.items())
        if path.endswith((".jsonl", ".safetensors", "/metrics.json", "/reward.json", "/pool.json"))
    }
    golden = read_yaml(GOLDEN) if GOLDEN.exists() else {}
    if os.environ.get("GOLDEN_WRITE"):
        stage_inputs.write_yaml(GOLDEN, golden | {name: digests})
        return
    assert digests == golden[name]


def test_a_row_of_another_source_than_its_kind_reads_is_refused(
    name: str, world: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
):
    words = list_words(name)
    if "--on" not in words or "prompts" in words:
        pytest.skip("it reads no source of a row")
    place = words.index("--on") + 1
    words[place] = "own/nowhere" if "own/" in words[place] else "nowhere/at-all"
    monkeypatch.setattr(f"{__name__}.list_words", lambda name, changes: words)
    with pytest.raises((ValueError, FileNotFoundError), match="nowhere"):
        run(name)
    assert list_written(world, read_files(Path("data"))) == {}


def lose_a_teacher():
    shutil.rmtree(DATA / f"pairs/taught/{OTHER_SEED}/model")


def learn_other_words():
    other = model_tokenizer.train_tokenizer(["Other words are learned here."] * 9, 700)
    for folder in (DATA / f"pairs/taught/{SEED}/model", rows.locate_policy("teacher", OTHER_SEED)):
        (folder / "tokenizer.json").unlink()  # it may be a second name of another
        other.save_pretrained(folder)


def answer_wrongly():
    stage_inputs.write_answers("train", {"a": "5678"})


def answer_alike():
    stage_inputs.write_answers("train", {"r": "44", "w": "56"})


def pay_alike():
    equal = [stage_inputs.make_episode(i, 1.0) for i in range(2)]
    lines.write_lines(DATA / f"episodes/games/{SEED}" / EPISODES, equal)


def hold_out_what_is_learned():
    folder = DATA / f"steps/old/{SEED}"
    shutil.copy(folder / "train.jsonl", folder / "heldout.jsonl")


EDITS = {edit.__name__: edit for edit in (lose_a_teacher, learn_other_words, answer_wrongly,
         answer_alike, pay_alike, hold_out_what_is_learned)}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case['row']}: {case['says']}")
@pytest.mark.usefixtures("torch_settings", "world")
def test_what_a_stage_cannot_work_with_is_refused_by_its_remedy_and_nothing_written(case):
    if "edit" in case:
        EDITS[case["edit"]]()
    before = read_files(Path("data"))
    with pytest.raises(ValueError, match=case["says"]):
        run(case["row"], SEEDS if case.get("both_seeds") else (SEED,), case)
    assert list_written(before, read_files(Path("data"))) == {}
