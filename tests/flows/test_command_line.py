"""The command `posttrain`: help without imports, wrong words, new rows that are valid."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flows import new
from flows.command_line import COMMANDS, describe, locate_source

ROOT = Path(__file__).parents[2]


def posttrain(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flows.command_line", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_every_option_and_an_example(name: str):
    source = locate_source(name, ROOT).read_text(encoding="utf-8")
    options = re.findall(r'add_argument\(\s*(?:"-\w", )?"(--[\w-]+)"', source)
    text = describe(name)
    assert [option for option in options if option not in text] == []
    assert re.search(rf"^\s*posttrain {name}\b", text, re.MULTILINE)


def test_help_imports_no_command():
    before = {*sys.modules}
    assert all(map(describe, COMMANDS))
    assert {*sys.modules} == before
    assert posttrain("--version").stdout.startswith("posttrain ")


@pytest.mark.parametrize(("words", "named"), [
    (["evport", "sft"], "export"),
    (["serve", "nowhere"], "config.json"),
    (["new", "reward", "Not-a-module"], "Not-a-module"),
    (["new", "policy", "grpo"], "grpo"),
    (["new", "surrogate", "dapo"], "dapo"),
    (["new", "labeller", "brevity"], "brevity.py"),
    (["new", "source", "mine", "--preset", "rloo"], "--preset: expected none"),
])  # fmt: skip
def test_wrong_words_are_refused_by_name(words: list[str], named: str):
    result = posttrain(*words)
    assert (result.returncode, named in result.stderr) == (2, True)


def test_outside_a_checkout_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    result = posttrain("check", cwd=tmp_path)
    assert (result.returncode, str(tmp_path) in result.stderr) == (2, True)
    assert posttrain("--help", cwd=tmp_path).stdout == posttrain("--help").stdout


def test_new_rows_and_files_pass_the_check_as_they_stand(tmp_path: Path):
    for name in ("params.yaml", "dvc.yaml", "constraints.txt", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("stages", "flows"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for kind in (new.POLICY, *new.EXAMPLES):
        words = ["rloo", "--preset", "rloo"] if kind == new.POLICY else [f"my_{kind}"]
        assert posttrain("new", kind, *words, cwd=tmp_path).returncode == 0
    before = (ROOT / "params.yaml").read_text(encoding="utf-8").splitlines()
    after = (tmp_path / "params.yaml").read_text(encoding="utf-8").splitlines()
    assert len(after) == len(before) + 11
    lost = [line for line in before if line not in after and f"  # {line[2:]}" not in after]
    assert lost == ["environments: {}", "episodes: {}"]
    result = posttrain("check", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    for page in ("# Mine\n", None):  # the user's own, or none
        (tmp_path / "README.md").unlink()
        if page is not None:
            (tmp_path / "README.md").write_text(page, encoding="utf-8")
        result = posttrain("new", "reward", "brief", cwd=tmp_path)
        assert (result.returncode, result.stderr.count("README.md")) == (2, 1)


def test_nothing_is_written_where_a_table_has_another_form(tmp_path: Path, monkeypatch):
    for name in ("README.md", "params.yaml", "stages/presets.yaml", "stages/write_your_own.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "stages/rewards/own").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    params = Path("params.yaml")
    text = params.read_text(encoding="utf-8")
    for table in ("rewards", "policies"):  # with the second, after the other row is made
        changed = re.sub(rf"(?ms)^{table}:\n.*?\n(?=\w)", f"{table}: {{a: {{}}}}\n", text)
        assert changed != text
        params.write_text(changed, encoding="utf-8")
        before = {file: file.read_bytes() for file in Path().rglob("*") if file.is_file()}
        with pytest.raises(ValueError, match="wrote nothing"):
            new.write("reward", "brief")
        assert {file: file.read_bytes() for file in Path().rglob("*") if file.is_file()} == before
