import traceback

import pytest

from stages.engines import openai_endpoint
from stages.engines.endpoint_reply import AnswerCache, EndpointJudgeConfig, check_url, redact_url


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/v1",
        "https://me:hunter2@judge.example/v1?x=1",
        "http://localhost",
        "http://[::1]:8000/v1",
    ],
)
def test_the_url_of_a_server_is_taken(url):
    check_url(url, "URL")


@pytest.mark.parametrize(
    "url",
    [
        "me:hunter2@judge.example:8000/v1",
        "judge.example:8000/hunter2",
        "ftp://me:hunter2@judge.example/v1",
        "http:///hunter2",
        "http://me:hunter2@/v1",
        "http://judge.example:hunter2/v1",
        "http://judge.example:99999/hunter2",
        "http://me:x#hunter2@judge.example/v1",
        "http://me:x@hunter2@judge.example/v1",
        "http://[hunter2/v1",
        "hunter2",
    ],
)
def test_what_is_none_is_refused_and_not_repeated(url, tmp_path):
    with pytest.raises(
        ValueError, match=r"http\(s\)://host\[:port\]/v1 in POSTTRAIN_JUDGE_URL"
    ) as e:
        openai_endpoint.connect_endpoint(
            EndpointJudgeConfig(
                kind="endpoint", model="m", revision="1", api="chat", top_logprobs=5
            ),
            ("1", "2"),
            0,
            AnswerCache(tmp_path),
            environment={openai_endpoint.URL: url},
        )
    assert "hunter2" not in "".join(traceback.format_exception(e.value))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://me:hunter2@judge.example:8000/v1?token=x#y", "http://judge.example:8000/v1"),
        ("https://[::1]:8000/v1", "https://[::1]:8000/v1"),
        ("http://localhost/v1", "http://localhost/v1"),
    ],
)
def test_what_is_shown_has_no_user_password_or_query(url, shown):
    assert redact_url(url) == shown


def test_an_answer_is_found_by_the_whole_content_of_its_request(tmp_path):
    cache = AnswerCache(tmp_path)
    assert cache.get({"message": "x", "model": "m"}) is None
    cache.put({"message": "x", "model": "m"}, {"mass": 0.9})
    assert cache.get({"model": "m", "message": "x"}) == {"mass": 0.9}
    assert cache.get({"message": "x", "model": "n"}) is None
    assert cache.get({"message": "y", "model": "m"}) is None


def test_nothing_half_written_is_left(tmp_path):
    cache = AnswerCache(tmp_path)
    for number in range(3):
        cache.put({"message": "é"}, {"mass": number})
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.suffix for path in files] == [".json"]
    assert cache.get({"message": "é"}) == {"mass": 2}


@pytest.mark.parametrize("content", ["{", "[]", '{"request": {"message": "y"}, "answer": {}}'])
def test_a_file_that_is_something_else_is_told(tmp_path, content):
    cache = AnswerCache(tmp_path)
    cache.put({"message": "x"}, {"mass": 1})
    (path,) = tmp_path.rglob("*.json")
    path.write_text(content)
    with pytest.raises(ValueError, match="delete this file"):
        cache.get({"message": "x"})
