"""What counts as read by an entry point, and what is written of those of this repository."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from flows.plan import read_graph
from stages import trace_code

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = {
    "stages/__init__.py": "",
    "stages/first.py": (
        "import stages.params\nfrom stages.runtime import runs\n"
        'def main(): pass\nif __name__ == "__main__":\n    main()\n'
    ),
    "stages/second.py": (
        "from typing import TYPE_CHECKING\n"
        "from stages import params\n"
        "if TYPE_CHECKING:\n    from stages.algorithms import unused\n"
        "def main():\n    from stages.engines import lazy\n"
        'if __name__ == "__main__":\n    main()\n'
    ),
    "stages/params.py": "",
    "stages/plan.py": 'import stages.first\nif __name__ == "__main__":\n    pass\n',
    "stages/studies/__init__.py": "",
    "stages/studies/__main__.py": "",
    "stages/studies/probes.py": 'from stages import params\nif __name__ == "__main__":\n    pass\n',
    "stages/runtime/__init__.py": "",
    "stages/runtime/runs.py": "",
    "stages/engines/__init__.py": "DEFAULT = 1\n",
    "stages/engines/lazy.py": "from ..algorithms.losses.dpo import loss\n",
    "stages/algorithms/__init__.py": "",
    "stages/algorithms/unused.py": "",
    "stages/algorithms/losses/__init__.py": "",
    "stages/algorithms/losses/dpo.py": "loss = 1\nraise RuntimeError('imported, not read')\n",
    "stages/rewards/__init__.py": "",
    "stages/rewards/own/__init__.py": "",
    "stages/rewards/own/mine.py": "from stages.rewards.own import other\n",
    "stages/rewards/own/other.py": "import json\nfrom stages import params\n",
    "constraints.txt": "",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A package `stages`."""
    for name, text in SOURCES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def closures(root: Path) -> dict[str, list[str]]:
    """By entry, in a child process: the tests' own has imported the real `stages`."""
    program = (
        "import json, pathlib, sys; root = pathlib.Path();"
        f"sys.path.insert(0, {str(REPOSITORY)!r}); from stages import trace_code; del sys.path[0];"
        "ours = [name for name in sys.modules if name.partition('.')[0] == 'stages'];"
        "[sys.modules.pop(name) for name in ours]; graph = trace_code.build_import_graph(root);"
        "entries = trace_code.list_entries(root);"
        "found = {e: trace_code.list_import_closure(graph, e, root) for e in entries};"
        "print(json.dumps(found))"
    )
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return json.loads(result.stdout)


def test_the_closure_is_what_is_imported_and_no_more(root: Path) -> None:
    assert closures(root) == {
        # without the runtime
        "stages.first": ["stages/first.py", "stages/params.py"],
        # an import inside a function counts, one for types does not; packages count if not empty
        "stages.second": [
            "stages/algorithms/losses/dpo.py",
            "stages/engines/__init__.py",
            "stages/engines/lazy.py",
            "stages/params.py",
            "stages/second.py",
        ],
        "stages.studies.probes": ["stages/params.py", "stages/studies/probes.py"],
        "stages.rewards.own.mine": [
            "stages/params.py",
            "stages/rewards/own/mine.py",
            "stages/rewards/own/other.py",
        ],
        "stages.rewards.own.other": ["stages/params.py", "stages/rewards/own/other.py"],
    }


def test_an_import_that_is_added_is_found(root: Path) -> None:
    (root / "stages/params.py").write_text("import stages.algorithms.unused\n")
    assert "stages/algorithms/unused.py" in closures(root)["stages.first"]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trace_code, "ROOT", REPOSITORY)
    trace_code.main()
    return tmp_path / "data"


def test_each_stage_has_the_digests_of_the_files_that_it_reads(data: Path) -> None:
    read = json.loads((data / "code/train_dpo.json").read_text())
    needed = {"stages/train_dpo.py", "stages/config.py", "stages/rows.py", "constraints.txt"}
    assert needed <= set(read)
    assert [file for file in read if file.startswith("stages/algorithms/")]
    assert not [file for file in read if file.startswith(("stages/runtime/", "stages/train_rl"))]
    for file, digest in read.items():
        assert digest == hashlib.sha256((REPOSITORY / file).read_bytes()).hexdigest()


def test_a_template_is_among_the_files_of_the_module_that_bears_its_name(data: Path) -> None:
    files = json.loads((data / "code/compare.json").read_text())
    assert {"stages/report/page.html.j2", "stages/report/page.md.j2"} <= set(files)
    assert "stages/report/page.html.j2" not in json.loads((data / "code/sample.json").read_text())


def test_every_file_of_code_that_dvc_yaml_names_is_written(data: Path) -> None:
    written = {path.relative_to(data).as_posix() for path in data.rglob("*.json")}
    deps = {dep for node in read_graph(REPOSITORY).values() for dep in node.deps}
    named = {dep.removeprefix("data/") for dep in deps if dep.startswith("data/code/")}
    assert {"code/train_grpo.json", "code/compare.json"} <= named <= written


def test_so_is_each_file_that_a_row_may_name(data: Path) -> None:
    assert "stages/rewards/own/brevity.py" in (data / "own/brevity").read_text()
    calculator = (data / "own/calculator").read_text()
    assert "stages/environments/own/calculator.py" in calculator
    assert "stages/environments/arithmetic.py" in calculator
    assert "s/own/" not in (data / "code/train_grpo.json").read_text()


def test_neither_plan_nor_trace_code_has_one(data: Path) -> None:
    assert {"plan", "trace_code"}.isdisjoint(path.stem for path in data.glob("code/*.json"))
