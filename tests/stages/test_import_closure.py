"""What counts as read by an entry point, on a small package."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "stages/import_closure.py"
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
        "import importlib.util, json, pathlib; root = pathlib.Path();"
        f"spec = importlib.util.spec_from_file_location('closure', {str(SOURCE)!r});"
        "closure = importlib.util.module_from_spec(spec); spec.loader.exec_module(closure);"
        "graph = closure.import_graph(root);"
        "found = {e: closure.import_closure(graph, e, root) for e in closure.entries(root)};"
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
