"""PPO and GRPO as stages, on a random checkpoint and a reward of the length of answers."""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import presets
import psutil
import pytest
import stage_inputs
import torch
from safetensors.torch import load_file, save_file
from stage_inputs import MODEL, SEED
from tiny_checkpoints import BLOCKS, COMPUTE, CPU, PAD, compute, load
from tiny_rollouts import OPTIM, make_prompts
from transformers import LlamaConfig, LlamaForCausalLM
from vllm_installed import needs_vllm

from stages import rows, train_rl
from stages.engines import loading
from stages.loops import overlap, rollouts
from stages.loops.rollouts import Rollout
from stages.models import scalar_head
from stages.records import lines
from stages.records.problems import Demonstration
from stages.rewards import reward_file
from stages.rewards.reward_file import RewardFile
from stages.rows import DATA, PROMPTS

POLICY = DATA / "policies/new"
OWN = POLICY / f"training/{SEED}"
SIZES = {
    "num_steps": 3,
    "prompts_per_step": 4,
    "temperature": 1.0,
    "max_new_tokens": 6,
    "num_checkpoints": 1,
    "optim": OPTIM,
}
SECTIONS = {
    "grpo": SIZES | {"group_size": 4},
    "ppo": SIZES | {"samples_per_prompt": 2, "value_optim": OPTIM},
}
PRESETS = {
    "grpo": presets.CONTENT["grpo_deepseekmath"],
    "ppo": presets.CONTENT["ppo_instructgpt"] | {"num_minibatches": 2},
}


def write_reward(kind, model=None):
    """A reward of this kind of component; its model scores completions at random."""
    part = {"value": kind, "weight": 1.0, "cap": None, "normalise": {"kind": "none"}}
    content = RewardFile(
        kind="rule" if model is None else "preference",
        model=model,
        composition={"components": {"part": part}, "combine": {"kind": "sum"}},
        aggregate={"kind": "mean"},
        own=None,
        own_digest=None,
    )
    folder = DATA / "rewards/old"
    folder.mkdir(parents=True, exist_ok=True)
    reward_file.write_reward(folder, content)
    if model is not None:
        scorer = scalar_head.init_scalar_model(rows.locate_policy("sft", SEED), PAD, compute(), CPU)
        torch.nn.init.normal_(scorer.score.weight, generator=torch.Generator().manual_seed(0))
        scorer.save_pretrained(reward_file.model_path(folder, SEED))


def run(
    method, preset=None, seeds=(SEED,), engine="transformers", rank=0, on="rewards/old", **sizes
):
    content = PRESETS[method] if preset is None else preset
    stage_inputs.configure(
        content,
        seeds,
        compute=COMPUTE,
        model=MODEL,
        lora={"rank": rank, "alpha": 16},
        engine=engine,
        **{method: SECTIONS[method] | sizes},
    )
    words = ("--train", method, "--preset", "mine", "--from", "sft", "--on", on)
    train_rl.main(f"train_{method}", "new", *words)
    return stage_inputs.metrics(OWN)


def steps():
    text = (OWN / "history.jsonl").read_text(encoding="utf-8")
    return [json.loads(line)["metrics"] for line in text.splitlines()]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, torch_settings):
    """A pipeline up to the SFT policy and a reward."""
    monkeypatch.chdir(tmp_path)
    # Nothing in this game rewards ending an answer.
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 100)
    stage_inputs.write_policy()
    lines.write_lines(PROMPTS / "train.jsonl", make_prompts(8))


LENGTH = {"kind": "length_penalty", "per": 4}
SCORE = {"kind": "scorer"}


@pytest.mark.parametrize("method", ["grpo", "ppo"])
def test_a_policy_is_written_with_its_checkpoint_its_rollouts_and_its_numbers(method):
    write_reward(SCORE, "reward")
    metrics = run(method)
    history = steps()
    assert len(history) == metrics["steps"] == 3
    drawn = list(lines.read_lines(OWN / "rollouts.jsonl", Rollout))
    assert len(drawn) == 3 * 4 * (4 if method == "grpo" else 2)
    assert metrics["generated_tokens"] == sum(len(row.completion_ids) for row in drawn)
    assert metrics["trained_tokens"] == sum(step["tokens/trained"] for step in history)
    first = sum(row.reward for row in drawn if row.step == 0) / (len(drawn) / 3)
    assert history[0]["reward/mean"] == pytest.approx(first, abs=1e-5)
    expected = {"policy", "reference", "scorer"} | ({"value"} if method == "ppo" else set())
    assert set(metrics["work"]) == expected
    (checkpoint,) = (OWN / "checkpoints").iterdir()
    # of 3 steps and 1 checkpoint: after the second
    assert checkpoint.name == "step-0002"
    weights = [load_file(path / "model.safetensors") for path in
               (rows.locate_policy("sft", SEED), checkpoint, POLICY / f"model/{SEED}")]  # fmt: skip
    name = "model.layers.0.mlp.up_proj.weight"
    assert len({tuple(weight[name].flatten().tolist()) for weight in weights}) == 3


