"""Twenty steps of every loop give the bits that they had when curves.json was written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from golden.curves import ENVIRONMENT, LOOPS

FOLDER = Path(__file__).parent


@pytest.fixture(scope="module")
def curves() -> dict:
    # A process of its own: the instruction set is chosen when torch is loaded.
    paths = os.pathsep.join([str(FOLDER.parents[1]), str(FOLDER.parent)])
    result = subprocess.run(
        [sys.executable, "-m", "golden.curves"],
        env=os.environ | ENVIRONMENT | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    if "GOLDEN_WRITE" in os.environ:
        (FOLDER / "curves.json").write_text(result.stdout, encoding="utf-8")
    return json.loads(result.stdout)


@pytest.mark.parametrize("loop", LOOPS)
def test_curve(loop: str, curves: dict) -> None:
    expected = json.loads((FOLDER / "curves.json").read_text(encoding="utf-8"))[loop]
    assert len(curves[loop]) == 20
    for number, (step, golden) in enumerate(zip(curves[loop], expected, strict=True)):
        differing = {
            name: (float.fromhex(golden.get(name, "nan")), float.fromhex(step.get(name, "nan")))
            for name in step.keys() | golden.keys()
            if step.get(name) != golden.get(name)
        }
        assert not differing, f"step {number}: (golden, curves) differ: {differing}"
