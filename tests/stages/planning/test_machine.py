"""What a machine can do, by hand: rates, times, vLLM's share, and what is refused beforehand."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace as Section

import pytest
from step_memory import EMBEDDED, make_trial
from tiny_checkpoints import compute
from transformers import LlamaConfig

from stages.config import read_yaml
from stages.models import model_tokenizer
from stages.planning import checkup, cost, speed
from stages.planning.checkup import GIB, Machine, Model
from stages.planning.cost import Trial
from stages.planning.jobs import Data, Plan, Stage, Work
from stages.planning.speed import Arithmetic, Cost, Rates
from stages.runtime import machine

TABLES = read_yaml(Path(__file__).with_suffix(".yaml"))
GPU = Machine(name="a GPU", bytes=80 * GIB, is_gpu=True)
CPU = Machine(name="a CPU", bytes=10 * GIB, is_gpu=False)
PINNED, NATIVE = Arithmetic("float32", "pinned"), Arithmetic("float32", "native")
BFLOAT16 = Arithmetic("bfloat16", "native")
BASE = LlamaConfig(hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, intermediate_size=96, vocab_size=60)  # fmt: skip
REQUEST = {"base": json.loads(BASE.to_json_string(use_diff=False)), "lora": {"rank": 0,
    "alpha": 16}, "compute": {"dtype": "float32", "gradient_checkpointing": False,
    "max_tokens": 256, "row_tokens": 128, "pack_tokens": 64, "max_batch": 16}, "prompt": 7,
    "completion": 5, "batch_size": 4}  # fmt: skip


@pytest.mark.parametrize("case", TABLES["limits"], ids=lambda case: case["groups"])
def test_memory_and_processors_are_those_of_the_container(case, tmp_path, monkeypatch):
    for name, text in case["files"].items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(f"{text}\n")
    (tmp_path / "of_process").write_text(case["groups"])
    monkeypatch.setattr(machine, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(machine, "OF_PROCESS", tmp_path / "of_process")
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: range(8))
    monkeypatch.setattr(machine.os, "sysconf", {"SC_PAGE_SIZE": GIB, "SC_PHYS_PAGES": 64}.get)
    assert machine.count_bytes() == case["gib"] * GIB
    assert machine.count_processors() == case["processors"]


# --- rates of passes
def test_seconds_of_work_by_hand():
    rates = Rates(trained=6.0, forward=2.0, sampled=1.0, step=0.5)
    work = Work(tokens=0, trained=60, forward=10, sampled=3, steps=8)
    assert rates.predict_seconds(work) == 10 + 5 + 3 + 4
    of_process = {"trained": 2.0, "forward": 1.0, "sampled": 0.5, "step": 1.5}
    assert speed.combine_seeds(of_process, 3) == replace(rates, forward=3.0, sampled=1.5)


@pytest.mark.parametrize("case", TABLES["waves"], ids=str)
def test_seeds_that_find_no_gpu_wait(case, monkeypatch):
    seeds, processes, gpus, per_gpu, share = case
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus))))
    monkeypatch.setenv("POSTTRAIN_SEEDS_PER_GPU", str(per_gpu))
    plan = Plan(content={"seeds": [*range(seeds)]}, presets={}, rows={}, data=DATA)
    trained = Stage(name="x", entry_point="x", words={}, config=Section(num_processes=processes))
    assert checkup.scale_seconds(trained, plan) == pytest.approx(share)


def test_a_decode_steps_cost_is_a_line_over_its_rows():
    # A prompt of 40 operations at 20 a second; 3 steps of 0.5 s; a row: 6 operations, 2 s.
    costs = {rows: Cost(2 + 3 * 0.5 + 2 * rows, 40 + 6 * rows) for rows in (8, 32)}
    assert speed.split_sampling({1: Cost(9.0, 1), **costs}, forward=20.0) == {
        "sampled": 3.0, "step": 0.5}  # fmt: skip
    costs = {8: Cost(8.0, 40 + 6 * 8), 32: Cost(7.5, 40 + 6 * 32)}  # rows cost nothing
    split = speed.split_sampling(costs, forward=20.0)
    assert split == pytest.approx({"step": 2.0, "sampled": 6 / speed.LEAST}, rel=1e-5)


def test_passes_grow_until_they_are_long_enough_or_full(monkeypatch):
    sizes = dict[str, list[int]]()

    class Model:
        share = 0.25

        def __init__(self, request):
            pass

        def run(self, kind, rows):
            sizes.setdefault(kind, []).append(rows)
            seconds = {"trained": 0.01, "forward": 0.1, "sampled": 0.5}[kind] * rows
            return Cost(seconds + 0.6 * (kind == "sampled"), 10 * rows)

    monkeypatch.setattr(speed, "TimedModel", Model)
    compute = REQUEST["compute"] | {"rounding": "pinned"}
    rates = speed.measure(speed.Request(**REQUEST | {"compute": compute, "batch_size": 9}))
    # At most 9 rows of a step, 256 / (7 + 5) of a micro-batch; two sizes of a sampled batch.
    assert {kind: [*dict.fromkeys(rows)] for kind, rows in sizes.items()} == {
        "trained": [1, 4, 9], "forward": [1, 4], "sampled": [1, 4]}  # fmt: skip
    # 0.6 s are 3 decode steps without rows, of a quarter of the weights.
    assert rates == pytest.approx({"trained": 1000, "forward": 100, "sampled": 20, "step": 0.8})


@pytest.mark.weekly
def test_every_arithmetic_has_rates_of_every_kind_or_ends_with_a_reason():
    rates = speed.measure_rates(REQUEST, [PINNED, NATIVE, BFLOAT16], 2)
    assert set(rates) == {PINNED, NATIVE, BFLOAT16}
    for each in rates.values():
        assert min(each.trained, each.forward, each.sampled) > 0 <= each.step
    broken = REQUEST | {"base": REQUEST["base"] | {"num_attention_heads": 5}}
    with pytest.raises(ValueError, match=r"\w+Error: "):
        speed.measure_rates(broken, [PINNED, NATIVE], 1)


# --- vLLM's memory, and trials that cannot be measured
def trial(**changes):
    config = Section(compute=compute(**changes), engine="vllm")
    base = LlamaConfig(hidden_size=64, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=96, vocab_size=50)  # fmt: skip
    return Trial(entry_point="sample", config=config, base=base, prompt=70, completion=30,
        samples=4)  # fmt: skip


def test_vllms_share_by_hand():
    # Six tenths of the 50 GiB that are free beside policy, reference and moments, while awake.
    phases = {"update": 50 * GIB, "sampling": 30 * GIB, "forward pass": 35 * GIB}
    expected = {"update": 50 * GIB, "sampling": 60 * GIB, "forward pass": 65 * GIB}
    assert checkup.add_vllm(phases, 20 * GIB, GPU) == expected
    assert checkup.add_vllm({"update": 5, "sampling": 3}, 2, CPU) == {"update": 7, "sampling": 5}
    for held, minimum, words in (
        (phases, 31 * GIB, "30.0 .* 31.0"),
        ({"sampling": 90 * GIB}, GIB, "0.0"),
    ):
        with pytest.raises(ValueError, match=words):
            checkup.add_vllm(held, minimum, GPU)
    # Weights, and two matrices of 2 heads of 16 at each of 3 layers and 100 positions; bfloat16.
    small = 2 * (1000 + 2 * 3 * 2 * 16 * 100)
    assert checkup.minimum_of_vllm(trial(dtype="bfloat16"), GPU, 1000) == small
    assert checkup.minimum_of_vllm(trial(), CPU, 1000) == 4 * 1000 + GIB
    only = checkup.measure_memory(trial(dtype="bfloat16"), GPU, 1000)
    assert only == ({"sampling": small}, None, None)


def test_what_fake_tensors_cannot_run_is_told_apart_from_what_cannot_work(monkeypatch):
    learned = make_trial("train_sft", EMBEDDED)

    def measure(error):
        def predict(_trial):
            raise error

        monkeypatch.setattr(cost, "predict_peaks", predict)
        return checkup.measure_memory(learned, GPU, 1000)

    assert measure(TypeError("x")) == ({}, "TypeError: x", None)
    assert measure(AssertionError("x")) == ({}, "AssertionError: x", None)
    assert measure(ValueError("x")) == ({}, None, "x")


# --- problems that show before anything runs
SAMPLING = {split: {"max_new_tokens": 40} for split in ("preference", "dev", "test")}
CONTENT = {"engine": "transformers", "sampling": SAMPLING}
DATA = Data(prompts={"train": 50}, demonstrations=50, prompt=30.0, completion=20.0,
    completion_lines=3.0, longest=(30, 20), example=None)  # fmt: skip


def stage(entry_point, words=None, grpo=None, **preset):
    config = Section(preset=Section(**preset), grpo=grpo)
    return Stage(name="x@y", entry_point=entry_point, words=words or {}, config=config)


def grpo(number, rounds):
    sizes = Section(max_new_tokens=4, prompts_per_step=number)
    return stage("train_grpo", {"train": "grpo"}, sizes, max_rounds=rounds)


REMOTE = stage("label_judge", judge=Section(kind="endpoint"), reasoning=None)
PROBLEMS = {
    # stages, positions of the model, engine and vLLM's version, what the only problem names
    "none": ([stage("sample"), stage("train_sft"), grpo(50, 1)], 70, "transformers", "0.32.0",
             None),
    "too_long": ([stage("sample")], 69, "transformers", "0.32.0", "x@y.* 70 .* 69"),
    "no_vllm": ([], 100, "vllm", "not installed", "vLLM"),
    "no_step_token": ([stage("reward_process", step_token="<nothing>")], 100, "transformers",
                      "0.32.0", "step_token"),
    "too_many_prompts": ([grpo(51, 1)], 100, "transformers", "0.32.0", "51 .* 50"),
    "too_many_rounds": ([grpo(20, 3)], 100, "transformers", "0.32.0", "60 .* 50"),
    "an_endpoint": ([REMOTE], 1, "transformers", "0.32.0", None),
}  # fmt: skip


@pytest.mark.parametrize("name", PROBLEMS)
def test_problems_of_a_plan(name):
    stages, positions, engine, vllm, words = PROBLEMS[name]
    tokenizer = model_tokenizer.train_tokenizer(["one and one is two 1 2"], 800)
    config = LlamaConfig(max_position_embeddings=positions)
    model = Model(config=config, tokenizer=tokenizer, data=DATA, facts=None)
    plan = Plan(content=CONTENT | {"engine": engine}, presets={}, rows={}, data=DATA)
    problems = list(checkup.find_problems(model, stages, plan, {"vllm": vllm}))
    assert len(problems) == (words is not None)
    assert all(re.search(words, problem) for problem in problems)
    if stages == [REMOTE]:
        assert checkup.make_trial(REMOTE, model, plan) is None


class Config(Section):
    def model_copy(self, update):
        return Config(**vars(self) | update)


def test_auto_recomputes_where_four_fifths_of_a_gpu_do_not_suffice():
    trial = make_trial("train_sft", EMBEDDED)
    peak = cost.predict_peaks(trial)["update"]
    chosen = trial.config.compute.model_copy(update={"gradient_checkpointing": "auto"})
    config = Config(**vars(trial.config) | {"compute": chosen})

    def settle(number: float, *, is_gpu: bool = True) -> bool:
        machine = Machine(name="it", bytes=round(number), is_gpu=is_gpu)
        settled = checkup.settle_recomputation(replace(trial, config=config), machine, 1)
        return settled.config.compute.gradient_checkpointing

    assert [settle(share * peak) for share in (1.24, 1.26)] == [True, False]
    assert not settle(0.5 * peak, is_gpu=False)


def test_a_pretended_gpu_leaves_a_tenth_free():
    machine = checkup.find_machine(80.0, 3)
    assert (machine.is_gpu, machine.is_here) == (True, False)
    assert machine.room() == pytest.approx(72 * GIB)
