"""What a clone pushed another one fetches whole or not at all; what is then run, asked and sent."""

import errno
import hashlib
import json
import logging
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from dvc.repo import Repo
from ruamel.yaml import YAML
from servers import Proxy
from toy_repo import RECORD, Clones, ToyRepo, count_starts

from flows import command_line, execute, seeds, share
from flows import remote as remote_command
from flows.execute import Result, StageOutcome
from flows.lock import list_records, parse_lock
from flows.process import Runner
from flows.remote import KEY, RemoteStatus, ResultExchange

ABSENT, DONE, NOT_SHARED = RemoteStatus.ABSENT, RemoteStatus.DONE, RemoteStatus.NOT_SHARED
Visit = Callable[[ToyRepo], ResultExchange]


@pytest.fixture
def remote(toy: ToyRepo, tmp_path: Path) -> Path:
    """A folder as the default remote of the toy, in which nothing was pushed yet."""
    folder = tmp_path / "remote"
    folder.mkdir()
    with (toy.path / ".dvc/config").open("a") as file:
        file.write(f"    remote = results\n['remote \"results\"']\n    url = {folder}\n")
    return folder


@pytest.fixture
def visit(tmp_path: Path, monkeypatch, caplog) -> Visit:
    """A repository as its own machine sees it: what DVC remembers of a remote is not shared."""
    for logger in ("dvc", "dvc_data"):  # their handlers hold a stream that pytest has closed
        caplog.set_level(logging.CRITICAL, logger=logger)

    def go(repo: ToyRepo) -> ResultExchange:
        monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / f"{repo.path.name}.site"))
        monkeypatch.chdir(repo.path)
        return ResultExchange(repo.path)

    return go


def clone(repo: ToyRepo, name: str, *, with_lock: bool = False) -> ToyRepo:
    """The same files, without anything that was computed."""
    other = repo.path.parent / name
    shutil.copytree(
        repo.path, other, ignore=shutil.ignore_patterns("data", "cache", "tmp", "*.log")
    )
    if not with_lock:
        (other / "dvc.lock").unlink(missing_ok=True)
    return ToyRepo(other, repo.environment)


def restore(visit: Visit, repo: ToyRepo, *stages: str) -> None:
    """`dvc repro` in this process; it has to run nothing."""
    visit(repo)
    with Repo() as dvc:
        dvc.reproduce(list(stages))
    assert repo.started() == [], "a stage ran"


