import json
import logging
import socket

import pytest
from option_server import Endpoint, serve

from stages.engines import openai_endpoint
from stages.engines.endpoint_reply import AnswerCache, EndpointJudgeConfig
from stages.engines.openai_endpoint import EndpointJudge
from stages.rewards.feedback import prompts
from stages.sampler import judge_messages


@pytest.fixture
def server():
    with serve() as endpoint:
        yield endpoint


JUDGE = {"model": "judge-1", "revision": "2026-11", "api": "chat", "top_logprobs": 5}


def connect(url: str | None, tmp_path, **changes) -> EndpointJudge:
    environment = ({openai_endpoint.URL: url} if url else {}) | changes.pop("environment", {})
    judge_keys = {name: changes.pop(name) for name in JUDGE if name in changes}
    return openai_endpoint.connect_endpoint(
        EndpointJudgeConfig(kind="endpoint", **(JUDGE | judge_keys)),
        changes.pop("options", ("1", "2")),
        changes.pop("reasoning_tokens", 0),
        AnswerCache(tmp_path / "cache"),
        environment=environment,
        **changes,
    )


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_the_variants_of_an_option_are_summed_and_the_cost_is_told(server: Endpoint, tmp_path, api):
    (choice,) = judge_messages(connect(server.url, tmp_path, api=api), ["Which?"])
    # 0.8 on "1" and " 1", 0.1 on "2"
    assert choice.probabilities == pytest.approx([8 / 9, 1 / 9])
    assert choice.mass == pytest.approx(0.9)
    assert (choice.num_prompt_tokens, choice.num_generated_tokens) == (11, 1)
    (request,) = server.requests
    assert (request["model"], request["max_tokens"], request["temperature"]) == ("judge-1", 1, 0.0)
    said = request["messages"][0]["content"] if api == "chat" else request["prompt"]
    assert said == "Which?"


def test_answers_keep_the_order_of_messages_however_many_are_asked_at_once(
    server: Endpoint, tmp_path
):
    server.tokens = lambda prompt: {"1": int(prompt) / 100, "2": 1 - int(prompt) / 100}
    messages = [str(number) for number in [*range(1, 40), 7, 7]]
    result = judge_messages(connect(server.url, tmp_path), messages)
    firsts = [choice.probabilities[0] for choice in result if choice is not None]
    assert firsts == pytest.approx([int(message) / 100 for message in messages])
    assert len(server.requests) == 39  # equal messages are asked once


def test_a_server_that_fails_at_times_is_asked_again_and_the_answer_is_the_same(
    server: Endpoint, tmp_path
):
    undisturbed = judge_messages(connect(server.url, tmp_path / "a"), ["x"])
    server.failures = [500, 429, 503]
    assert judge_messages(connect(server.url, tmp_path / "b"), ["x"]) == undisturbed
    assert len(server.requests) == 5


def test_a_server_that_goes_on_failing_is_an_error(server: Endpoint, tmp_path):
    server.failures = [500] * 9
    with pytest.raises(ValueError, match="refuses the request"):
        judge_messages(connect(server.url, tmp_path, retries=2), ["x"])
    assert len(server.requests) == 3


def test_what_was_answered_is_not_asked_again(server: Endpoint, tmp_path):
    first = judge_messages(connect(server.url, tmp_path), ["x", "y"])
    server.tokens = lambda _: {"2": 1.0}
    assert judge_messages(connect(server.url, tmp_path), ["x", "y"]) == first
    assert len(server.requests) == 2
    # another model, another question, other settings: asked
    others = [
        {"model": "judge-2"},
        {"revision": "2026-12"},
        {"top_logprobs": 4},
        {"api": "completions"},
    ]
    for changes in [*others, {"reasoning_tokens": 8}]:
        (choice,) = judge_messages(connect(server.url, tmp_path, **changes), ["x"])
        assert choice.probabilities == [0.0, 1.0]
    assert len(server.requests) == 2 + 4 + 2  # reasoning is a request of its own


def test_what_is_cached_is_what_was_sent_so_that_another_reading_of_it_is_seen(server, tmp_path):
    judge_messages(connect(server.url, tmp_path), ["x"])
    (other,) = judge_messages(connect(server.url, tmp_path, options=("2", "3")), ["x"])
    assert (other.probabilities, other.mass) == ([1.0, 0.0], pytest.approx(0.1))
    assert len(server.requests) == 1
    (file,) = (tmp_path / "cache").rglob("*.json")
    reply = json.loads(file.read_text())["answer"]
    assert [token for token, _ in reply["first"]] == ["1", " 1", "2"]
    assert (reply["text"], reply["num_prompt_tokens"]) == ("1", 11)


@pytest.mark.parametrize("reasoning_tokens", [0, 30])
def test_a_message_too_long_for_the_model_is_no_choice_and_the_others_are(
    server: Endpoint, tmp_path, reasoning_tokens
):
    server.longest = 20 + (len(prompts.REASONING_REQUEST) if reasoning_tokens else 0)
    chooser = connect(server.url, tmp_path, reasoning_tokens=reasoning_tokens)
    short, long, other = judge_messages(chooser, ["x", "x" * 21, "y"])
    assert short == other is not None
    assert long is None
    server.longest = None  # served with more positions: nothing keeps the refusal
    assert judge_messages(chooser, ["x" * 21]) == [short]


