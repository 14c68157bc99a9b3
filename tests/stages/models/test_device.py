"""The pinned instructions give the bits of portable_digests.json, on whatever processor this is.

That file was written on an AMD EPYC (Zen 4, with AVX-512). Another processor is emulated, in a few
minutes, by Debian's qemu-user (7.2), and gave the same file: `Haswell-noTSX` (Intel's, AVX2 alone),
`Skylake-Client` and `EPYC-Rome` (AMD's, AVX2 alone). That the emulation is true was seen on the
digests that a real Intel Emerald Rapids gave of 32 such operations: all the same. In tests/:

    qemu-x86_64 -cpu Haswell-noTSX $(which python) -m portable_digests | diff - \
        stages/models/portable_digests.json

Written anew, where libraries change, by `python -m portable_digests` to that file.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_checkpoints import compute

import stages
from stages.config import read_yaml
from stages.models import device

TESTS = Path(__file__).parents[2]
EXPECTED = Path(__file__).with_name("portable_digests.json")
INTEL = {"flags": "avx2 fma", "vendor_id": "GenuineIntel"}


def start(*command: str, **environment: str) -> subprocess.Popen[str]:
    """A process of its own: instructions are chosen when torch is loaded."""
    kept = {k: v for k, v in os.environ.items() if k not in stages.INSTRUCTIONS}
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    return subprocess.Popen(
        [sys.executable, *command],
        env=kept | {"POSTTRAIN_ROUNDING": "pinned", "PYTHONPATH": paths} | environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("number", [
    1, pytest.param(1 + (os.cpu_count() or 1), id="busy", marks=pytest.mark.weekly),
])  # fmt: skip
def test_digests_are_those_of_other_processors_on_an_idle_and_on_a_busy_machine(number):
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    side_by_side = [start("-m", "portable_digests") for _ in range(number)]
    for output, errors in [run.communicate() for run in side_by_side]:
        assert output, errors
        actual = json.loads(output)
        assert actual.keys() == expected.keys()
        assert not [name for name in expected if actual[name] != expected[name]]


PROCESSES = read_yaml(Path(__file__).with_name("device.yaml"))


@pytest.mark.slow
def test_a_process_computes_with_the_rounding_that_it_is_started_with(tmp_path):
    running = {}
    for name, row in PROCESSES.items():
        inherited = stages.INSTRUCTIONS if row.get("pinned") else {}
        environment = inherited | row.get("environment", {})
        running[name] = start("-c", row["code"], str(tmp_path), **environment)
    for name, process in running.items():
        output = "".join(process.communicate())
        assert PROCESSES[name]["says"] in output, f"{name}: {output}"
        assert (process.returncode != 0) == PROCESSES[name].get("fails", False)


def test_a_processor_without_avx2_and_another_mkl_are_refused(monkeypatch):
    monkeypatch.setattr(stages, "ROUNDING", "pinned")
    with monkeypatch.context() as patch:
        patch.setattr(stages, "flags", lambda: frozenset({"fpu", "sse4_2", "avx"}))
        with pytest.raises(ValueError, match=r"avx2, fma.*rounding: native"):
            device.pin_instructions()
    if not torch.backends.mkl.is_available():
        pytest.skip("torch without MKL")
    monkeypatch.setattr(device, "REST", b"\xc3")
    monkeypatch.setattr(stages, "processor", lambda: INTEL | {"vendor_id": "Other"})
    with pytest.raises(ValueError, match="MKL"):
        device.pin_instructions()
    monkeypatch.setattr(stages, "processor", lambda: INTEL)  # which needs no change
    device.pin_instructions()


@pytest.fixture
def _autocast_restored():
    yield
    torch.set_autocast_enabled("cpu", False)
    torch.set_autocast_cache_enabled(True)
    torch.clear_autocast_cache()


@pytest.mark.usefixtures("torch_settings", "_autocast_restored")
def test_setup_makes_torch_deterministic_on_one_thread_in_the_precision_of_its_params(caplog):
    place = device.setup(compute())
    assert place.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert torch.get_num_threads() == 1
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.is_autocast_enabled("cpu")
    assert not caplog.records
    device.setup(compute(dtype="bfloat16"))
    layer = torch.nn.Linear(4, 4, device=place)
    before = layer(torch.ones(1, 4, device=place))
    assert (before.dtype, layer.weight.dtype) == (torch.bfloat16, torch.float32)
    with torch.no_grad():
        layer.weight.mul_(-1.5)  # as an optimizer step does: no cast outlives it
    assert not torch.equal(layer(torch.ones(1, 4, device=place)), before)
    if place.type == "cpu":
        assert "compute.dtype: float32" in caplog.text  # it is slow by these instructions


def test_another_rounding_than_that_of_the_process_is_refused():
    with pytest.raises(ValueError, match="ROUNDING=native"):
        device.setup(compute(rounding="native"))