DAMAGES = [
    lambda whole: None,
    lambda whole: whole[: len(whole) // 2],
    lambda whole: whole + b"\n- x",
    lambda whole: whole.replace(b"python", b"pythom"),
]
"""What becomes of each file of a result in its turn; the last one is an entry as good as any."""


def test_whatever_is_missing_or_damaged_nothing_is_restored(toy, remote, visit) -> None:
    """Every state that a push which ended anywhere could leave, and worse."""
    other = clone(toy, "other")
    assert visit(other).fetch("prepare") is ABSENT
    visit(toy).push("prepare")
    files = sorted(path for path in remote.rglob("*") if path.is_file())
    assert len(files) == 3  # a file, the folder around it, the entry
    for path in files:
        whole = path.read_bytes()
        for damage in DAMAGES:
            content = damage(whole)
            if content == whole:
                continue
            path.chmod(0o644)
            path.unlink() if content is None else path.write_bytes(content)
            if content is not None:
                path.chmod(0o444)  # as DVC leaves it, which then believes what it says
            assert visit(other).fetch("prepare") is ABSENT, (path, content)
            shutil.rmtree(other.path / ".dvc/cache", ignore_errors=True)
            visit(toy).push("prepare")  # whoever has it makes it whole again
            assert path.read_bytes() == whole
    assert visit(other).fetch("prepare") is DONE
    restore(visit, other, "prepare")
    assert other.locked()["prepare"] == toy.locked()["prepare"]


def test_the_remote_holds_what_dvc_itself_would_write(toy, remote, visit, capsys) -> None:
    exchange = visit(toy)
    for name in ("prepare", "side@left"):
        exchange.push(name)
    names = [path.relative_to(remote) for path in (remote / "runs").rglob("*") if path.is_file()]
    assert len(names) == 2
    load = YAML(typ="safe").load
    for name in names:
        assert load(remote / name) == load(toy.path / ".dvc/cache" / name)
    capsys.readouterr()
    other = clone(toy, "other")
    assert visit(other).fetch("prepare") is DONE
    key = capsys.readouterr().out.split(KEY)[1].strip()
    assert (remote / "runs" / key[:2] / key).is_dir()


def test_a_push_that_breaks_off_leaves_no_entry_and_is_done_again(
    toy, remote, visit, monkeypatch
) -> None:
    exchange, other = visit(toy), clone(toy, "other")
    with monkeypatch.context() as patch:
        patch.setattr(type(exchange.repo.cloud), "transfer", lambda *_: SimpleNamespace(failed=[1]))
        with pytest.raises(ConnectionError, match="prepare"):
            exchange.push("prepare")
    assert not (remote / "runs").exists()
    assert visit(other).fetch("prepare") is ABSENT
    visit(toy).push("prepare")
    assert visit(other).fetch("prepare") is DONE
    restore(visit, other, "prepare")


def test_a_folder_that_is_not_mounted_is_away_and_nothing_is_made_in_its_place(
    toy, remote, visit
) -> None:
    shutil.rmtree(remote)
    for repo, action in ((toy, "push"), (clone(toy, "other"), "fetch")):
        with pytest.raises(FileNotFoundError, match="no folder"):
            getattr(visit(repo), action)("prepare")
    assert not remote.exists()


def test_a_result_whose_output_is_gone_is_not_pushed_nor_one_that_dvc_does_not_share(
    toy, remote, visit
) -> None:
    shutil.rmtree(toy.path / ".dvc/cache")
    visit(toy).push("prepare")
    assert list(remote.rglob("*")) == []
    text = (toy.path / "dvc.yaml").read_text()
    uncached = text.replace("outs: [data/prepare]", "outs: [{data/prepare: {cache: false}}]")
    (toy.path / "dvc.yaml").write_text(uncached)
    assert visit(toy).fetch("prepare") is NOT_SHARED
    visit(toy).push("prepare")
    assert list(remote.rglob("*")) == []


def test_run_records_travel_beside_the_result_when_they_are_whole(
    toy, remote, visit, monkeypatch
) -> None:
    inputs = parse_lock((toy.path / "dvc.lock").read_bytes(), "dvc.lock")["prepare"].inputs
    keys = (inputs, "x" * 16)
    names = [f"data/runs/prepare/{key[:16]}-{number}" for number, key in enumerate(keys)]
    for name in names:
        (toy.path / name).mkdir(parents=True)
        (toy.path / name / "run.json").write_text(f'{{"ended": "{name}"}}')
        (toy.path / name / "usage.jsonl").write_text("{}")
    exchange, calls = visit(toy), []
    fs = type(exchange.entries.fs)
    put = fs.put_file

    def go_away(self: object, path: str, *places: object, **options: object) -> None:
        calls.extend([path] if "data/runs" in str(path) else [])
        if len(calls) == 2:  # one of the record's two files was sent
            raise OSError("away")
        put(self, path, *places, **options)

    with monkeypatch.context() as patch:
        patch.setattr(fs, "put_file", go_away)
        with pytest.raises(OSError, match="away"):
            exchange.push("prepare")
    cut = clone(toy, "cut")
    assert visit(cut).fetch("prepare") is DONE
    assert list_records(cut.path, "prepare", inputs) == []
    visit(toy).push("prepare")
    other = clone(toy, "other")
    assert visit(other).fetch("prepare") is DONE
    assert [record["ended"] for record in list_records(other.path, "prepare", inputs)] == names[:1]
    assert (other.path / names[0] / "usage.jsonl").read_text() == "{}"
    assert not (other.path / names[1]).exists()  # of other inputs


def test_of_several_results_that_of_the_lock_is_taken_if_it_can_be_had(toy, remote, visit) -> None:
    """Two clones ran the stage, whose output names its process. One committed its dvc.lock."""
    work = toy.path / "work.py"
    work.write_text(work.read_text() + RECORD)
    other = clone(toy, "other")
    for repo in (other, toy):
        repo.repro("-q", "prepare")
    assert toy.locked()["prepare"] != other.locked()["prepare"]
    visit(other).push("prepare")
    third = clone(toy, "third", with_lock=True)
    assert visit(third).fetch("prepare") is DONE
    restore(visit, third, "prepare")
    assert third.locked()["prepare"] == other.locked()["prepare"]
    visit(toy).push("prepare")
    fourth = clone(toy, "fourth", with_lock=True)
    assert visit(fourth).fetch("prepare") is DONE
    restore(visit, fourth, "prepare")
    assert fourth.locked()["prepare"] == toy.locked()["prepare"]
    # DVC alone looks at the newest entry of its run cache and at no other: here it is gone.
    first = toy.locked()["prepare"]
    toy.repro("-q", "-f", "prepare")
    for path in ("data", ".dvc/cache/files"):
        shutil.rmtree(toy.path / path)
    (toy.path / "started.log").unlink()
    assert visit(toy).fetch("prepare") is DONE
    restore(visit, toy, "prepare")
    assert toy.locked()["prepare"] in (first, other.locked()["prepare"])


# Finished seeds.


def finish_seed(root: Path, key: str, seed: int, text: str) -> Path:
    """The folder of a finished seed, as stages/runtime/finished_seeds.py leaves it."""
    folder = root / f".pipe/prepare-{key[:16]}/seed-{seed}/finished"
    (folder / "outputs").mkdir(parents=True)
    (folder / "outputs/weights").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    files = {"outputs/weights": [len(text), digest]}
    (folder / "manifest.json").write_text(json.dumps({"files": files}))
    return folder


def test_a_finished_seed_travels_whole_or_not_at_all(toy, remote, visit, capsys) -> None:
    other = clone(toy, "other")
    assert seeds.fetch(visit(toy), "prepare", 1) is ABSENT
    key = capsys.readouterr().out.split(KEY)[1].strip()
    here = finish_seed(toy.path, key, 1, "of seed 1")
    there = other.path / here.relative_to(toy.path)
    (here / "outputs/weights").write_text("of seed 2")  # damaged: it is not sent
    seeds.push(visit(toy), "prepare")
    assert seeds.fetch(visit(other), "prepare", 1) is ABSENT
    (here / "outputs/weights").write_text("of seed 1")
    seeds.push(visit(toy), "prepare")
    assert seeds.fetch(visit(other), "prepare", 0) is ABSENT
    assert not there.exists()
    assert seeds.fetch(visit(other), "prepare") is ABSENT  # gets all
    assert (there / "outputs/weights").read_text() == "of seed 1"
    assert seeds.fetch(visit(other), "prepare", 1) is DONE
    shutil.rmtree(there)
    (archive,) = (remote / "seeds").rglob("*.tar")
    shutil.copy(archive, archive.with_name(f"{'0' * len(key)}-2.tar"))  # of other inputs
    assert [seed for seed, _ in seeds.list_archives(visit(other), "prepare", key)] == [1]
    whole = archive.read_bytes()
    for damaged in (whole.replace(b"of seed 1", b"of seed 2"), whole[:-9000], b"x"):
        assert damaged != whole
        archive.write_bytes(damaged)
        assert seeds.fetch(visit(other), "prepare", 1) is ABSENT
        assert not there.exists()
        seeds.push(visit(toy), "prepare")
    assert seeds.fetch(visit(other), "prepare", 1) is DONE
    visit(toy).push("prepare")
    assert not archive.exists(), "the remote has the result"
    (other.path / "raw.txt").write_text("edited")
    assert seeds.fetch(visit(other), "prepare", 1) is ABSENT


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "{}/outside/evil"])
def test_no_file_of_an_archive_leads_out_of_its_folder(
    toy, remote, visit, capsys, tmp_path, name
) -> None:
    assert seeds.fetch(visit(toy), "prepare", 1) is ABSENT
    key = capsys.readouterr().out.split(KEY)[1].strip()
    folder = finish_seed(tmp_path / "sent", key, 1, "of seed 1")
    archive = remote / f"seeds/prepare/{key}-1.tar"
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w") as file:
        file.add(folder, arcname=".")
        file.add(folder / "manifest.json", arcname=name.format(tmp_path))
    seeds.fetch(visit(toy), "prepare", 1)
    assert all("finished" in path.parts for path in tmp_path.rglob("evil"))


