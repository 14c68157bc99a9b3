"""A sampler in a process of its own changes no bit, whatever takes how long."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import presets
import psutil
import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from tiny_checkpoints import BLOCKS, load
from tiny_rollouts import OPTIM, draws, even_share, make_models, make_sampler, make_task, weights
from transformers import LlamaConfig, LlamaForCausalLM
from vllm_installed import needs_vllm

from stages.loops import overlap, rl, rollouts
from stages.loops.method import GroupRlConfig, Settings
from stages.loops.state import State
from stages.models.policy import Policy

NUM_STEPS = 4
SIZES = {"num_steps": NUM_STEPS, "prompts_per_step": 4, "group_size": 4, "temperature": 0.9,
         "max_new_tokens": 6, "num_checkpoints": 0, "optim": OPTIM}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_answer_ends(monkeypatch):
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 100)


class NotingSampler:
    """A sampler that notes its process."""

    def __init__(self, model, path):
        self.sampler, self.path = make_sampler(model), path

    def sample(self, *prompts, **settings):
        with self.path.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return self.sampler.sample(*prompts, **settings)

    def read_processes(self):
        return [*map(int, self.path.read_text().split())]


def start(tmp_path, staleness=1, state=None, with_adapter=False, **changes):
    """The steps, the model that they train, and its sampler."""

    def reward(batch):
        shares = enumerate(even_share(batch.texts))
        return [share * (batch.prompt(i).id != "p0") for i, share in shares]

    method = presets.method(staleness=staleness, **changes)
    settings = Settings(config=GroupRlConfig(**SIZES), method=method, seed=0)
    model = load("llama")
    if with_adapter:
        torch.manual_seed(0)
        inject_adapter_in_model(LoraConfig(r=2, target_modules=["q_proj", "down_proj"]), model)
    sampler = NotingSampler(model, tmp_path / "processes")
    schedule = draws(8, NUM_STEPS, 4 * method.max_rounds, seed=0)
    teacher = Policy(load("llama", 1)) if method.advantage == "teacher" else None
    models = make_models(model, sampler=sampler, teacher=teacher)
    steps = rl.train(models, make_task(8, reward), schedule, settings, state)
    return steps, model, sampler


def take(tmp_path, **changes):
    """Everything that a run leaves, and the processes that sampled."""
    steps, model, sampler = start(tmp_path, **changes)
    done = [(step.metrics, step.rows) for step in steps]
    return done, weights(model), sampler.read_processes()


@pytest.mark.parametrize(
    "changes",
    [
        {"staleness": 2, "max_rounds": 2},
        pytest.param({"staleness": 9}, marks=pytest.mark.slow),
        {"staleness": 1, "with_adapter": True},
        pytest.param({"staleness": 1, "advantage": "greedy_baseline"}, marks=pytest.mark.slow),
        {"staleness": 1, "advantage": "teacher", "reward_coef": 0.5},
    ],
    ids=str,
)
def test_another_process_samples_and_every_bit_is_the_same(changes, tmp_path, monkeypatch):
    expected, final, processes = take(tmp_path, **changes)
    assert set(processes) == {os.getpid()}
    (tmp_path / "processes").unlink()
    monkeypatch.setenv(overlap.SAMPLERS, "1")
    actual, there, others = take(tmp_path, **changes)
    assert actual == expected
    assert torch.equal(there, final)
    assert len(others) == len(processes)
    (other,) = set(others)
    assert other != os.getpid()
    assert not psutil.pid_exists(other)


@pytest.mark.parametrize(("staleness", "threads"), [(0, 1), (1, 2)])
def test_on_policy_or_with_threads_of_torch_the_trainer_samples(
    staleness, threads, tmp_path, monkeypatch
):
    monkeypatch.setenv(overlap.SAMPLERS, "1")
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert set(take(tmp_path, staleness=staleness)[2]) == {os.getpid()}


@pytest.mark.parametrize("resumed", ["0", "1"])
def test_a_run_whose_sampler_is_killed_resumes_to_the_bit(resumed, tmp_path, monkeypatch):
    expected, final, _ = take(tmp_path, staleness=1)
    monkeypatch.setenv(overlap.SAMPLERS, "1")
    state = State()
    steps, _, sampler = start(tmp_path, staleness=1, state=state)
    for _ in range(2):
        next(steps)
    state.save(tmp_path / "states")
    os.kill(sampler.read_processes()[-1], signal.SIGKILL)
    with pytest.raises(RuntimeError, match="ended"):
        next(steps)
    monkeypatch.setenv(overlap.SAMPLERS, resumed)
    rest, there, _ = take(tmp_path, staleness=1, state=State.load(tmp_path / "states"))
    assert rest == expected[2:]
    assert torch.equal(there, final)


@pytest.mark.parametrize(
    ("raised", "error", "word"),
    [(ValueError("another prompt"), ValueError, "another prompt"),
     (OSError("no folder"), RuntimeError, "OSError")],
)  # fmt: skip
def test_an_error_of_the_sampler_is_one_of_the_run(raised, error, word, tmp_path, monkeypatch):
    monkeypatch.setenv(overlap.SAMPLERS, "1")
    steps, _, sampler = start(tmp_path)

    def refuse(*_, **__):
        raise raised

    sampler.sampler.sample = refuse
    with pytest.raises(error, match=word):
        next(steps)


def test_another_number_of_samplers_is_refused(monkeypatch):
    monkeypatch.setenv(overlap.SAMPLERS, "2")
    with pytest.raises(ValueError, match="POSTTRAIN_SAMPLERS"):
        overlap.read_samplers()


@pytest.mark.parametrize(
    ("error", "expected"), [(ValueError, ValueError), (MemoryError, RuntimeError)]
)
def test_what_cannot_be_loaded_there_is_an_error_of_the_first_answer(error, expected):
    def load():
        raise error("no memory for it")

    process = overlap.fork_sampler(load)
    try:
        process.request([0, [0], True])
        with pytest.raises(expected, match="no memory for it"):
            process.receive()
    finally:
        process.close()
    assert not psutil.pid_exists(process.pid)


PROGRAM = """
import os, time
from stages.runtime.forked_process import ForkedProcess
process = ForkedProcess(lambda memory: lambda request: time.sleep(60))
process.request(None)
print(process.pid, flush=True)
os._exit(0)
"""


def is_running(pid):
    """Whether it has not ended; one that nobody waited for has."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def test_the_process_ends_with_the_one_that_forked_it(tmp_path):
    program = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    end = time.monotonic() + 20
    while psutil.pid_exists(int(program.stdout)) and time.monotonic() < end:
        if psutil.Process(int(program.stdout)).status() == psutil.STATUS_ZOMBIE:
            break
        time.sleep(0.05)
    assert time.monotonic() < end


