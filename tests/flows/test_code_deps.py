"""What sync writes, what check refuses and what reach names, on a small package."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

SOURCES = {
    "stages/__init__.py": "",
    "stages/first.py": "import stages.params\nfrom stages.runtime import runs\n",
    "stages/second.py": (
        "from typing import TYPE_CHECKING\n"
        "from stages import params\n"
        "if TYPE_CHECKING:\n    from stages.algorithms import unused\n"
        "def main():\n    from stages.engines import lazy\n"
    ),
    "stages/params.py": "",
    "stages/check_params.py": "import stages.first, stages.second\n",
    "stages/runtime/__init__.py": "",
    "stages/runtime/runs.py": "",
    "stages/engines/__init__.py": "DEFAULT = 1\n",
    "stages/engines/lazy.py": "from ..algorithms.losses.dpo import loss\n",
    "stages/algorithms/__init__.py": "",
    "stages/algorithms/unused.py": "",
    "stages/algorithms/losses/__init__.py": "",
    "stages/algorithms/losses/dpo.py": "loss = 1\nraise RuntimeError('imported, not read')\n",
    "constraints.txt": "",
    "params.yaml": "seed: 1\n",
    "data/raw.txt": "",
}

DECLARED = """\
# The pipeline.
stages:
  first:  # reads raw text
    cmd: >-
      python -m
      stages.first
    deps:
    params: [seed]
    outs:
      - data/first

  # Two of them.
  second:
    foreach: [left, right]
    do:
      cmd: python -m stages.second ${item}
      deps:
        - stages/gone.py
        # upstream
        - data/first
        - stages/second.py  # the entry point
        - stages/second.py
      outs: ["data/second/${item}"]

  other:
    cmd: echo no python here > data/other
    deps: [data/raw.txt]
    outs: [data/other]
"""

SYNCHRONISED = """\
# The pipeline.
stages:
  first:  # reads raw text
    cmd: >-
      python -m
      stages.first
    deps:
      - stages/first.py
      - stages/params.py
      - constraints.txt
    params: [seed]
    outs:
      - data/first

  # Two of them.
  second:
    foreach: [left, right]
    do:
      cmd: python -m stages.second ${item}
      deps:
        - stages/algorithms/losses/dpo.py
        - stages/engines/__init__.py
        - stages/engines/lazy.py
        - stages/params.py
        # upstream
        - data/first
        - stages/second.py  # the entry point
        - constraints.txt
      outs: ["data/second/${item}"]

  other:
    cmd: echo no python here > data/other
    deps: [data/raw.txt]
    outs: [data/other]
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A package `stages` and its dvc.yaml, in a folder without DVC."""
    for name, text in {**SOURCES, "dvc.yaml": DECLARED}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def code_deps(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m flows.code_deps` in `root`.

    A child process, because the tests' own process has imported the real `stages`.
    """
    program = (
        f"import sys; sys.path.append({str(REPOSITORY)!r}); sys.argv[0] = 'code_deps'; "
        "from flows.code_deps import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(
        command, cwd=root, check=False, capture_output=True, text=True, timeout=60
    )


def test_sync_writes_the_closure_and_leaves_every_other_byte(toy: Path) -> None:
    result = code_deps(toy, "sync")
    assert result.returncode == 0, result.stderr
    assert (toy / "dvc.yaml").read_text() == SYNCHRONISED
    again = code_deps(toy, "sync")
    assert again.returncode == 0
    assert (toy / "dvc.yaml").read_text() == SYNCHRONISED


def test_check_fails_with_the_difference_and_writes_nothing(toy: Path) -> None:
    result = code_deps(toy, "check")
    assert result.returncode == 1
    assert "-        - stages/gone.py" in result.stdout
    assert "+        - stages/engines/lazy.py" in result.stdout
    assert "flows.code_deps sync" in result.stderr
    assert (toy / "dvc.yaml").read_text() == DECLARED
    (toy / "dvc.yaml").write_text(SYNCHRONISED)
    assert code_deps(toy, "check").returncode == 0


def test_a_missing_entry_point_is_named(toy: Path) -> None:
    (toy / "stages/first.py").unlink()
    (toy / "stages/check_params.py").unlink()
    result = code_deps(toy, "check")
    assert result.returncode == 2
    assert "python -m stages.first" in result.stderr
    assert "does not exist" in result.stderr


def test_a_stage_without_a_deps_list_is_refused_with_the_remedy(toy: Path) -> None:
    (toy / "dvc.yaml").write_text("stages:\n  first:\n    cmd: python -m stages.first\n")
    result = code_deps(toy, "sync")
    assert result.returncode == 2
    assert "'first' has no `deps:`" in result.stderr


def test_reach_names_direct_and_downstream_stages(toy: Path) -> None:
    (toy / "dvc.yaml").write_text(SYNCHRONISED)
    subprocess.run(["dvc", "init", "--no-scm", "-q"], cwd=toy, check=True)
    lines = code_deps(toy, "reach", "stages/first.py").stdout.splitlines()
    assert lines[1:] == ["  first", "  second@left (downstream)", "  second@right (downstream)"]
    lines = code_deps(toy, "reach", "stages/params.py").stdout.splitlines()
    assert lines[1:] == ["  first", "  second@left", "  second@right"]
    assert "cannot" not in code_deps(toy, "reach", "stages/algorithms/unused.py").stdout
    assert "unable to change" in code_deps(toy, "reach", "stages/runtime/runs.py").stdout
    assert code_deps(toy, "reach", "params.yaml").stdout == "seed: first\n"


NAMED = """\
stages:
  second:
    foreach: {a: {own: none}, b: {own: mine}}
    do:
      cmd: python -m stages.second ${item.own}
      deps:
        - stages/own/${item.own}.py
      outs: ["data/second/${key}"]
"""


def test_a_source_file_that_an_entry_names_is_kept_as_it_is_written(toy: Path) -> None:
    (toy / "dvc.yaml").write_text(NAMED)
    assert code_deps(toy, "sync").returncode == 0
    text = (toy / "dvc.yaml").read_text()
    assert text.count("        - stages/own/${item.own}.py\n") == 1
    assert "        - stages/second.py\n" in text
    assert code_deps(toy, "check").returncode == 0


def test_a_file_that_an_entry_may_name_imports_only_what_its_stage_watches(toy: Path) -> None:
    (toy / "dvc.yaml").write_text(NAMED)
    code_deps(toy, "sync")
    own = toy / "stages/own"
    own.mkdir()
    (own / "__init__.py").touch()
    (own / "none.py").touch()
    (own / "mine.py").write_text("import json\nfrom stages import params\n")
    assert code_deps(toy, "check").returncode == 0
    (own / "mine.py").write_text("from stages.algorithms import unused\n")
    (toy / "stages/algorithms/unused.py").write_text("NUMBER = 1\n")
    result = code_deps(toy, "check")
    assert result.returncode == 2
    assert "stages/own/mine.py imports stages/algorithms/unused.py, which" in result.stderr
    (own / "mine.py").write_text("from stages.own import none\n")
    assert "imports stages/own/none.py" in code_deps(toy, "check").stderr
