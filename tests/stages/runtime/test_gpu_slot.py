"""GPU slots: found without torch, one process each, freed by the kernel."""

import os
import select
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from stages.runtime import gpu_slot

ROOT = Path(__file__).parents[3]

HOLD = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from stages.runtime import gpu_slot
with gpu_slot.take() as names:
    print(*names, flush=True)
    time.sleep(300)
"""


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("", []),
        ("-1", []),
        ("0", ["0"]),
        ("2, 0", ["2", "0"]),
        ("1,-1,0", ["1"]),
        ("GPU-8f2c", ["GPU-8f2c"]),
    ],
)
def test_devices_are_what_cuda_would_see(monkeypatch, visible, expected):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_slot.devices() == expected


def test_devices_are_counted_in_proc_or_else_in_dev(monkeypatch, tmp_path):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    proc, dev = tmp_path / "proc", tmp_path / "dev"
    dev.mkdir()
    assert gpu_slot.devices(proc, dev) == []
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (dev / name).touch()
    assert gpu_slot.devices(proc, dev) == ["0", "1"]
    (proc / "0000:01:00.0").mkdir(parents=True)
    assert gpu_slot.devices(proc, dev) == ["0"]


def test_without_a_gpu_nothing_is_taken(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with gpu_slot.take() as names:
        assert names == []
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert list(tmp_path.iterdir()) == []


def test_two_holders_get_two_devices_and_a_killed_one_frees_its_own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "4\n"
    with gpu_slot.take() as names:
        assert names == ["7"]
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,7"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    waiting = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    assert not select.select([waiting.stdout], [], [], 1.0)[0]
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert waiting.stdout.readline() == "4\n"
    waiting.kill()
    waiting.communicate()


def test_several_are_taken_together_by_one_after_the_other(monkeypatch, tmp_path):
    """Two that each want both would wait for ever if each held one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    command = HOLD.replace("take()", "take(2)").replace("sleep(300)", "sleep(1)")
    holders = [
        subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [holder.communicate(timeout=60)[0] for holder in holders] == ["4 7\n"] * 2


def test_more_than_there_are_is_refused(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    with pytest.raises(ValueError, match=r"expected 3 GPUs, .* found 2"):
        gpu_slot.take(3).__enter__()


def test_a_gpu_is_shared_by_as_many_as_the_environment_says_after_all_others_are_taken(
    monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.setenv("POSTTRAIN_SEEDS_PER_GPU", "2")
    names = []
    with ExitStack() as stack:
        for _ in range(4):
            names += stack.enter_context(gpu_slot.take())
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
        assert names == ["4", "7", "4", "7"]
        fifth = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
        assert not select.select([fifth.stdout], [], [], 1.0)[0]
    assert fifth.stdout.readline() == "4\n"
    fifth.kill()
    fifth.communicate()
    monkeypatch.setenv("POSTTRAIN_SEEDS_PER_GPU", "0")
    with pytest.raises(ValueError, match="expected a whole number from 1 on"):
        gpu_slot.take().__enter__()


def test_the_emptiest_device_is_taken(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSTTRAIN_SEEDS_PER_GPU", "2")
    held = []
    for expected in ("4", "7", "4"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
        held.append(ExitStack())
        assert held[-1].enter_context(gpu_slot.take()) == [expected]
    for first in held[:2]:  # the third is still on device 4
        first.close()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    with gpu_slot.take() as names:
        assert names == ["7"]
    held[2].close()
