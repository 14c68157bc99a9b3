"""Why two runs differ, on a small pipeline with rows, a trace and an evaluation."""

import shutil
import subprocess
from pathlib import Path

import pytest
from compared_pipeline import DVC_YAML, PARAMS, SOURCES, Pipeline
from ruamel.yaml import YAML

from flows import why
from flows.lock import parse_lock
from flows.why import changed_functions


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Pipeline(tmp_path_factory.mktemp("ran")).path


@pytest.fixture
def pipeline(ran: Path, tmp_path: Path) -> Pipeline:
    shutil.copytree(ran, tmp_path / "copy", symlinks=True)
    copied = object.__new__(Pipeline)
    copied.path = tmp_path / "copy"
    return copied


def test_a_number_reaches_its_row_and_the_difference_is_that_of_the_same_problems(
    pipeline: Pipeline,
) -> None:
    assert pipeline.said() == ["HEAD and this folder: 0 of 6 stages have other results"]
    pipeline.parameters({**PARAMS, "left": {"rate": 0.75}})
    pipeline.repro()
    said = pipeline.said()
    assert said[:4] == [
        "HEAD and this folder: 3 of 6 stages have other results",
        "",
        "left.rate: 0.5 -> 0.75",
        "  other results: train@left evaluate@left compare",
    ]
    # 0.51, 0.61 and 0.71 for each of three seeds: their spread is that of problems alone.
    assert said[-2] == "Mean accuracy on the test problems, %, and the difference:"
    assert said[-1].startswith("  left: 61.0 [")
    assert said[-1].endswith("25.0 [25.0, 25.0] of the same 3 problems")
    assert pipeline.said("HEAD", "HEAD")[0].startswith("HEAD and HEAD: 0 of 6")


def test_an_input_that_no_stage_makes(pipeline: Pipeline) -> None:
    (pipeline.path / "raw.txt").write_text("2\n")
    pipeline.repro()
    said = pipeline.said()
    assert said[2] == "raw.txt: other content"
    changed = said[3].removeprefix("  other results: ").split()
    assert sorted(changed) == sorted(
        ["prepare_data", "train@left", "train@right", "evaluate@left", "evaluate@right", "compare"]
    )
    # Two rows read what it changed: it is the first cause of both, and the only one.
    assert said[4:6] == ["", "Mean accuracy on the test problems, %, and the difference:"]


def test_files_of_people_are_named_and_of_the_source_only_those_that_are_read(
    pipeline: Pipeline,
) -> None:
    raw = pipeline.path / "data/raw"
    (raw / "other.txt").write_text("3\n")
    pipeline.repro()
    assert pipeline.said() == ["HEAD and this folder: 0 of 6 stages have other results"]
    (raw / "source/one.txt").write_text("1\n")
    (raw / "source/two.txt").unlink()
    (raw / "source/three.txt").write_text("2\n")
    pipeline.repro()
    said = pipeline.said()
    assert said[2:5] == [
        "data/raw/source/one.txt: edited",
        "data/raw/source/three.txt: new",
        "data/raw/source/two.txt: gone",
    ]
    assert said[5].startswith("  other results: prepare_data train@left")
    shutil.rmtree(pipeline.path / ".dvc/cache")
    assert "data/raw: other content" in pipeline.said()


def test_a_source_file_is_named_with_its_functions_and_one_without_effect_apart(
    pipeline: Pipeline,
) -> None:
    train = SOURCES["train"].replace('["rate"]', '["rate"] + 0.1')
    (pipeline.path / "stages/train.py").write_text(train)
    evaluate = "# why\n" + SOURCES["evaluate"]
    (pipeline.path / "stages/evaluate.py").write_text(evaluate)
    prepare = SOURCES["prepare"].replace("exist_ok=True", "exist_ok=1 == 1")
    (pipeline.path / "stages/prepare.py").write_text(prepare)
    pipeline.repro()
    said = "\n".join(pipeline.said())
    assert "stages/train.py: rate\n  other results: train@left train@right" in said
    assert "stages/evaluate.py: comments alone" in said
    idle = said.partition("Without effect on any result:")[2]
    assert "  stages/prepare.py: statements" in idle


@pytest.mark.slow
def test_without_the_cache_a_commit_still_has_its_files(pipeline: Pipeline) -> None:
    train = SOURCES["train"].replace('["rate"]', '["rate"] + 0.1')
    (pipeline.path / "stages/train.py").write_text(train)
    other = pipeline.path.parent / "their.lock"
    shutil.copy(pipeline.path / "dvc.lock", other)
    old = YAML(typ="safe").load(other)["stages"]["train@left"]["deps"][0]
    assert old["path"] == "data/code/train.json"
    pipeline.repro()
    (pipeline.path / ".dvc/cache/files/md5" / old["md5"][:2] / old["md5"][2:]).unlink()
    assert "stages/train.py: rate" in pipeline.said()
    shutil.rmtree(pipeline.path / ".dvc/cache")
    unknown = "data/code/train.json: other source files; which ones is not in the cache"
    assert unknown in pipeline.said(str(other))
    assert "  left: no problem and seed of both is in the cache" in pipeline.said(str(other))


