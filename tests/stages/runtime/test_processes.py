"""Processes of a stage: how they end, work side by side, train together, share GPUs, and use the
machine."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from multiprocessing import connection
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import stage_inputs
import torch
from process_groups import is_running
from ruamel.yaml import YAML
from safetensors.torch import load_file
from seed_runs import for_each_seed
from stage_inputs import PRESETS, SEEDS
from toy_repo import wait_until

from stages.loops.work import Step
from stages.rows import DATA
from stages.runtime import gpu_slot, journal, ranks, runs, seeds, usage

ROOT = Path(__file__).parents[3]
ROWS = YAML(typ="safe").load(Path(__file__).with_name("cases.yaml"))
PROGRAM = """
import atexit, sys, threading, time
from stages.runtime import process
atexit.register(lambda: print("handler"))
class Rest:
    def __del__(self): print("taken apart")
rest = Rest()
def late():
    time.sleep(0.2)
    print("thread")
def main(*words):
    print(*words)
    threading.Thread(target=late).start()
    {end}
process.run(main)
"""


def run_program(text, *words, **options):
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    return subprocess.run([sys.executable, "-c", text, *words], env=environment, check=False,
                          capture_output=True, text=True, timeout=300, **options)  # fmt: skip


ENDS = {
    "return": ("print('the end', file=sys.stderr)", 0, "the end\n", False),
    "exit": ("sys.exit('why')", 1, "why\n", False),
    "request": ("raise process.Stopped(process.STATUS)", 143, "", False),
    "refusal": ("import pathlib, stages.config; stages.config.read_yaml(pathlib.Path('none.yaml'))",
                1, "none.yaml", False),
    "error": ("raise ValueError('why')", 1, "ValueError: why\n", True),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_a_process_ends_with_its_status_after_threads_and_handlers(end):
    """Nothing is taken apart and no traceback shown, but of an error that is not for users."""
    text, status, shown, is_ours = ENDS[end]
    ended = run_program(PROGRAM.format(end=text), "one", "two")
    assert ended.returncode == status
    assert ended.stdout.splitlines()[:3] == ["one two", "thread", "handler"]
    assert ("taken apart" in ended.stdout) == is_ours
    assert ("Traceback" in ended.stderr) == is_ours
    assert shown in ended.stderr


QUOTES = """
import logging, warnings
logging.basicConfig(level=logging.INFO, format="%(message)s")
text = "\\x1b[2J\\x1b]0;title\\x07\\r\\x9b2J\\u202e"
logging.info("a log of %s, an umlaut: \\u00e4", text)
warnings.warn(text)
error = ValueError("an error of " + text)
error.add_note("a note of " + text)
raise error
"""


def test_what_a_model_wrote_is_shown_and_never_obeyed():
    ended = run_program(PROGRAM.format(end=QUOTES.replace("\n", "\n    ")))
    assert ended.returncode == 1
    assert [item for item in ended.stderr if not item.isprintable() and item != "\n"] == []
    assert r"\x1b[2J\x1b]0;title\x07\r\x9b2J\u202e" in ended.stderr
    assert "\u00e4" in ended.stderr
    assert ended.stderr.count(r"\x1b[2J") >= 4


LOST = """
import sys
from stages.runtime import process
def main():
    print("begun", flush=True)
    sys.stdin.read()
    for stream in (sys.stdout, sys.stderr, sys.stdout):
        print("to nobody", file=stream, flush=True)
process.run(main)
"""


@pytest.mark.parametrize("open_output", [pty.openpty, os.pipe], ids=["terminal", "pipe"])
def test_output_that_nobody_can_read_any_more_is_no_error(open_output):
    reader, output = open_output()
    process = subprocess.Popen(
        [sys.executable, "-c", LOST], stdin=subprocess.PIPE, stdout=output, stderr=output
    )
    os.close(output)
    assert os.read(reader, 100).split() == [b"begun"]
    os.close(reader)
    process.stdin.close()
    assert process.wait(120) == 0


LISTENS = """
import os, signal
from stages.runtime import process
signal.signal(signal.SIGHUP, signal.{hangup})  # these tests may run under nohup
status = 7
with process.listening():
    try:
        os.kill(os.getpid(), signal.{number})
    except process.Stopped as request:
        status = request.code
        os.kill(os.getpid(), signal.{number})  # while it tidies up
        status += 1
