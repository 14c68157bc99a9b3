"""What an entry point reads of the code, whose line an error is, which entry point a word is; and
what the doctor says of a plan before it runs."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import datasets.config
import huggingface_hub.constants
import pytest
from ruamel.yaml import YAML
from stage_inputs import ROOT

from flows.plan import read_graph
from stages import doctor, rows, trace_code
from stages.config import read_yaml
from stages.environments.environment import check_reply
from stages.own_modules import (
    PACKAGE,
    describe_error,
    exit_is_error,
    restored_settings,
)

TABLES = read_yaml(Path(__file__).with_suffix(".yaml"))


def trace(root: Path) -> dict[str, list[str]]:
    """Output -> the files that it lists, in a process that has not imported the real `stages`."""
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from stages import trace_code;"
        "del sys.path[0];"
        "[sys.modules.pop(name) for name in [*sys.modules] if name.split('.')[0] == 'stages'];"
        "trace_code.main()"
    )
    subprocess.run([sys.executable, "-c", program], cwd=root, check=True)
    listed = {}
    for path in (path for path in (root / "data").rglob("*") if path.is_file()):
        names = sorted(json.loads(path.read_text()).keys() - {"constraints.txt"})
        short = [name.removeprefix("stages/").removesuffix(".py") for name in names]
        listed[path.relative_to(root / "data").as_posix()] = short
    return listed


def test_the_code_of_an_entry_point_is_what_it_imports_and_no_more(tmp_path):
    main = "\ndef main():\n    pass\n"
    for name, text in TABLES["sources"].items():
        path = tmp_path / f"stages/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("MAIN", main))
    (tmp_path / "constraints.txt").touch()
    for name, text in TABLES["files"].items():
        (tmp_path / name).write_text(text)
    assert trace(tmp_path) == TABLES["closures"]
    (tmp_path / "stages/params.py").write_text("import stages.algorithms.unused\n")
    assert trace(tmp_path)["code/first.json"] == ["algorithms/unused", "first", "params"]


def test_dvc_and_every_entry_point_have_their_file_of_digests(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trace_code, "ROOT", ROOT)
    trace_code.main()
    data = tmp_path / "data"
    for file, digest in json.loads((data / "code/train_dpo.json").read_text()).items():
        assert digest == hashlib.sha256((ROOT / file).read_bytes()).hexdigest()
    written = {path.relative_to(data).as_posix() for path in data.rglob("*") if path.is_file()}
    needed = {dep.removeprefix("data/") for node in read_graph(ROOT).values() for dep in node.deps}
    assert {path for path in needed if path.startswith("code/")} <= written
    assert {f"code/{name}.json" for name in rows.ENTRY_POINTS} <= written


OWN = f"{PACKAGE}/rewards/own"


@pytest.mark.parametrize(("path", "source", "text"), [
    ("/home/me/shop.py", "\n1 / 0", "ZeroDivisionError: division by zero (shop.py, line 2)"),
    (f"{OWN}/shop.py", "import json\n\njson.loads('x')",
     "JSONDecodeError: Expecting value: line 1 column 1 (char 0) (shop.py, line 3)"),
    (f"{OWN}/sub/shop.py", "def price():\n    raise KeyError\n\nprice()",
     "KeyError (shop.py, line 2)"),
])  # fmt: skip
def test_an_error_has_the_line_of_the_users_file(path, source, text):
    with pytest.raises(Exception) as caught:
        exec(compile(source, path, "exec"), {})
    assert describe_error(caught.value) == text


def test_code_of_libraries_is_no_file_of_the_user_and_an_error_of_ours_stays_a_sentence():
    scope: dict = {}
    library = (
        "from dataclasses import dataclass\n@dataclass\nclass Price:\n    euros: int\n"
        "    def __post_init__(self):\n        raise OverflowError\n"
    )
    path = "/home/me/.local/lib/python3.11/site-packages/prices.py"
    exec(compile(library, path, "exec"), scope)
    with pytest.raises(OverflowError) as caught:
        exec(compile("\n\n\nPrice(3)", "/home/me/shop.py", "exec"), scope)
    assert describe_error(caught.value) == "OverflowError (shop.py, line 4)"
    with pytest.raises(ValueError, match="Reply") as refused:
        check_reply(None)
    assert refused.tb.tb_next is not None
    error = refused.value.with_traceback(refused.tb.tb_next)  # without the line of this test
    assert describe_error(error) == str(error)


def test_an_exit_of_the_users_code_is_an_error_and_a_request_to_end_is_not():
    class Request(SystemExit):
        pass

    for context in (exit_is_error, restored_settings):  # the latter also around imports
        with pytest.raises(RuntimeError, match="3"), context():
            sys.exit(3)
    with pytest.raises(Request), exit_is_error():
        raise Request


def test_a_problem_of_several_stages_is_listed_once():
    problems = [("train@a", "no room"), ("train@b", "no loss"), ("sample@a", "no room")]
    assert doctor.join_problems(problems) == [
        "train@a, sample@a: no room", "train@b: no loss",
    ]  # fmt: skip


@pytest.fixture
def repository(tmp_path):
    """The files that the doctor reads, with one row and few problems."""
    for name in ("dvc.yaml", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "stages", tmp_path / "stages", ignore=shutil.ignore_patterns("__pyc*"))
    content = YAML(typ="safe").load(ROOT / "params.yaml")
    content["policies"] = {"sft": content["policies"]["sft"]}
    for table in ("pools", "pairs", "steps", "rewards"):
        content[table] = {}
    content["data"]["source"]["num_problems"] = 800
    write_params(tmp_path, content)
    return tmp_path


def write_params(folder, content):
    with (folder / "params.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(content, file)


def write_problems(folder, *solutions):
    """A file of problems with these solutions in turn, as section `data` names it."""
    problems = [
        {"question": f"What is {n} plus 3?", "answer": str(n + 3),
         "solution": solutions[n % 2].replace("#### 3", f"#### {n + 3}")}
        for n in range(400)
    ]  # fmt: skip
    (folder / "data/raw").mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in problems)
    (folder / "data/raw/mine.jsonl").write_text(text, encoding="utf-8")
    content = YAML(typ="safe").load(folder / "params.yaml")
    content["data"] |= {"source": {"path": "data/raw/mine.jsonl", "licence": "CC0-1.0"},
                        "mixture": None}  # fmt: skip
    write_params(folder, content)


@pytest.fixture
def diagnose(repository, monkeypatch, capfd, torch_settings):
    """Runs the doctor in this process, which has what it imports: exit status, output, errors."""
    monkeypatch.chdir(repository)
    monkeypatch.setenv("COLUMNS", "140")
    for module in (datasets.config, huggingface_hub.constants):
        monkeypatch.setattr(module, "HF_HUB_OFFLINE", True)  # as it sets it

    def run(*words):
        error = ""
        try:
            doctor.main(*words)
        except SystemExit as request:
            error = request.code
        out, err = capfd.readouterr()
        return bool(error), out, err + str(error)

    return run


@pytest.mark.weekly
def test_the_doctor_shows_the_forecast_of_each_stage_and_a_text(repository):
    completed = subprocess.run(
        [sys.executable, "-m", "stages.doctor"], cwd=repository, capture_output=True, text=True,
        check=True, env=os.environ | {"PYTHONPATH": str(repository), "COLUMNS": "140"},
    )  # fmt: skip
    for text in ("train@sft", "'<|end|>'", "#### "):
        assert text in completed.stdout
    assert not (repository / "data").exists(), "nothing that a stage reads"


DIAGNOSES = [
    # solutions of the user's problems, words, whether something is wrong, and what is mentioned
    # a second forecast of everything takes minutes beside other work
    pytest.param(
        ("We add them. #### 3",) * 2, (), False, ["We add them. #### "], marks=pytest.mark.weekly
    ),
    (None, ("--gpu-gib", "0.001"), True, ["train@sft", "max_tokens"]),
    (None, ("--gpu-gib", "8", "--recompute", "train@sft"), False, ["False\n"]),
    (None, ("--gpu-gib", "0.001", "--recompute", "train@sft"), False, ["True\n"]),
    (("who knows",) * 2, (), True, ["0.0%"]),
    (("#### 3", f"It is{' very' * 80} long. #### 3"), (), True, ["data.max_bad_share"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("solutions", "words", "wrong", "mentions"), DIAGNOSES)
def test_the_doctor_finds_what_cannot_work_before_anything_ran(
    solutions, words, wrong, mentions, repository, diagnose
):
    if solutions is not None:
        write_problems(repository, *solutions)
        # Rows of an earlier source, which are not read.
        (repository / "data/demonstrations").mkdir()
        (repository / "data/demonstrations/demonstrations.jsonl").write_text("{}\n")
    is_wrong, out, err = diagnose(*words)
    assert is_wrong == wrong, err
    for text in mentions:
        assert text in (err if wrong else out)
    assert (repository / "data").exists() == (solutions is not None), "nothing that a stage reads"


@pytest.mark.slow
@pytest.mark.parametrize(("change", "says", "shown"), [
    (lambda _: "model: 3\n", "model: expected keys with values", ()),
    (lambda _: "a: [\n", "params.yaml, line 2: expected YAML", ()),
    # A row that is wrong: the machine and the data are what they are.
    (lambda text: text.replace("train: sft", "train: stf"), "policies.sft.train",
     ("computes on", "torch", "#### ")),
])  # fmt: skip
def test_a_plan_that_is_not_valid_has_no_forecast_and_no_traceback(
    change, says, shown, repository, diagnose
):
    path = repository / "params.yaml"
    path.write_text(change(path.read_text()))
    is_wrong, out, err = diagnose()
    assert (is_wrong, says in err) == (True, True), err
    assert "Traceback" not in err
    assert [text for text in shown if text not in out] == []
    assert "minutes" not in out
