"""Rollout batches that older weights have sampled (`Method.staleness`), and the sampler's process.

A sampler in a process of its own changes no bit, whatever takes how long. Resuming: `test_resume`.
"""

import hashlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import presets
import psutil
import pytest
import torch
from peft import LoraConfig as PeftConfig
from peft import inject_adapter_in_model
from process_groups import is_running, list_group
from tiny_checkpoints import BLOCKS, PAD, compute, load, plain_logprobs
from tiny_rollouts import (
    draws,
    even_share,
    make_models,
    make_sampler,
    make_settings,
    make_task,
    pay_all_but_p0,
    train,
    weights,
)
from toy_repo import wait_until
from transformers import LlamaConfig, LlamaForCausalLM
from vllm_installed import needs_vllm

from stages.loops import overlap, rl
from stages.loops.state import State
from stages.models import row_policy
from stages.models.policy import Policy
from stages.models.row_policy import LoraConfig


def digest(model):
    return hashlib.sha256(weights(model).numpy().tobytes()).hexdigest()


class WatchedSampler:
    """A sampler that notes its process, and which weights have sampled which prompts."""

    def __init__(self, model, notes):
        self.sampler, self.notes, self.calls, self.num_tokens = make_sampler(model), notes, [], 0

    def sample(self, prompts, seeds, **settings):
        with self.notes.open("a") as file:
            file.write(f"{os.getpid()}\n")
        self.calls.append((digest(self.sampler.model), list(map(list, prompts)), list(seeds)))
        groups = self.sampler.sample(prompts, seeds, **settings)
        self.num_tokens += sum(len(sample.token_ids) for group in groups for sample in group)
        return groups

    def read_processes(self):
        return [*map(int, self.notes.read_text().split())]


class Game:
    """A run of five steps, what it trains and its sampler."""

    def __init__(self, folder, staleness, *, state=None, has_adapter=False, **changes):
        method = presets.method(staleness=staleness, **{"kl": "none"} | changes)
        self.model = load("llama")
        if has_adapter:
            torch.manual_seed(0)
            config = PeftConfig(r=2, target_modules=["q_proj", "down_proj"])
            inject_adapter_in_model(config, self.model)
        self.sampler = WatchedSampler(self.model, folder / "processes")
        self.sampler.notes.write_text("")
        teacher = Policy(load("llama", 1)) if method.advantage == "teacher" else None
        self.steps = train(
            draws(8, 5, 4 * method.max_rounds, seed=0), method, self.model, reward=pay_all_but_p0,
            state=state, sizes={"num_steps": 5}, sampler=self.sampler, teacher=teacher,
        )  # fmt: skip

    def finish(self):
        """What the remaining steps log and write, and the weights after them."""
        steps = [(step.metrics, step.rows) for step in self.steps]
        return steps, digest(self.model)


@pytest.mark.parametrize("staleness", [0, 1, 2, 7])
def test_batch_n_is_drawn_with_the_weights_after_n_less_k_steps(staleness, tmp_path):
    game = Game(tmp_path, staleness)
    digests, steps = [digest(game.model)], []
    for step in game.steps:
        digests.append(digest(game.model))
        steps.append(step)
    assert len(set(digests)) == len(digests) == 6
    versions = [digests.index(used) for used, _, _ in game.sampler.calls]
    assert versions == [max(0, n - staleness) for n in range(5)]
    assert [{row.step for row in step.rows} for step in steps] == [{n} for n in range(5)]
    lags = [step.metrics.get("sampling/staleness") for step in steps]
    assert lags == [min(n, staleness) if staleness else None for n in range(5)]
    # Prompts and random streams are those of a run on policy, each batch with its own.
    seeds = [seeds for _, _, seeds in game.sampler.calls]
    assert len({seed for each in seeds for seed in each}) == 4 * 5
    on_policy = Game(tmp_path, 0)
    on_policy.finish()
    assert [call[1:] for call in game.sampler.calls] == [c[1:] for c in on_policy.sampler.calls]
    gaps = [step.metrics["sampling/logprob_gap"] for step in steps]
    assert gaps[0] < 1e-5
    assert min(gaps[1:]) > 0.01 or not staleness


@pytest.mark.parametrize(
    "changes", [{}, {"max_rounds": 2}, {"advantage": "greedy_baseline"}], ids=str
)
def test_every_sampled_token_is_counted_in_the_step_that_learns_from_it(changes, tmp_path):
    game = Game(tmp_path, 2, **changes)
    steps, _ = game.finish()
    for name in ("tokens/generated", "work/policy/sampled/outputs"):
        assert sum(metrics[name] for metrics, _ in steps) == game.sampler.num_tokens


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_sampler_with_other_weights_is_refused_in_the_first_step(staleness):
    method = presets.method(staleness=staleness, kl="none")
    with pytest.raises(ValueError, match="weights"):
        next(train([[0, 1, 2, 3]], method, sampler=make_sampler(load("llama", 1))))