def test_a_rule_needs_no_model_and_a_budget_of_tokens_ends_the_training():
    write_reward(LENGTH)
    fixed = run("grpo")
    assert "scorer" not in fixed["work"]
    spent = [step["tokens/generated"] + step["tokens/trained"] for step in steps()]
    budget = int(sum(spent[:2]))
    result = run("grpo", PRESETS["grpo"] | {"token_budget": budget})
    assert result["steps"] == 2
    assert not (OWN / "checkpoints").exists(), "nobody knows where the middle is"


@pytest.mark.parametrize(("reward", "expected"), [("answer", True), ("length_penalty", False)])
def test_rewards_that_are_always_equal_are_warned_of(reward, expected, caplog):
    """No completion of this random policy is right, while their lengths differ."""
    write_reward({"kind": "answer"} if reward == "answer" else LENGTH)
    run("grpo")
    assert ("all advantages of all 3 steps were 0" in caplog.text) == expected
    assert [step["advantage/zero_share"] == 1 for step in steps()] == [expected] * 3


def test_each_seed_has_its_own_policy():
    write_reward(LENGTH)
    alone, history = run("grpo"), steps()
    stage_inputs.write_policy(seed=4)
    assert run("grpo", seeds=(SEED, 4)) == alone
    assert steps() == history
    other = (POLICY / "training/4/history.jsonl").read_text(encoding="utf-8")
    assert other != (OWN / "history.jsonl").read_text(encoding="utf-8")


def test_a_reward_that_the_preset_makes_nothing_of_is_refused_before_any_work():
    write_reward(LENGTH)
    with pytest.raises(ValueError, match=r"value_init is reward_model: expected a reward whose"):
        run("ppo")
    with pytest.raises(ValueError, match="expected a reward with a process model"):
        run("grpo", presets.CONTENT["grpo_process"])
    with pytest.raises(ValueError, match="num_minibatches 2 is more than prompts_per_step 1"):
        run("ppo", prompts_per_step=1)
    assert not POLICY.exists()


@pytest.mark.parametrize("rank", [0, 4], ids=["whole", "adapters"])
def test_a_policy_is_distilled_from_another_or_from_itself_with_solutions(rank):
    stage_inputs.write_policy("teacher")
    path = rows.locate_policy("teacher", SEED)
    load("llama", 1).save_pretrained(path)
    preset = presets.CONTENT["opd"]
    metrics = run("grpo", preset, rank=rank, on="policies/teacher", group_size=1)
    assert set(metrics["work"]) == {"policy", "teacher"}
    other = [step["kl/teacher"] for step in steps()]
    run("grpo", preset | {"kl": "loss"}, rank=rank, on="policies/teacher", group_size=1)
    assert steps()[0]["kl/teacher"] == other[0] > 0.1
    prompts = make_prompts(8)
    shown = [
        Demonstration(id=row.id, task="solve", prompt="", prompt_ids=row.prompt_ids,
                      completion="#### 4", completion_ids=[3, 1]) for row in prompts[:6]
    ]  # fmt: skip
    lines.write_lines(PROMPTS / "train.jsonl", [replace(row, answer="4") for row in prompts])
    lines.write_lines(DATA / "demonstrations/demonstrations.jsonl", shown)
    metrics = run("grpo", presets.CONTENT["self_distillation"], rank=rank, on="demonstrations")
    assert set(metrics["work"]) == {"policy", "teacher"}
    drawn = list(lines.read_lines(OWN / "rollouts.jsonl", Rollout))
    assert {row.id for row in drawn} <= {row.id for row in shown}


def test_a_teacher_with_another_vocabulary_is_refused_with_both_named():
    stage_inputs.write_policy("teacher")
    file = rows.locate_policy("teacher", SEED) / "tokenizer.json"
    file.write_text(file.read_text(encoding="utf-8").replace('"w5"', '"five"'), encoding="utf-8")
    with pytest.raises(ValueError, match=r"student sft and teacher teacher.*five"):
        run("grpo", presets.CONTENT["opd"], on="policies/teacher")
    assert not POLICY.exists()


