"""No password of an address in what is logged, printed or kept by a server."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows import agents, sweep
from flows.plan import StageNode
from flows.process import Runner
from flows.redaction import hide_secrets
from stages.tracking import store

ID = "00000000-0000-0000-0000-000000000000"
NODE = StageNode(name="s", deps=(), outs=(), params=(), upstream=(), gpu=0)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("for url 'http://me:se/c:ret@host:4200/api'", "for url 'http://***@host:4200/api'"),
        ("https://token@host", "https://***@host"),
        ("mail me@host, see http://host/a@b", "mail me@host, see http://host/a@b"),
        ("https://host/c?sv=1&sig=a%2Fb=&se=2 failed", "https://host/c?sv=1&sig=***&se=2 failed"),
        ("pg://host/db?user=me&password=s3", "pg://host/db?user=me&password=***"),
        ("'Name=me;AccountKey=a/b==;Suffix=net'", "'Name=me;AccountKey=***;Suffix=net'"),
        ("url: /p?X-Amz-Security-Token=abc", "url: /p?X-Amz-Security-Token=***"),
        ("page?signal=3&design=4", "page?signal=3&design=4"),
        ("AccountKey=a/b==;Name=me", "AccountKey=***;Name=me"),
        ("https://host/p?api_key=abc", "https://host/p?api_key=***"),
        ("Server=db;PWD=s3;Encrypt=yes", "Server=db;PWD=***;Encrypt=yes"),
        ("host=db password='s3'", "host=db password='***'"),
        ("SharedAccessSignature=s&v=1", "SharedAccessSignature=***&v=1"),
        ("AWS_SECRET_ACCESS_KEY=abc is no key", "AWS_SECRET_ACCESS_KEY=*** is no key"),
        ("got pad_token=3, max_tokens=5, key=b", "got pad_token=3, max_tokens=5, key=b"),
    ],
)
def test_secrets_of_an_address_are_hidden(text: str, shown: str) -> None:
    assert hide_secrets(text) == store.hide_secrets(text) == shown


@pytest.fixture(params=[500, 401])
def status_and_address(request: pytest.FixtureRequest) -> Iterator[tuple[int, str]]:
    """A server that refuses everything, and its address with a password."""

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(request.param)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield request.param, f"http://me:sekret@127.0.0.1:{server.server_port}/api"
        server.shutdown()


def test_a_server_that_refuses_is_told_of_without_its_password(
    status_and_address: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, address = status_and_address
    monkeypatch.setattr(agents, "OUTAGE_SECONDS", 0.2)
    monkeypatch.setattr(agents, "POLL_SECONDS", 0.1)
    logged: list[str] = []
    run = agents.AgentRun(NODE, "", "", Runner(root=Path(), log=logged.append))
    error = ValueError if status == 401 else ConnectionError
    monkeypatch.setattr(agents, "get_client", lambda sync_client: SyncPrefectClient(address))
    with pytest.raises(error, match=rf"[ '\"]{status} .*http://\*\*\*@127") as stop:
        run.ask_server(SyncPrefectClient.read_flow_run, ID)
    assert stop.value.__suppress_context__
    assert "PREFECT_API_AUTH_STRING" in str(stop.value) or status == 500
    assert bool(logged) == (status == 500)
    assert "sekret" not in " ".join([*logged, str(stop.value)])


def test_a_sweep_that_the_server_refuses_prints_no_password(
    status_and_address: tuple[int, str],
) -> None:
    status, address = status_and_address
    with (
        temporary_settings({PREFECT_API_URL: address}),
        pytest.raises(
            ValueError, match=rf"refuses a request: .*'{status} .*http://\*\*\*@127"
        ) as stop,
    ):
        sweep.queue_points([["a=1"]], None)
    assert stop.value.__suppress_context__
    assert "sekret" not in str(stop.value)


def test_a_sweep_without_a_server_prints_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise sweep.httpx.ConnectError("Connection refused")

    monkeypatch.setattr(sweep, "run_deployment", refuse)
    message = r"^http://\*\*\*@127.0.0.1:9/api does not answer: Connection refused$"
    with (
        temporary_settings({PREFECT_API_URL: "http://me:sekret@127.0.0.1:9/api"}),
        pytest.raises(ValueError, match=message),
    ):
        sweep.queue_points([["a=1"]], None)
