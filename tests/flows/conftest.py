"""A real DVC repository with four toy stages, so that the flows are tested on real work."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from clones import unused_port, wait_until

REPOSITORY = Path(__file__).resolve().parents[2]

# prepare -> side@left, side@right -> track
DVC_YAML = """\
stages:
  prepare:
    cmd: python work.py data/prepare raw.txt
    deps: [raw.txt, work.py]
    outs: [data/prepare]
  side:
    foreach: [left, right]
    do:
      cmd: python work.py data/side/${item} data/prepare/out.txt
      deps: [data/prepare, work.py]
      params: ["${item}"]
      outs: ["data/side/${item}"]
      meta: {gpu: 1}
  track:
    cmd: python work.py data/track data/side/left/out.txt data/side/right/out.txt
    deps: [data/side/left, data/side/right]
    outs: [data/track]
"""
PARAMS_YAML = "left: {sleep: 0.0, mode: work}\nright: {sleep: 0.0, mode: work}\n"
# Writes its inputs and its name into out.txt; what else it does, params.yaml says.
WORK = """\
import os, pathlib, shutil, signal, subprocess, sys, time
from ruamel.yaml import YAML
out, *inputs = map(pathlib.Path, sys.argv[1:])
section = YAML(typ="safe").load(pathlib.Path("params.yaml")).get(out.name, {})
mode = section.get("mode", "work")
print(section.get("time", "") + f"working on {out}")
with open("started.log", "a") as log:
    log.write(f"{out.name} {os.getpid()}\\n")
time.sleep(section.get("sleep", 0.0))
while mode == "wait" and not pathlib.Path("release").exists():
    time.sleep(0.05)
if mode == "value_error":
    raise ValueError("expected a number, found a word")
if mode == "full_once" and not pathlib.Path("full").exists():
    pathlib.Path("full").touch()
    raise RuntimeError("CUDA out of memory")
if mode == "killed_once" and not pathlib.Path("killed").exists():
    pathlib.Path("killed").touch()
    os.kill(os.getpid(), signal.SIGKILL)
if mode == "spawn":
    subprocess.run([sys.executable, "-c",
                    "import os, time; open('grandchild.pid', 'w').write(str(os.getpid())); "
                    "time.sleep(60)"], check=True)
if out.exists():
    shutil.rmtree(out)
out.mkdir(parents=True)
(out / "out.txt").write_text("".join(i.read_text() for i in inputs) + f"{out.name} {section}\\n")
"""


@pytest.fixture
def toy_repository(tmp_path: Path) -> Path:
    """The root of a fresh DVC repository in which nothing has run."""
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "dvc.yaml").write_text(DVC_YAML)
    (root / "params.yaml").write_text(PARAMS_YAML)
    (root / "work.py").write_text(WORK)
    (root / "raw.txt").write_text("raw\n")
    (root / ".gitignore").write_text("/data/**\n!/data/**/\n")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], cwd=root, check=True)
    return root


@pytest.fixture
def set_params(toy_repository: Path) -> Callable[..., None]:
    """`set_params(left={"sleep": 1})` changes one section of the toy's params.yaml."""
    from ruamel.yaml import YAML

    def change(**sections: dict[str, object]) -> None:
        path = toy_repository / "params.yaml"
        content = YAML(typ="safe").load(path)
        for name, values in sections.items():
            content.setdefault(name, {}).update(values)
        YAML(typ="safe").dump(content, path)

    return change


@pytest.fixture
def started(toy_repository: Path) -> Callable[[], list[str]]:
    """Names of the stages whose command has run, in the order in which they started."""
    path = toy_repository / "started.log"
    return lambda: (
        [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []
    )


@pytest.fixture
def grandchild(toy_repository: Path) -> Callable[[], psutil.Process]:
    """Waits for the process that a stage in mode `spawn` starts."""
    path = toy_repository / "grandchild.pid"

    def wait() -> psutil.Process:
        wait_until(lambda: path.exists() and path.read_text(), 400, "the stage's child process")
        return psutil.Process(int(path.read_text()))

    return wait


@pytest.fixture
def prefect_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment whose Prefect has a home, a database and a profile of its own."""
    for name in list(os.environ):
        if name.startswith("PREFECT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    return os.environ | {"PREFECT_HOME": str(tmp_path / "prefect"), "NO_COLOR": "1"}


@pytest.fixture
def server_environment(prefect_environment: dict[str, str], free_port: int) -> dict[str, str]:
    """The same, for a server with a password on `free_port` and its clients."""
    return prefect_environment | {
        "PREFECT_API_URL": f"http://127.0.0.1:{free_port}/api",
        "PREFECT_SERVER_API_AUTH_STRING": "admin:of-this-test",
        "PREFECT_API_AUTH_STRING": "admin:of-this-test",
    }


@pytest.fixture
def checkout_with_flows(toy_repository: Path) -> Path:
    """The toy repository with this project's flows/ and Prefect's two files in it."""
    shutil.copytree(
        REPOSITORY / "flows", toy_repository / "flows", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("prefect.yaml", "prefect.toml"):
        shutil.copy(REPOSITORY / name, toy_repository / name)
    return toy_repository


@pytest.fixture
def free_port() -> int:
    """A loopback port that nobody listens on."""
    return unused_port()