@pytest.mark.parametrize(("method", "expected"), [("ppo", 2), ("grpo", 1)])
def test_memory_is_left_for_the_moments_of_each_model_that_is_trained(
    method, expected, monkeypatch, tmp_path
):
    write_reward(SCORE, "reward")
    path, real = tmp_path / "num_trained", loading.make_policy_sampler

    def watched(engine, num_trained, *models, **settings):
        path.write_text(str(num_trained))
        return real(engine, num_trained, *models, **settings)

    monkeypatch.setattr(loading, "make_policy_sampler", watched)
    run(method, num_steps=1)
    assert path.read_text() == str(expected)


@pytest.mark.parametrize("value_init", ["reward_model", "policy"])
def test_the_value_model_starts_as_the_first_member_of_an_ensemble_or_under_a_head_of_zeros(
    value_init, monkeypatch, tmp_path
):
    write_reward(SCORE, "reward")
    path = reward_file.model_path(DATA / "rewards/old", SEED)
    shutil.rmtree(path)
    for member in range(2):
        scorer = scalar_head.init_scalar_model(
            rows.locate_policy("sft", SEED), PAD, compute(), CPU, head_seed=member
        )
        scorer.save_pretrained(path / str(member))
    saved = tmp_path / "head.safetensors"

    def capture(models, *_):
        save_file({"head": models.value.model.score.weight.detach()}, saved)
        raise ValueError("captured")

    monkeypatch.setattr(train_rl.rl, "train", capture)
    with pytest.raises(ValueError, match="captured"):
        run("ppo", PRESETS["ppo"] | {"value_init": value_init})
    first = load_file(path / "0/model.safetensors")["score.weight"]
    assert first.any()
    expected = first if value_init == "reward_model" else torch.zeros_like(first)
    assert torch.equal(load_file(saved)["head"], expected)


@needs_vllm
@pytest.mark.vllm
@pytest.mark.parametrize("rank", [0, 4], ids=["whole", "adapters"])
@pytest.mark.parametrize("method", ["grpo", "ppo"])
def test_vllm_draws_from_the_policy_as_it_learns(method, rank):
    # vLLM computes no attention of narrower heads on a CPU.
    shape = BLOCKS | {"hidden_size": 128, "num_attention_heads": 4, "initializer_range": 0.1}
    LlamaForCausalLM(LlamaConfig(**shape)).save_pretrained(rows.locate_policy("sft", SEED))
    write_reward(SCORE, "reward")
    gaps, written = {}, {}
    for engine in ("transformers", "vllm", "vllm"):
        run(method, engine=engine, rank=rank)
        gaps[engine] = [step["sampling/logprob_gap"] for step in steps()]
        weights = load_file(POLICY / f"model/{SEED}/model.safetensors")
        result = (OWN / "rollouts.jsonl").read_bytes(), weights
        before = written.setdefault(engine, result)
        # Twice the same seed: the same bits.
        assert before[0] == result[0]
        assert all(torch.equal(before[1][name], weights[name]) for name in weights)
    assert len(gaps["vllm"]) == len(gaps["transformers"]) == 3
    assert max(gaps["vllm"] + gaps["transformers"]) < 2e-5
    start = load_file(rows.locate_policy("sft", SEED) / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    # As far as a step of this rate goes: a stale copy would be noticed.
    assert (written["vllm"][1][name] - start[name]).abs().max() > 1e-3


PROGRAM = """
import os, sys
from stages import train_rl
from stages.engines import loading
from stages.loops import rollout_rewards, rollouts
from stages.runtime import process

def make(*words, **settings):
    sampler = make_policy_sampler(*words, **settings)
    sample = sampler.sample
    def note_process(*prompts, **how):
        with open("processes", "a") as file:
            file.write(f"{os.getpid()} {os.environ['CUDA_VISIBLE_DEVICES']}\\n")
        return sample(*prompts, **how)
    with open("loaded", "a") as file:
        file.write(f"{os.getpid()} {os.environ['CUDA_VISIBLE_DEVICES']}\\n")
    sampler.sample = note_process
    return sampler

def note(module, name):
    load = getattr(module, name)
    def note_process(*words):
        with open("models", "a") as file:
            file.write(f"{name} {os.environ['CUDA_VISIBLE_DEVICES']}\\n")
        return load(*words)
    setattr(module, name, note_process)

note(train_rl, "load_value_model")
note(rollout_rewards, "load_reward")
make_policy_sampler, loading.make_policy_sampler = loading.make_policy_sampler, make
rollouts.MAX_TRUNCATED_STEPS = 100
process.run(train_rl.main)
"""


def start_with_gpus(names, samplers, method="grpo"):
    """The stage in a process group of its own, on GPUs that are only names: torch sees none."""
    root = Path(__file__).parents[2]
    environment = {
        "CUDA_VISIBLE_DEVICES": names, overlap.SAMPLERS: samplers, "PYTHONPATH": str(root),
        "POSTTRAIN_CHECKPOINT_SECONDS": "0",
    }  # fmt: skip
    words = ["--train", method, "--preset", "mine", "--from", "sft", "--on", "rewards/old"]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, f"train_{method}", "new", *words],
        env=os.environ | environment, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def run_with_gpus(names, samplers, method="grpo"):
    """Outputs of the stage, and the processes that loaded and that sampled, with their GPUs."""
    process = start_with_gpus(names, samplers, method)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert list_group(process.pid) == []
    files = [OWN / "history.jsonl", OWN / "rollouts.jsonl", *POLICY.glob("model/*/*.safetensors")]
    processes = []
    for name in ("loaded", "processes"):
        path = Path(name)
        lines_read = [tuple(line.split()) for line in path.read_text().splitlines()]
        processes.append(sorted({(int(pid) == process.pid, gpu) for pid, gpu in lines_read}))
        path.unlink()
    return [path.read_bytes() for path in files], *processes, errors