os._exit(status)
"""


@pytest.mark.parametrize(("number", "hangup", "status"), [
    ("SIGTERM", "SIG_DFL", 144), ("SIGINT", "SIG_DFL", 144), ("SIGHUP", "SIG_DFL", 144),
    ("SIGHUP", "SIG_IGN", 7),
])  # fmt: skip
def test_a_request_to_end_is_raised_once_unless_it_is_ignored(number, hangup, status):
    assert run_program(LISTENS.format(number=number, hangup=hangup)).returncode == status


@pytest.mark.slow
@pytest.mark.parametrize("rest", ["", " && true"], ids=["exec", "fork"])
def test_a_stage_ends_when_its_dvc_is_killed(toy_repo, rest):
    """Both where the shell replaces itself by the command and where it stays in between."""
    text = (toy_repo.path / "dvc.yaml").read_text()
    (toy_repo.path / "dvc.yaml").write_text(
        text.replace("work.py train@${key}", f"work.py train@sft{rest}")
    )
    dvc = toy_repo.start("dvc", "repro", "train@sft", TOY_STOP="hang")
    stopped = toy_repo.path / "stopped"
    wait_until(lambda: stopped.exists() and stopped.read_text())
    os.kill(dvc.pid, signal.SIGKILL)
    dvc.wait()
    wait_until(lambda: not is_running(int(stopped.read_text())))


@pytest.mark.slow
def test_a_stage_by_hand_lives_on_without_its_parent(toy_repo):
    """Only dvc's end means that the run is over; a closed shell does not."""
    toy_repo.run("sh", "-c", "python work.py train@sft >/dev/null 2>&1 &")
    wait_until(lambda: list(toy_repo.path.glob("data/runs/train/sft/*/run.json")))


ORPHAN = """
import multiprocessing, os, time
from stages.runtime import process
parent = os.getpid()
def late():
    while os.getppid() == parent:
        time.sleep(0.01)
    process.die_with_parent()
    print("works for nobody", flush=True)
multiprocessing.get_context("fork").Process(target=late).start()
os._exit(0)
"""


def test_a_seed_that_begins_when_its_parent_has_ended_ends_too():
    assert run_program(ORPHAN).stdout == ""


# Seeds side by side


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with runs.start("train@toy") as started:
        yield started


def work(run):
    """Three steps, and something to return; seed 2 begins when the parent has a result."""
    while run.seed == 2 and not Path("result").exists():
        time.sleep(0.01)
    steps = (Step(index=i, metrics={"loss": 10.0 * run.seed + i}) for i in range(3))
    losses = [step.metrics["loss"] for step in run.track(steps, total=3)]
    return {"losses": losses, "process": os.getpid()}


def test_each_seed_has_a_process_and_a_journal_and_results_keep_their_order(run, monkeypatch):
    def wait(pipes):
        if len(pipes) < 3:
            Path("result").touch()
        return connection.wait(pipes)

    monkeypatch.setattr(seeds, "connection", SimpleNamespace(**vars(connection) | {"wait": wait}))
    results = for_each_seed(work, [2, 0, 1], run)
    assert list(results) == [2, 0, 1]
    for seed, result in results.items():
        losses = [10.0 * seed + i for i in range(3)]
        assert result["losses"] == losses
        steps = journal.read_rows(run.folder / f"seed-{seed}/journal.jsonl")
        assert [step.metrics["loss"] for step in steps] == losses
    assert len({os.getpid(), *(result["process"] for result in results.values())}) == 4


class Coded(Exception):
    """One that a pipe cannot bring: as it comes out, it is made without its code."""

    def __init__(self, *, code):
        super().__init__(f"code {code}")


def refuse():
    raise ValueError("expected a, found b: do c")


def fail_with_code():
    raise Coded(code=7)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("fail", "error", "mentions"), [
    (refuse, ValueError, "found b"), (fail_with_code, RuntimeError, "Coded: code 7"),
    (die, ValueError, "seed 1 .*-9$"),
], ids=["refusal", "coded", "killed"])  # fmt: skip
def test_the_failure_of_a_seed_is_named_and_asks_the_others_to_end(fail, error, mentions, run):
    def fail_second(run):
        if run.seed == 1:
            while not Path("ready").exists():
                time.sleep(0.01)
            fail()
        try:
            Path("ready").touch()
            signal.pause()
        finally:  # as a loop writes its checkpoint
            Path("tidied").touch()

    with pytest.raises(error, match=mentions) as caught:
        for_each_seed(fail_second, [0, 1], run)
    assert fail is die or "seed 1" in caught.value.__notes__[0]
    assert Path("tidied").exists()