@pytest.mark.parametrize(
    ("sends", "message"),
    [
        (("text/html", "<html>Welcome</html>"), "choices.*found text, such as a web page"),
        (("application/json", '{"choices": []}'), "expected `choices`.*found none"),
        (("application/json", '["x"]'), "expected `choices`.*found none"),
        (("application/json", "<html>"), "text that is not JSON"),
    ],
)
@pytest.mark.parametrize("settings", [{}, {"api": "completions"}, {"reasoning_tokens": 9}])
def test_what_is_no_such_endpoint_says_so(server: Endpoint, tmp_path, sends, message, settings):
    server.sends = sends
    with pytest.raises(ValueError, match=message) as error:
        judge_messages(connect(server.url, tmp_path, **settings), ["x"])
    assert "correct the url" in str(error.value).lower()
    assert not (tmp_path / "cache").exists()


def test_the_first_token_is_told_for_a_judge_that_begins_otherwise(server: Endpoint, tmp_path):
    server.tokens = lambda _: {"1": 0.1, "<think>": 0.8}
    (choice,) = judge_messages(connect(server.url, tmp_path), ["x"])
    assert choice.first_token == "<think>"


def test_control_tokens_in_the_judge_s_own_reasoning_are_taken_apart(server: Endpoint, tmp_path):
    server.thought = "as it says: <|im_end|>"
    judge_messages(connect(server.url, tmp_path, reasoning_tokens=9), ["x"])
    assert server.requests[-1]["messages"][1]["content"] == "as it says: < |im_end|>"
    judge_messages(connect(server.url, tmp_path, reasoning_tokens=9, api="completions"), ["x"])
    assert "<|im_end|>" not in server.requests[-1]["prompt"]


def test_reasoning_is_written_first_and_the_options_are_read_after_it(server: Endpoint, tmp_path):
    (choice,) = judge_messages(connect(server.url, tmp_path, reasoning_tokens=30), ["Which?"])
    think, decide = (request["messages"] for request in server.requests)
    assert think == [{"role": "user", "content": "Which?" + prompts.REASONING_REQUEST}]
    assert [turn["content"] for turn in decide[1:]] == ["because", prompts.VERDICT_REQUEST]
    assert (choice.num_prompt_tokens, choice.num_generated_tokens) == (22, 31)
    judge_messages(
        connect(server.url, tmp_path, reasoning_tokens=30, api="completions"), ["Which?"]
    )
    prompt = server.requests[-1]["prompt"]
    assert prompt == f"Which?{prompts.REASONING_REQUEST} because{prompts.REASONING_CUE}"


def test_options_that_are_not_among_the_likeliest_are_a_mass_of_nothing(server, tmp_path):
    server.tokens = lambda _: {"Sure": 0.9, "The": 0.05}
    (choice,) = judge_messages(connect(server.url, tmp_path), ["x"])
    assert (choice.probabilities, choice.mass) == ([0.5, 0.5], 0.0)


def test_control_tokens_in_a_message_are_taken_apart(server: Endpoint, tmp_path):
    judge_messages(connect(server.url, tmp_path), ["#### 9 <|im_end|>"])
    assert server.requests[0]["messages"][0]["content"] == "#### 9 < |im_end|>"


def test_an_endpoint_that_cannot_be_reached_says_where_and_what_to_do_without_the_password(
    tmp_path, caplog
):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    url = f"http://me:hunter2@127.0.0.1:{port}/v1?token=hunter3"
    key = {openai_endpoint.KEY: "hunter4"}
    chooser = connect(url, tmp_path, retries=0, environment=key)
    with caplog.at_level(logging.INFO), pytest.raises(ValueError, match="be reached") as error:
        judge_messages(chooser, ["x"])
    assert f"http://127.0.0.1:{port}/v1" in str(error.value)
    assert "vllm serve" in str(error.value)
    assert "hunter" not in str(error.value) + caplog.text


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "POSTTRAIN_JUDGE_API_KEY"), (404, "knows no model 'judge-1'"), (400, "refuses the req")],
)
def test_what_the_server_refuses_is_told_at_once(server: Endpoint, tmp_path, status, message):
    server.failures = [status]
    with pytest.raises(ValueError, match=message):
        judge_messages(connect(server.url, tmp_path), ["x", "y", "z"])
    assert len(server.requests) == 1


def test_a_server_that_tells_no_logprobs_cannot_judge(server: Endpoint, tmp_path):
    server.tells_logprobs = False
    with pytest.raises(ValueError, match="expected the log-probs"):
        judge_messages(connect(server.url, tmp_path), ["x"])
    assert not (tmp_path / "cache").exists()


def test_the_key_is_sent_and_kept_nowhere(server: Endpoint, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        chooser = connect(server.url, tmp_path, environment={openai_endpoint.KEY: "s3cret"})
        judge_messages(chooser, ["x"])
    assert server.keys == ["Bearer s3cret"]
    kept = "".join(path.read_text() for path in (tmp_path / "cache").rglob("*.json"))
    assert "s3cret" not in kept + caplog.text
    assert kept != ""


def test_without_a_url_nothing_is_started(tmp_path):
    with pytest.raises(ValueError, match="POSTTRAIN_JUDGE_URL"):
        connect(None, tmp_path)
    with pytest.raises(ValueError, match="POSTTRAIN_JUDGE_CONCURRENCY, found 'many'"):
        connect("http://x/v1", tmp_path, environment={openai_endpoint.CONCURRENCY: "many"})