def list_group(group):
    """The processes of a group that run."""
    running = []
    for process in psutil.process_iter(["status"]):
        with suppress(ProcessLookupError):
            is_zombie = process.info["status"] == psutil.STATUS_ZOMBIE
            if os.getpgid(process.pid) == group and not is_zombie:
                running.append(process.pid)
    return running


def prepare_overlap(engine, method="grpo", rank=0, **sizes):
    """Inputs of a stage with a preset of `staleness` 1."""
    shape = BLOCKS | {"hidden_size": 128, "num_attention_heads": 4, "initializer_range": 0.1}
    LlamaForCausalLM(LlamaConfig(**shape)).save_pretrained(rows.locate_policy("sft", SEED))
    write_reward(LENGTH)
    changes = {"staleness": 1} | ({"value_init": "policy"} if method == "ppo" else {})
    stage_inputs.configure(
        PRESETS[method] | changes, compute=COMPUTE, model=MODEL, lora={"rank": rank, "alpha": 16},
        engine=engine, **{method: SECTIONS[method] | sizes},
    )  # fmt: skip


ENGINES = [
    ("transformers", "grpo", 0),
    pytest.param("transformers", "ppo", 4, marks=pytest.mark.slow),
    pytest.param("vllm", "grpo", 4, marks=[needs_vllm, pytest.mark.vllm]),
]


@pytest.mark.parametrize(("engine", "method", "rank"), ENGINES)
def test_on_two_gpus_a_process_forked_before_all_else_samples_the_same_bits(engine, method, rank):
    prepare_overlap(engine, method, rank)
    expected, loaded, sampled, _ = run_with_gpus("0", "0", method)
    assert loaded == sampled == [(True, "0")]
    actual, loaded, sampled, errors = run_with_gpus("0,1", "1", method)
    assert actual == expected
    assert loaded == [(False, "1"), (True, "0")]
    assert sampled == [(False, "1")]
    assert "changes nothing" not in errors
    # Reward and value model are of no use to the process that samples.
    beside = [line.split() for line in Path("models").read_text().splitlines()]
    assert {gpu for _, gpu in beside} == {"0"}
    assert ["load_value_model", "0"] in beside or method == "grpo"


def test_a_sampler_needs_a_gpu_more():
    prepare_overlap("transformers")
    process = start_with_gpus("0", "1")
    assert (
        "expected 2 GPUs, one for each of num_processes and POSTTRAIN_SAMPLERS, found 1"
        in (process.communicate()[1])
    )
    assert process.returncode == 1


@pytest.mark.parametrize(
    "engine",
    ["transformers", pytest.param("vllm", marks=[needs_vllm, pytest.mark.vllm])],
)
def test_a_killed_stage_leaves_no_sampler(engine):
    prepare_overlap(engine, num_steps=100_000)
    process = start_with_gpus("0,1", "1")
    path, end = Path("processes"), time.monotonic() + 120
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert len(list_group(process.pid)) == 2
    process.kill()
    process.communicate()
    end = time.monotonic() + 20
    while list_group(process.pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert list_group(process.pid) == []