def start_vllm(folder, checkpoint, rank, samplers):
    """A run of `vllm_beside`, in a process group of its own."""
    folder.mkdir(exist_ok=True)
    tests = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, tests / "vllm_beside.py", folder, checkpoint, str(rank)],
        stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=tests.parent,
        env=os.environ | {overlap.SAMPLERS: samplers, "PYTHONPATH": f"{tests.parent}:{tests}"},
    )  # fmt: skip


def read_run(process):
    """The lines that it wrote; those of libraries are none of them."""
    lines = [line for line in process.communicate()[0].splitlines() if line[:1] in '["']
    assert process.returncode == 0
    return lines


def list_group(group):
    """The processes of a group that run."""
    pids = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == group and is_running(process.pid):
                pids.append(process.pid)
    return pids


@needs_vllm
@pytest.mark.vllm
@pytest.mark.parametrize("rank", [0, 4], ids=["whole", "adapters"])
def test_vllm_in_a_process_of_its_own_changes_no_bit_also_after_a_kill(rank, tmp_path):
    """Prompts share more than a block of vLLM's cache."""
    torch.manual_seed(0)
    shape = BLOCKS | {"hidden_size": 128, "num_attention_heads": 4, "initializer_range": 0.1}
    config = LlamaConfig(**shape | {"vocab_size": 101, "max_position_embeddings": 192})
    LlamaForCausalLM(config).save_pretrained(tmp_path / "policy")
    expected = read_run(start_vllm(tmp_path / "alone", tmp_path / "policy", rank, "0"))
    assert len(expected) == 6
    beside = start_vllm(tmp_path / "beside", tmp_path / "policy", rank, "1")
    lines: list[str] = []
    while len(lines) < 2:
        line = beside.stdout.readline()
        assert line, "it has ended"
        lines += [line.strip()] if line.startswith("[") else []
    group = list_group(beside.pid)
    assert len(group) == 2
    # vLLM is in the process that samples alone.
    has_vllm = ["vllm/_C" in Path(f"/proc/{pid}/maps").read_text() for pid in sorted(group)]
    assert has_vllm == [False, True]
    os.kill(beside.pid, signal.SIGKILL)
    beside.communicate()
    end = time.monotonic() + 20
    while list_group(beside.pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert list_group(beside.pid) == []
    rest = read_run(start_vllm(tmp_path / "beside", tmp_path / "policy", rank, "1"))
    assert len(rest) < 5, "it has begun again"
    assert lines == expected[: len(lines)]
    assert rest == expected[len(expected) - len(rest) :]
