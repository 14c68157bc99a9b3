"""Twenty steps of every loop give the bits that they had when curves.json was written.

Write it anew only where a change of the numbers is meant, and say in the commit why they changed:

    GOLDEN_WRITE=1 python -m pytest -n 0 tests/golden
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from golden.curves import LOOPS, NUM_STEPS

import stages

GOLDEN = Path(__file__).with_name("curves.json")


@pytest.fixture(scope="module")
def curves() -> dict:
    # A process of its own: the instruction set is chosen when torch is loaded.
    paths = os.pathsep.join(map(str, GOLDEN.parents[1:3]))
    pinned = stages.INSTRUCTIONS | {"POSTTRAIN_ROUNDING": "pinned", "PYTHONPATH": paths}
    command, environment = [sys.executable, "-m", "golden.curves"], os.environ | pinned
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    if "GOLDEN_WRITE" in os.environ:
        GOLDEN.write_text(result.stdout, encoding="utf-8")
    return json.loads(result.stdout)


@pytest.mark.parametrize("loop", LOOPS)
def test_curve(loop: str, curves: dict) -> None:
    expected = json.loads(GOLDEN.read_text(encoding="utf-8"))[loop]
    assert len(curves[loop]) == len(expected) == NUM_STEPS
    for number, (step, golden) in enumerate(zip(curves[loop], expected, strict=True)):
        names = {name for name in step.keys() | golden.keys() if step.get(name) != golden.get(name)}
        differing = {
            name: [float.fromhex(row.get(name, "nan")) for row in (golden, step)] for name in names
        }
        assert not differing, f"step {number}: (golden, curves) differ: {differing}"