# What a stage asks of the remote: scripts in place of flows.remote and of DVC.

ROWS = YAML(typ="safe").load(Path(__file__).with_name("cases.yaml"))
REMOTE = """\
import sys
with open("asked", "a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
number = len(open("asked").readlines()) - 1
status, _, text = open("answers").read().split("\\n")[number].partition(":")
print(text)
sys.exit(int(status))
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch) -> Callable[[list[str], str], Runner]:
    """`script(answers, output)`: the remote answers with each in its turn, DVC prints this."""

    def make(answers: list[str], output: str) -> Runner:
        (tmp_path / "flows").mkdir()
        (tmp_path / "flows/__init__.py").touch()
        (tmp_path / "flows/remote.py").write_text(REMOTE)
        (tmp_path / "flows/seeds.py").write_text("open('ran', 'w')\n")
        (tmp_path / "answers").write_text("\n".join(answers))
        (tmp_path / "output").write_text(f"{ROWS['texts'].get(output, output)}\n")
        (tmp_path / "dvc").write_text('echo "$@" >> ran; cat output; ! grep -q Error output')
        monkeypatch.setattr(execute, "DVC", ("sh", "dvc"))
        monkeypatch.setattr(share, "LONGEST_PAUSE", 0.0)
        return Runner(root=tmp_path, pause_seconds=0.0)

    return make


@pytest.mark.parametrize("name", ROWS["shared"])
def test_a_remote_result_that_is(script, tmp_path, monkeypatch, name: str) -> None:
    row = ROWS["shared"][name]
    monkeypatch.setattr(share, "OUTAGE_SECONDS", row.get("patience", 600.0))

    def compute(key: str) -> Result:
        assert key == "k"
        return Result(outcome=StageOutcome(row["elsewhere"]), reason="there", attempts=3)

    runner = script(row["answers"], row["prints"])
    if "elsewhere" in row:
        result = share.run_shared("a", runner, compute=compute)
    else:
        result = share.run_shared("a", runner, inputs="k")
    assert result.outcome.value == row["outcome"], result.reason
    assert result.reason != "there" or result.attempts == 3
    assert (tmp_path / "asked").read_text().splitlines() == row["asked"]
    may_run = row["outcome"] != "failed" or "Error" in row["prints"]
    assert (tmp_path / "ran").exists() == may_run


@pytest.mark.parametrize(("number", "status"), [
    (errno.ENOSPC, RemoteStatus.FAILED),  # of this disk
    (errno.EIO, RemoteStatus.AWAY), (errno.ECONNRESET, RemoteStatus.AWAY),
])  # fmt: skip
def test_an_error_that_waiting_does_not_cure_is_final(monkeypatch, number: int, status) -> None:
    def fail(_: Path) -> None:
        raise OSError(number, "an error")

    monkeypatch.setattr(remote_command, "ResultExchange", fail)
    monkeypatch.setattr(sys, "argv", ["remote", "fetch", "a"])
    assert remote_command.main() is status


@pytest.mark.parametrize(("error", "status"), [(ValueError("a"), 2), (share.RemoteError("a"), 1)])
def test_a_command_that_the_remote_ends_had_the_right_words(
    error, status, capsys, monkeypatch
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(command_line, "FLOWS", Path(__file__).parent)
    with pytest.raises(SystemExit) as ended:
        command_line.run(fail)
    assert (ended.value.code, capsys.readouterr().err) == (status, "a\n")


def test_an_error_of_a_library_says_nothing_of_the_words() -> None:
    with pytest.raises(json.JSONDecodeError):
        command_line.run(lambda: json.loads(""))


@pytest.mark.parametrize("row", ROWS["shared_seeds"])
def test_a_seed_is_fetched_or_computed_and_pushed(script, tmp_path, row) -> None:
    result = share.run_shared("a", script(row["answers"], ""), inputs="k", seed=1)
    assert result.outcome.value == row["outcome"]
    assert (tmp_path / "asked").read_text().splitlines() == row["asked"]
    assert (tmp_path / "ran").exists() == (row["outcome"] == "executed")


@pytest.mark.parametrize(("url", "hint"), [(None, "dvc remote add"), ("oss://bucket", "dvc-oss")])
def test_without_a_remote_or_its_driver_the_flag_is_refused(new_toy: ToyRepo, url, hint) -> None:
    if url is not None:
        new_toy.run("dvc", "remote", "add", "--default", "results", url)
    output = new_toy.flow("--remote", "prepare", code=1)
    assert hint in " ".join(output.replace("│", " ").split())
    assert WAITING not in output
    assert new_toy.started() == []


# Clones with a real remote.

AWS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
WAITING = "the DVC remote does not answer"


def flow_until(repo: ToyRepo, *arguments: str, then: Callable[[], object]) -> str:
    """`flow`, with something done when it first says that it waits."""
    flow = repo.start(sys.executable, "-m", "flows.local", *arguments)
    lines: list[str] = []
    for line in flow.stdout:
        if WAITING in line and not any(WAITING in old for old in lines):
            then()
        lines.append(line)
    assert flow.wait() == 0, "".join(lines)
    return "".join(lines)


@contextmanager
def serve_s3() -> Iterator[int]:
    """The port of an S3 server on loopback with a bucket `results`."""
    import boto3
    from moto.server import ThreadedMotoServer  # its Flask breaks vLLM's tests in the same process

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    try:
        boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{port}",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            region_name="us-east-1",
        ).create_bucket(Bucket="results")
        yield port
    finally:
        server.stop()


@pytest.mark.weekly
def test_a_remote_that_is_away_is_waited_for_and_nothing_is_computed_twice(
    new_toy: ToyRepo,
) -> None:
    clones = Clones(new_toy, AWS)
    with serve_s3() as port, Proxy(port) as proxy:
        clones.share("s3://results/toy", endpointurl=proxy.url)
        one, two = clones.clone("one"), clones.clone("two")
        assert "1 executed" in one.flow("prepare")

        def come() -> None:
            proxy.port = port

        proxy.port = 0
        # It was run before anything was shared. Now it is pushed, though nothing is run.
        assert "1 skipped" in flow_until(one, "--remote", "prepare", then=come)
        proxy.port = 0
        output = flow_until(two, "--remote", "side@left", then=come)
        assert "1 executed, 1 restored" in output
        assert "1 restored, 1 skipped" in one.flow("--remote", "side@left")
    assert count_starts(one, two) == {"prepare": 1, "left": 1}
    assert one.locked() == two.locked()


@pytest.mark.slow
def test_a_remote_that_is_gone_for_good_costs_no_result(new_toy: ToyRepo, tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    remote.mkdir()
    clones = Clones(new_toy)
    clones.share(str(remote))
    one = clones.clone("one")
    # It goes while the stage runs: the stage itself removes it.
    work = one.path / "work.py"
    work.write_text(f"import shutil\nshutil.rmtree('{remote}')\n" + work.read_text())
    output = one.flow("--remote", "prepare", code=1, POSTTRAIN_REMOTE_SECONDS="3")
    assert "1 failed" in output
    assert not remote.exists(), "DVC would have made an empty folder where a disk is not mounted"
    shutil.rmtree(one.path / "data")
    assert "1 restored" in one.flow("prepare")
    assert count_starts(one) == {"prepare": 1}
