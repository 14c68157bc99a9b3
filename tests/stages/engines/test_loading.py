import shutil

import judge_checkpoint
import pytest
from pydantic import TypeAdapter, ValidationError
from tiny_checkpoints import checkpoint, compute

from stages import rows
from stages.engines import loading, openai_endpoint
from stages.engines.openai_endpoint import EndpointJudge
from stages.engines.transformers import TransformersSampler
from stages.models import model_tokenizer
from stages.models.policy_judge import PolicyJudge
from stages.models.row_policy import ModelConfig
from stages.sampler import Sampler, judge_messages

MODEL = ModelConfig(
    path=None,
    revision=None,
    thinking=None,
    tiny={
        "hidden_size": 8,
        "num_layers": 1,
        "num_heads": 1,
        "intermediate_size": 8,
        "max_length": 8,
        "vocab_size": 700,
    },
)
POLICY = {"kind": "policy", "max_prompt_tokens": 200}
ENDPOINT = {
    "kind": "endpoint",
    "model": "m",
    "revision": "2026-11",
    "api": "chat",
    "top_logprobs": 20,
}


CONFIG = loading.SamplingConfig(seeds=[0], compute=compute(), model=MODEL, engine="transformers")


def load(judge: dict, policy: str, reasoning: int = 0):
    return CONFIG.load_judge(
        TypeAdapter(loading.JudgeConfig).validate_python(judge),
        policy,
        0,
        loading.ReasoningConfig(max_new_tokens=reasoning) if reasoning else None,
    )


def test_a_policy_judges_with_its_own_tokenizer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows.locate_policy("sft", 0).parent.mkdir(parents=True)
    rows.locate_policy("sft", 0).symlink_to(judge_checkpoint.checkpoint())
    judge = load(POLICY, "sft", reasoning=4)
    assert isinstance(judge, PolicyJudge)
    assert (judge.max_prompt_tokens, judge.reasoning_tokens) == (200, 4)
    (choice,) = judge_messages(judge, judge_checkpoint.MESSAGES[:1])
    assert choice is not None
    assert sum(choice.probabilities) == pytest.approx(1.0)


def test_an_endpoint_is_found_by_the_environment(monkeypatch):
    monkeypatch.setenv(openai_endpoint.URL, "http://127.0.0.1:9/v1")
    judge = load(ENDPOINT, rows.BASE)
    assert isinstance(judge, EndpointJudge)
    assert (judge.judge.model, judge.judge.revision) == ("m", "2026-11")
    assert (judge.judge.top_logprobs, judge.reasoning_tokens) == (20, 0)


def test_a_policy_that_an_endpoint_would_not_ask_is_refused():
    with pytest.raises(ValueError, match="found `from: sft`"):
        load(ENDPOINT, "sft")


@pytest.mark.parametrize(
    "judge",
    [
        ENDPOINT | {"top_logprobs": 21},
        ENDPOINT | {"api": "x"},
        ENDPOINT | {"revision": ""},
        {name: value for name, value in ENDPOINT.items() if name != "revision"},
        {"kind": "oracle"},
    ],
)
def test_what_no_judge_can_be_is_refused(judge):
    with pytest.raises(ValidationError):
        TypeAdapter(loading.JudgeConfig).validate_python(judge)


def test_a_policys_folder_is_sampled_with_its_own_tokenizer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = rows.locate_policy("sft", 2)
    shutil.copytree(checkpoint("llama"), folder)
    words = model_tokenizer.train_tokenizer(["2 + 2"] * 2, 700)
    words.save_pretrained(folder)
    result = CONFIG.load_sampler("sft", 2, 64)
    assert isinstance(result, Sampler)
    assert isinstance(result, TransformersSampler)
    assert words.eos_token_id in result.eos_ids


def test_a_random_base_model_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="a random model earns no reward"):
        CONFIG.load_sampler(rows.BASE, 0, 64)
