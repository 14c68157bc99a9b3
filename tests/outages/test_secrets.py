"""Keys and passwords of the environment reach no file, log, process list, MLflow run or Prefect."""

import base64
import subprocess
import sys
import threading
import urllib.parse
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from option_server import serve
from servers import serve_mlflow
from toy_repo import make_toy_repo, wait_until

pytestmark = pytest.mark.slow

JUDGING = """
    elif kind == "compare":
        from stages.engines import openai_endpoint
        from stages.engines.endpoint_reply import AnswerCache, EndpointJudgeConfig

        judge = EndpointJudgeConfig(
            kind="endpoint", model="m", revision="r", api="chat", top_logprobs=5
        )
        answers = AnswerCache(Path("data/answers"))
        chooser = openai_endpoint.connect_endpoint(judge, ["1", "2"], 0, answers, retries=0)
        ((_, choice),) = chooser.stream(["?"])
        metrics = {"policies": {"sft": {"mean_accuracy": {"value": choice.mass}}}}
        with outputs.replace(data / "report") as folder:
            write(folder, {"metrics.json": json.dumps(metrics), "verdict.txt": "First."})
"""
"""The toy's `compare` asks a judge behind an endpoint."""


def secret(name):
    return f"s3cr3t-{name}-0f9a7c"


SECRETS = {
    name: secret(name.lower().replace("_", "-"))
    for name in ("POSTTRAIN_JUDGE_API_KEY", "OPENAI_API_KEY", "MLFLOW_TRACKING_PASSWORD",
                 "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
                 "AZURE_STORAGE_CONNECTION_STRING", "GDRIVE_CREDENTIALS_DATA")
}  # fmt: skip
PASSWORDS = [secret(name) for name in ("tracking-uri", "judge-url", "prefect", "git", "remote")]
TRACKING, JUDGE, PREFECT, GIT, REMOTE = PASSWORDS
SOUGHT = [*SECRETS.values(), *PASSWORDS]


def list_secrets(content):
    """Those in it: as they are, in an address, or in a header of basic authentication."""
    return [text for text in SOUGHT if any(form in content for form in list_forms(text))]


def list_forms(text):
    yield text.encode()
    yield urllib.parse.quote(text, safe="").encode()
    for start in range(3):  # wherever it begins, three bytes make four characters
        coded = base64.b64encode(b"x" * start + text.encode())
        yield coded[4 if start else 0 : -4]


def search_files(folder):
    """File -> secrets in it; of what the user wrote the secret into, nothing."""
    written = (".git/config", ".dvc/config.local")
    paths = [str(path) for path in folder.rglob("*") if path.is_file()]
    hits = {path: list_secrets(Path(path).read_bytes()) for path in paths}
    return {path: hit for path, hit in hits.items() if hit and not path.endswith(written)}


@contextmanager
def process_list():
    """Secrets in the command lines of all processes, looked at all the time."""
    seen, done = set(), threading.Event()

    def look():
        while not done.wait(0.05):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    seen.update(list_secrets(path.read_bytes()))

    thread = threading.Thread(target=look)
    thread.start()
    yield seen
    done.set()
    thread.join()


def make_repo(path):
    """The toy, with secrets in its git remote and its DVC remote."""
    repo = make_toy_repo(path)
    work, before = repo.path / "work.py", "    else:\n        metrics"
    assert before in work.read_text()
    work.write_text(work.read_text().replace(before, JUDGING + before))
    repo.commit()
    repo.run("git", "remote", "add", "origin", f"https://me:{GIT}@127.0.0.1:9/x.git")
    repo.run("dvc", "remote", "add", "--local", "-d", "store", "webdav://127.0.0.1:9/x")
    repo.run("dvc", "remote", "modify", "--local", "store", "password", REMOTE)
    return repo


def test_nothing_that_is_written_or_listed_holds_a_secret(tmp_path):
    place, repo = tmp_path, make_repo(tmp_path / "toy")
    for name in ("server", "home", "tmp", "prefect"):
        (place / name).mkdir()
    with serve_mlflow(place / "server") as server, serve() as endpoint, process_list() as listed:
        planted = SECRETS | {
            "MLFLOW_TRACKING_URI": server.url.replace("//", f"//me:{TRACKING}@"),
            "MLFLOW_TRACKING_USERNAME": "me",
            "POSTTRAIN_JUDGE_URL": endpoint.url.replace("//", f"//me:{JUDGE}@"),
            "PREFECT_API_AUTH_STRING": f"me:{PREFECT}",
            "PREFECT_SERVER_API_AUTH_STRING": f"me:{PREFECT}",
            "PREFECT_HOME": str(place / "prefect"),
            "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "300",
            "HOME": str(place / "home"),
            "TMPDIR": str(place / "tmp"),
        }
        live = repo.start("python", "-m", "stages.track", "--live", **planted)
        endpoint.failures = [400]
        flow = (sys.executable, "-m", "flows.pipeline", "-j", "2")
        printed = [repo.run(*flow, code=1, **planted)]
        printed += [repo.flow("-j", "2", **planted)]
        printed += [repo.run("python", "-m", "stages.track", **planted)]
        assert "MLflow: 0 runs added" in printed[-1]
        unreachable = planted | {"MLFLOW_TRACKING_URI": f"http://me:{TRACKING}@127.0.0.1:9"}
        printed += [repo.run("python", "-m", "stages.track", **unreachable)]
        assert "127.0.0.1" in printed[-1]
        live.terminate()
        printed.append(live.communicate(timeout=60)[0])
        assert [key for key in endpoint.keys if key] != []
    assert list_secrets("\n".join(printed).encode()) == []
    assert listed == set()
    assert search_files(place) == {}


def test_the_search_finds_a_secret_wherever_it_is(tmp_path):
    (tmp_path / "plain").write_bytes(b"\0" + SOUGHT[0].encode() + b"\0")
    for index, user in enumerate(("m", "me", "you")):
        header = base64.b64encode(f"{user}:{SOUGHT[1]}".encode())
        (tmp_path / f"header-{index}").write_bytes(b"Authorization: Basic " + header)
    assert len(search_files(tmp_path)) == 4
    with process_list() as listed:
        child = subprocess.Popen(
            [sys.executable, "-c", "input()", SOUGHT[2]], stdin=subprocess.PIPE
        )
        wait_until(lambda: listed, "the command line")
        child.communicate()
    assert listed == {SOUGHT[2]}