@pytest.mark.slow
def test_other_bits_of_the_same_inputs_name_the_processors(pipeline: Pipeline) -> None:
    source = pipeline.path / "stages/evaluate.py"
    source.write_text(source.read_text().replace("i / 10", "i / 10 + len(os.environ['CPU']) / 100"))
    pipeline.dvc("repro", "-q", CPU="first")
    pipeline.record("evaluate@left", "first")
    shutil.copy(pipeline.path / "dvc.lock", pipeline.path / "old.lock")
    pipeline.dvc("repro", "-q", "-f", "-s", "evaluate@left", CPU="another")
    pipeline.record("evaluate@left", "another")
    pipeline.dvc("repro", "-q", "-s", "compare")
    said = pipeline.said(str(pipeline.path / "old.lock"))
    assert said[2:4] == [
        "nothing that evaluate@left reads: it ran on first, then on another",
        "  other results: evaluate@left compare",
    ]


STUDY_YAML = """\
stages:
  rescore:
    foreach: [left]
    do:
      wdir: ..
      cmd: cp data/policies/${item} data/studies
      deps: ["data/policies/${item}"]
      outs: [data/studies]
"""


@pytest.mark.slow
def test_a_study_is_named_as_outdated_and_when_it_was_run_again_with_its_cause(
    pipeline: Pipeline,
) -> None:
    (pipeline.path / "studies").mkdir()
    (pipeline.path / "studies/dvc.yaml").write_text(STUDY_YAML)
    pipeline.dvc("repro", "-q", "studies/dvc.yaml")
    pipeline.call("git", "add", ".")
    pipeline.call("git", "-c", "user.name=a", "-c", "user.email=@", "commit", "-qm", "study")
    assert pipeline.said() == ["HEAD and this folder: 0 of 7 stages have other results"]
    pipeline.parameters({**PARAMS, "left": {"rate": 0.75}})
    pipeline.repro()
    said = pipeline.said()
    assert said[3] == "  other results: train@left evaluate@left compare"
    outdated = said.index("Studies of earlier results, to run again:")
    assert said[outdated + 1] == "  rescore@left: data/policies/left"
    pipeline.dvc("repro", "-q", "studies/dvc.yaml")
    said = pipeline.said()
    assert said[2] == "left.rate: 0.5 -> 0.75"
    assert said[3] == "  other results: train@left evaluate@left compare studies/rescore@left"
    assert "Studies of earlier results, to run again:" not in said


@pytest.mark.slow
def test_rows_that_came_and_went(pipeline: Pipeline) -> None:
    text = DVC_YAML.replace("[left, right]", "[left, middle]")
    (pipeline.path / "dvc.yaml").write_text(text)
    pipeline.parameters({**PARAMS, "middle": {"rate": 0.1}})
    lock = YAML(typ="safe").load(pipeline.path / "dvc.lock")
    for name in ("train@right", "evaluate@right"):
        del lock["stages"][name]
    with (pipeline.path / "dvc.lock").open("w") as file:
        YAML().dump(lock, file)
    pipeline.repro()
    said = pipeline.said()
    assert "evaluate@middle is new" in said
    assert "Only in HEAD: train@right evaluate@right" in said


def test_what_cannot_be_compared_is_refused(pipeline: Pipeline) -> None:
    with pytest.raises(ValueError, match=r"there is no dvc\.lock in nowhere"):
        pipeline.said("nowhere")
    lock = pipeline.path / "dvc.lock"
    lock.write_text(f"<<<<<<< ours\n{lock.read_text()}=======\n>>>>>>> theirs\n")
    with pytest.raises(ValueError, match=r"this folder: it has a merge conflict between ours and"):
        pipeline.said("HEAD")


def test_a_checkout_of_somebody_else_is_named_with_gits_own_remedy(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(ValueError, match=r"(?s)dubious ownership.*safe\.directory"):
        pipeline.said("HEAD")


def test_a_checkout_inside_a_larger_repository_has_its_commits(tmp_path: Path, ran: Path) -> None:
    inner = tmp_path / "inner"
    shutil.copytree(ran, inner, ignore=shutil.ignore_patterns(".git"))
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "outer"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=@", *words], cwd=tmp_path,
                       check=True)  # fmt: skip
    assert "HEAD and this folder: 0 of" in why.describe(inner)


def test_functions_that_differ() -> None:
    old = '''"""Doc."""
import os
A = 1
class Kept:
    """Doc."""
    x: int = 1
    def same(self):
        """Doc."""
        return 1
    def other(self):
        return 2
'''
    assert changed_functions(old, old.replace("Doc", "Text") + "# more\n") == []
    new = (
        old.replace("return 2", "return 3").replace("A = 1", "A = 2").replace("int = 1", "int = 2")
    )
    assert changed_functions(old, new) == ["A", "Kept.x", "Kept.other"]
    assert changed_functions(old, old.replace("import os", "import sys")) == ["imports"]
    assert changed_functions(old, old.replace("class Kept:", "class Kept(dict):")) == ["Kept"]
    assert changed_functions(old, old.replace("class Kept:", "class Kept(a=1):")) == ["Kept"]
    assert changed_functions(old, old.replace("class Kept:", "@final\nclass Kept:")) == ["Kept"]


def test_run_records_of_older_locks_are_no_results() -> None:
    outs = "    - {path: data/runs/train/a, md5: RUN}\n    - {path: data/a, md5: abc}\n"
    lock = f"stages:\n  train@a:\n    cmd: python a\n    outs:\n{outs}"
    older, newer = (
        parse_lock(lock.replace("RUN", text).encode(), "it")["train@a"] for text in ("2", "3")
    )
    assert older.outs == newer.outs == {"data/a": "abc"}
