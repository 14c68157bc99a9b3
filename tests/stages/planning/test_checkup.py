"""What a model, its tokenizer and a machine cannot do is found before anything runs."""

from types import SimpleNamespace

import pytest
from tiny_checkpoints import compute
from transformers import LlamaConfig

from stages.models import model_tokenizer
from stages.models.row_policy import LoraConfig
from stages.planning import checkup
from stages.planning.checkup import GIB, Model
from stages.planning.stage import Data, Plan, Stage
from stages.records.problems import Demonstration

SHOWN = Demonstration(
    id="a", task="solve", prompt="", prompt_ids=[5] * 30, completion="", completion_ids=[6] * 20
)
DATA = Data(
    prompts={"train": 50}, demonstrations=50, prompt=30.0, completion=20.0,
    completion_lines=3.0, longest=(30, 20), example=SHOWN,
)  # fmt: skip
CONTENT = {
    "engine": "transformers",
    "sampling": {split: {"max_new_tokens": 40} for split in ("preference", "dev", "test")},
}
INSTALLED = {"vllm": "0.32.0"}


@pytest.fixture(scope="module")
def tokenizer():
    return model_tokenizer.train_tokenizer(["one and one is two 1 2"], 800)


def found(tokenizer, stages, *, positions=100, content=CONTENT, software=INSTALLED):
    config = LlamaConfig(max_position_embeddings=positions)
    model = Model(config=config, tokenizer=tokenizer, data=DATA, facts=None)
    plan = Plan(content=content, presets={}, rows={}, data=DATA)
    return list(checkup.find_problems(model, stages, plan, software))


def stage(entry_point, **preset):
    config = SimpleNamespace(preset=SimpleNamespace(**preset))
    return Stage(name="x@y", entry_point=entry_point, words={}, config=config)


def test_what_works_is_not_mentioned(tokenizer):
    assert found(tokenizer, [stage("sample"), stage("train_sft")]) == []


def test_texts_longer_than_the_model(tokenizer):
    (problem,) = found(tokenizer, [stage("sample")], positions=69)
    assert "x@y" in problem
    assert "70 tokens" in problem
    assert "69 positions" in problem


def test_an_engine_that_is_not_installed(tokenizer):
    software = {"vllm": "not installed"}
    assert (
        "vLLM" in found(tokenizer, [], content=CONTENT | {"engine": "vllm"}, software=software)[0]
    )


def test_a_step_token_that_is_none(tokenizer):
    (problem,) = found(tokenizer, [stage("reward_process", step_token="<nothing>")])
    assert "step_token" in problem


@pytest.mark.parametrize(("number", "rounds", "problems"), [(50, 1, 0), (51, 1, 1), (20, 3, 1)])
def test_more_prompts_in_a_step_than_there_are(tokenizer, number, rounds, problems):
    sizes = SimpleNamespace(max_new_tokens=4, prompts_per_step=number)
    preset = SimpleNamespace(max_rounds=rounds)
    config = SimpleNamespace(preset=preset, grpo=sizes)
    grpo = Stage(name="train@x", entry_point="train_grpo", words={"train": "grpo"}, config=config)
    messages = found(tokenizer, [grpo])
    assert len(messages) == problems
    assert all(f"may need {number * rounds} prompts, the split train has 50" in p for p in messages)


def test_a_pretended_gpu_leaves_a_tenth_free():
    machine = checkup.find_machine(80.0, 3)
    assert machine.is_gpu
    assert machine.room() == pytest.approx(72 * GIB)


def test_remedies_name_what_is_not_set_yet():
    config = SimpleNamespace(compute=compute(), lora=LoraConfig(rank=0, alpha=16))
    assert "lora.rank" in checkup.suggest_changes("update", config)
    assert "gradient_checkpointing" in checkup.suggest_changes("update", config)
    done = SimpleNamespace(
        compute=compute(dtype="bfloat16", gradient_checkpointing=True),
        lora=LoraConfig(rank=8, alpha=16),
    )
    assert checkup.suggest_changes("update", done).startswith("compute.max_tokens below 4096")
    assert "max_batch" in checkup.suggest_changes("sampling", done)
    assert checkup.suggest_changes("forward pass", done).startswith("compute.max_tokens below 4096")


def test_vllm_reads_no_number_of_sequences():
    alone = SimpleNamespace(compute=compute(), engine="vllm")
    assert (
        checkup.suggest_changes("sampling", alone) == "compute.dtype: bfloat16, or a smaller model"
    )
    beside = SimpleNamespace(compute=compute(), engine="vllm", lora=LoraConfig(rank=0, alpha=16))
    assert "max_batch" not in checkup.suggest_changes("sampling", beside)
    assert "lora.rank: 16" in checkup.suggest_changes("sampling", beside)
    assert "engine: transformers" in checkup.suggest_changes("forward pass", beside)
    assert "engine" not in checkup.suggest_changes("update", beside)


def test_a_judge_behind_an_endpoint_takes_no_memory_here(tokenizer):
    judge = SimpleNamespace(kind="endpoint")
    judging = stage("label_judge", judge=judge, reasoning=None)
    model = Model(config=LlamaConfig(), tokenizer=tokenizer, data=DATA, facts=None)
    plan = Plan(content=CONTENT | {"engine": "vllm"}, presets={}, rows={}, data=DATA)
    assert checkup.make_trial(judging, model, checkup.find_machine(80.0, 1), plan) is None
    assert found(tokenizer, [judging], positions=1) == []