@torch.no_grad()
def test_kl_in_the_reward_and_a_teacher_see_the_policy_that_learns_with_its_adapters():
    model = load("llama")
    disable = row_policy.add_adapters(model, LoraConfig(rank=2, alpha=16), 0)
    models = make_models(model, policy=Policy(model, compute(), PAD, disable))
    method = presets.method("rloo", staleness=1, kl_coef=0.5)
    settings = make_settings(method)
    trainer = rl.Trainer(models=models, task=make_task(8), settings=settings)
    experience = trainer.draw(1, range(4))
    batch = experience.rollouts
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1, generator=torch.Generator().manual_seed(0))
    now, metrics = trainer.measure_logprobs(batch, 1)
    for i, sample in enumerate(batch.samples):
        expected = plain_logprobs(model, batch.prompt(i).prompt_ids, sample.token_ids, 0.9)
        torch.testing.assert_close(now[i, : len(expected)], expected, rtol=1e-4, atol=1e-5)
    assert (now - batch.sampler_logprobs()).abs().max() > 0.1
    assert metrics["work/policy/read/outputs"] == int(batch.mask().sum())
    # Where the weights are those that sampled, and where nothing needs them, nothing is read.
    unread = (method, 0), (presets.method(staleness=1), 1), (presets.method("rloo"), 1)
    for other, index in unread:
        changed = replace(trainer, settings=replace(settings, method=other))
        same, metrics = changed.measure_logprobs(batch, index)
        assert torch.equal(same, batch.sampler_logprobs())
        assert metrics.keys() <= {"sampling/staleness"}
    trainer.estimate(experience, 1)
    penalties = 0.5 * ((now - experience.grids.ref_logprobs) * batch.mask()).sum(1)
    returns = (torch.tensor(even_share(batch.texts)) - penalties).view(-1, 4)
    expected = (returns - (returns.sum(1, keepdim=True) - returns) / 3).flatten()
    torch.testing.assert_close(experience.grids.advantages[:, 0], expected, rtol=1e-4, atol=1e-4)
    # The reading is counted beside that of the old log-probs before the update.
    trainer = replace(
        trainer, settings=replace(settings, method=presets.method("gspo", staleness=1))
    )
    with torch.enable_grad():
        optimizers = rl.make_optimizers(models, settings.config, State())
        learned = trainer.learn(optimizers, experience, 1, 10)
    before_update = sum(int(each.mask.sum()) for each in experience.batches())
    assert learned["work/policy/read/outputs"] == int(batch.mask().sum()) + before_update


# --- A sampler in a process of its own


@pytest.mark.parametrize(
    "changes",
    [
        {"staleness": 2, "max_rounds": 2},
        {"staleness": 1, "has_adapter": True},
        {"staleness": 1, "advantage": "teacher", "reward_coef": 0.5},
        pytest.param({"staleness": 1, "advantage": "greedy_baseline"}, marks=pytest.mark.slow),
        pytest.param({"staleness": 9}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_another_process_samples_and_every_bit_is_the_same(changes, tmp_path, monkeypatch):
    alone = Game(tmp_path, **changes)
    expected, processes = alone.finish(), alone.sampler.read_processes()
    assert set(processes) == {os.getpid()}
    monkeypatch.setenv(overlap.SAMPLERS, "1")
    beside = Game(tmp_path, **changes)
    assert beside.finish() == expected
    others = beside.sampler.read_processes()
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
    game = Game(tmp_path, staleness)
    game.finish()
    assert set(game.sampler.read_processes()) == {os.getpid()}


@pytest.mark.parametrize("resumed", ["0", "1"])
def test_a_run_whose_sampler_is_killed_resumes_to_the_bit(resumed, tmp_path, monkeypatch):
    expected, final = Game(tmp_path, 1).finish()
    monkeypatch.setenv(overlap.SAMPLERS, "1")
    state = State()
    game = Game(tmp_path, 1, state=state)
    for _ in range(2):
        next(game.steps)
    state.save(tmp_path / "states")
    os.kill(game.sampler.read_processes()[-1], signal.SIGKILL)
    with pytest.raises(RuntimeError, match="ended"):
        next(game.steps)
    monkeypatch.setenv(overlap.SAMPLERS, resumed)
    rest = Game(tmp_path, 1, state=State.load(tmp_path / "states")).finish()
    assert rest == (expected[2:], final)


ERRORS = [(ValueError("another prompt"), ValueError), (OSError("no folder"), RuntimeError)]


@pytest.mark.parametrize(("raised", "error"), ERRORS, ids=str)
def test_an_error_of_the_sampler_is_an_error_of_the_run(raised, error, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise raised

    monkeypatch.setenv(overlap.SAMPLERS, "1")
    game = Game(tmp_path, 1)
    game.sampler.sampler.sample = fail
    with pytest.raises(error, match=str(raised)):
        next(game.steps)
    process = overlap.fork_sampler(fail)  # where its trainer cannot be loaded
    try:
        process.request([0, [0], True])
        with pytest.raises(error, match=str(raised)):
            process.receive()
    finally:
        process.close()
    assert not psutil.pid_exists(process.pid)


def test_another_number_of_samplers_is_refused(monkeypatch):
    monkeypatch.setenv(overlap.SAMPLERS, "2")
    with pytest.raises(ValueError, match="POSTTRAIN_SAMPLERS"):
        overlap.read_samplers()


PROGRAM = """
import os, time
from stages.runtime.forked_process import ForkedProcess
process = ForkedProcess(lambda memory: lambda request: time.sleep(60))
process.request(None)
print(process.pid, flush=True)
os._exit(0)
"""


def test_the_process_ends_with_the_one_that_forked_it():
    program = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    wait_until(lambda: not is_running(int(program.stdout)), "its end", 20)


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


@needs_vllm
@pytest.mark.vllm
@pytest.mark.weekly
@pytest.mark.parametrize("rank", [pytest.param(0, id="whole"), pytest.param(4, id="adapters")])
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
    wait_until(lambda: list_group(beside.pid) == [], "its end", 20)
    rest = read_run(start_vllm(tmp_path / "beside", tmp_path / "policy", rank, "1"))
    assert len(rest) < 5, "it has begun again"
    assert lines == expected[: len(lines)]
    assert rest == expected[len(expected) - len(rest) :]
