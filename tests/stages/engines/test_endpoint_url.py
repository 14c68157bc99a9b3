import traceback

import pytest

from stages.engines import endpoint_url, openai_endpoint
from stages.engines.answer_cache import AnswerCache


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
    endpoint_url.check(url, "URL")


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
        openai_endpoint.connect(
            model="m",
            revision="1",
            api="chat",
            top_logprobs=5,
            reasoning_tokens=0,
            options=("1", "2"),
            cache=AnswerCache(tmp_path),
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
    assert endpoint_url.shown(url) == shown