ASKED = """
import os, signal
from seed_runs import for_each_seed
from stages.runtime import runs
parent, fork = os.getpid(), os.fork
def fork_and_ask():
    if (child := fork()) == 0:
        os.kill(os.getpid(), signal.SIGTERM)
    return child
os.fork = fork_and_ask
try:
    with runs.start("train@toy") as run:
        for_each_seed(lambda _: None, {numbers}, run, num_processes={number})
finally:
    print("this is the" + " parent" * (os.getpid() == parent), flush=True)
"""


@pytest.mark.parametrize(
    ("numbers", "number", "mentions"), [([0, 1], 1, "143"), ([0], 2, "rank 1")]
)
def test_a_fork_that_is_asked_to_end_at_once_does_nothing_of_its_parents(
    numbers, number, mentions, tmp_path
):
    ended = run_program(ASKED.format(numbers=numbers, number=number), cwd=tmp_path)
    assert ended.stdout == "this is the parent\n"
    assert ended.returncode == 1
    assert mentions in ended.stderr


# Ranks that train one model


def test_torchrun_has_to_start_the_number_of_processes_of_params_yaml(tmp_path, monkeypatch):
    for name, value in {"TORCHELASTIC_RUN_ID": "a", "RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("POSTTRAIN_MEETING", "")
    for number in (1, 3):
        with pytest.raises(ValueError, match=f"{number}.* 2"):
            ranks.joined(lambda rank: None, number, tmp_path).__enter__()
    with ranks.joined(lambda rank: None, 2, tmp_path) as rank:
        assert rank == 1
        assert os.environ["POSTTRAIN_MEETING"] == "env://"


FAILS = """
import sys, time
from pathlib import Path
from stages.runtime import ranks
def work(rank):
    if rank == int(sys.argv[1]):
        raise ValueError("no memory")
    time.sleep(600)
ranks.SECONDS_TO_RAISE = 0.1
with ranks.joined(work, 2, Path.cwd()) as rank:
    work(rank)
"""


@pytest.mark.parametrize("rank", ["0", "1"])
def test_an_error_of_one_rank_ends_all(rank, tmp_path):
    ended = run_program(FAILS, rank, cwd=tmp_path)
    assert ended.returncode == 1
    assert "ValueError: no memory" in ended.stderr


TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
POLICY = DATA / "policies/new"


def train_together(number, numbers, start=()):
    """Weights of each file that the stage wrote."""
    sections = {name: stage_inputs.SECTIONS[name] for name in ("compute", "lora", "dpo")}
    stage_inputs.configure(PRESETS["dpo"], numbers, **sections | {"num_processes": number})
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "TORCHELASTIC_RUN_ID")}
    words = stage_inputs.make_words("train_dpo", "pairs/old")
    ended = subprocess.run(
        [sys.executable, *start, "-m", "stages", "train_dpo", *words],
        env=environment | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    files = sorted(path for path in POLICY.rglob("*") if path.is_file())
    return {path: load_file(path) if path.suffix == ".safetensors" else {} for path in files}


@pytest.mark.slow
@pytest.mark.parametrize("start", [
    pytest.param((), id="forked"), pytest.param(TORCHRUN, id="torchrun", marks=pytest.mark.weekly),
])  # fmt: skip
def test_two_processes_write_what_one_writes(start, stage_world):
    alone, together = train_together(1, SEEDS), train_together(2, SEEDS, start)
    assert together.keys() == alone.keys()
    assert sum(map(bool, alone.values())) == 2 * len(SEEDS), "a policy and a checkpoint each"
    pairs = [(together[path][name], value) for path in alone for name, value in alone[path].items()]
    assert all(torch.allclose(*pair, atol=1e-4) for pair in pairs)
    assert not all(torch.equal(*pair) for pair in pairs), "nobody trained beside the first"
    assert {path.name for path in Path(".pipe").rglob("*") if path.is_file()} <= {"train@new.lock"}


# GPUs


@pytest.mark.parametrize(("visible", "expected"), ROWS["devices"].items())
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


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """Shows these GPUs to this process."""
    monkeypatch.chdir(tmp_path)
    return lambda names="4,7": monkeypatch.setenv("CUDA_VISIBLE_DEVICES", names)


HOLD = """
import sys
from stages.runtime import gpu_slot
with gpu_slot.take(int(sys.argv[1])) as names:
    print(*names, flush=True)
    sys.stdin.read(1)
"""


def hold(number=1):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", HOLD, str(number)], env=environment, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip


def test_without_a_gpu_nothing_is_taken_and_more_than_there_are_is_refused(gpus, tmp_path):
    gpus("")
    with gpu_slot.take() as names:
        assert (names, os.environ["CUDA_VISIBLE_DEVICES"]) == ([], "")
    assert list(tmp_path.iterdir()) == []
    gpus()
    with pytest.raises(ValueError, match=r"3 GPUs.* 2"):
        gpu_slot.take(3).__enter__()


def test_a_killed_holder_frees_its_gpu(gpus):
    gpus()
    holder = hold()
    assert holder.stdout.readline() == "4\n"
    with gpu_slot.take() as names:
        assert (names, os.environ["CUDA_VISIBLE_DEVICES"]) == (["7"], "7")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,7"
    gpus("4")
    waiting = hold()
    assert not select.select([waiting.stdout], [], [], 1.0)[0]
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert waiting.stdout.readline() == "4\n"
    waiting.kill()
    waiting.communicate()


def test_two_that_want_all_gpus_have_them_one_after_the_other(gpus):
    """Two that each held one would wait for ever."""
    gpus()
    holders = [hold(2) for _ in range(2)]
    ready = select.select([holder.stdout for holder in holders], [], [], 120)[0]
    assert len(ready) == 1
    holders.sort(key=lambda holder: holder.stdout not in ready)  # either may be first
    assert [holder.communicate("x", timeout=120)[0] for holder in holders] == ["4 7\n"] * 2


def test_a_gpu_is_shared_once_all_are_taken_and_the_emptiest_is_next(gpus, monkeypatch):
    monkeypatch.setenv(gpu_slot.SEEDS_PER_GPU, "2")
    held = []
    for expected in ("4", "7", "4", "7"):
        gpus()
        held.append(ExitStack())
        assert held[-1].enter_context(gpu_slot.take()) == [expected]
    for stack in (held[0], held[1], held[3]):  # 7 is free, and 4 has one
        stack.close()
    gpus()
    with gpu_slot.take() as names:
        assert names == ["7"]
    held[2].close()


@pytest.mark.parametrize("value", ["0", "-1", "many", ""])
def test_a_number_of_seeds_per_gpu_that_is_none_is_refused(value, gpus, monkeypatch):
    gpus()
    monkeypatch.setenv(gpu_slot.SEEDS_PER_GPU, value)
    with pytest.raises(ValueError, match=gpu_slot.SEEDS_PER_GPU):
        gpu_slot.take().__enter__()


# Use of the machine


def test_use_of_the_machine_counts_children_and_a_short_run_leaves_no_file(tmp_path, monkeypatch):
    path = tmp_path / "usage.jsonl"
    with usage.sampling(path):
        pass
    assert list(tmp_path.iterdir()) == []
    before = usage.measure_cpu_seconds()
    burn = "import time\nwhile time.process_time() < 0.4: pass\nprint(1, flush=True)\ninput()"
    child = subprocess.Popen(
        [sys.executable, "-c", burn], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    child.stdout.readline()
    assert usage.measure_cpu_seconds() - before >= 0.3
    monkeypatch.setattr(usage, "SECONDS", 0.05)
    with usage.sampling(path):
        wait_until(lambda: path.exists() and path.read_text().count("\n") >= 3)
    child.communicate("\n")
    assert usage.measure_cpu_seconds() - before >= 0.3, "of those that have ended, too"
    rows = list(journal.read_rows(path))
    assert [row.index for row in rows] == list(range(len(rows)))
    ours = psutil.Process().memory_info().rss / usage.MEGABYTE
    assert rows[0].metrics["memory_megabytes"] > max(50, 0.5 * ours)
