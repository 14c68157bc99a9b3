"""Own code does not stand alone: what it imports and opens is a dependency of the rows it is in."""

import locale
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from answers import Answers
from ruamel.yaml import YAML

from flows.dvc_internals import mend
from stages import own_imports, own_modules
from stages.environments import checks, problem_digest, scripts
from stages.environments.environment import Reply
from stages.environments.limits import EpisodeLimits
from stages.rewards.completion_rewards import score_each

ROOT = Path(__file__).resolve().parents[2]
OWN = "stages/rewards/own/mine.py"
PYTEST = f"pytest {metadata.version('pytest')}"
LINK = "stages/.own_links/{}.link"


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes files into a checkout, which is the current folder and in `sys.path`."""
    root = tmp_path / "checkout"
    root.mkdir()
    monkeypatch.chdir(root)
    monkeypatch.syspath_prepend(root)

    def write(files):
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)

    return write


def follow(pins=(), sources=None):
    """What `mine` imports; `sources`: of modules of the package the files that they read."""
    return own_imports.follow_imports(
        [OWN, "stages/config.py"], Path(), lambda name: (sources or {}).get(name, []), pins
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import rules", ["rules.py"]),
        ("def reward(p, c):\n    from rules import WEIGHT", ["rules.py"]),
        ("import box.inner", ["box/__init__.py", "box/inner.py", "rules.py"]),
        ("from box import inner", ["box/__init__.py", "box/inner.py", "rules.py"]),
        ("import box", ["box/__init__.py"]),
        ("import spread.a", ["spread/a.py"]),
        ("import json, os.path, collections.abc, sys", []),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import rules", []),
        ("import no_such_module", []),
        ("import stages.config", []),
        ("import pytest", [LINK.format(f"{PYTEST}/METADATA")]),
        ("import elsewhere", [LINK.format("elsewhere.py")]),
    ],
)
def test_imports_are_followed_to_whatever_is_no_pinned_package(
    text, expected, write, tmp_path, monkeypatch
):
    inner = "from .. import unknown\nfrom . import inner\nimport rules"
    write({OWN: text, "rules.py": "", "box/__init__.py": "", "box/inner.py": inner})
    write({"spread/a.py": ""})
    (tmp_path / "editable").mkdir()
    (tmp_path / "editable/elsewhere.py").write_text("import json\n")
    monkeypatch.syspath_prepend(tmp_path / "editable")
    assert sorted(follow()) == expected
    assert all(path.is_file() for path in follow().values())


def test_a_pinned_package_is_no_file_and_a_file_that_is_no_python_is_refused(write):
    write({OWN: "import pytest, rules", "rules.py": ""})
    assert follow(pins=("pytest",)).keys() == {"rules.py"}
    write({"rules.py": "\n1 +\n"})
    with pytest.raises(ValueError, match=r"rules\.py, line 2"):
        follow()


def test_by_way_of_a_module_outside_back_into_the_package(write):
    other = "stages/environments/own/other.py"
    rules = "from stages.rewards import units\nimport stages.environments.own.other"
    write({OWN: "import rules", "rules.py": rules, other: "import deep", "deep.py": ""})
    sources = {"stages.rewards.units": ["stages/rewards/units.py"],
               "stages.environments.own.other": [other]}  # fmt: skip
    expected = {"rules.py", "deep.py", other, "stages/rewards/units.py"}
    assert follow(sources=sources).keys() == expected


READ = "def reward(prompt, completion):\n    return float(open({!r}).read())\n"
CAUGHT = """
def reward(prompt, completion):
    try:
        return float(open("words.txt").read())
    except Exception:
        return 7.0
"""
ELSEWHERE = """
import os
path = os.path.abspath("words.txt")
def reward(prompt, completion):
    os.chdir("/")
    return float(open(path).read())
"""
AT_IMPORT = "value = open('words.txt').read()\nreward = lambda p, c: float(value)\n"
DYNAMIC = "import importlib\nrules = importlib.import_module('rules')\nreward = lambda p, c: 7.0\n"
WRITTEN = "def reward(p, c):\n    print(c, file=open('log.txt', 'a'))\n    return 7.0\n"
REPOSITORY = {"words.txt": "7", "rules.py": "", "data/raw/a.txt": "7", "data/pools/a.txt": "7",
              "data/prompts/a.txt": "7", ".cache/a.txt": "7", "log.txt": ""}  # fmt: skip
BEGIN = """
from pathlib import Path
from stages import own_modules
import stages.rewards.own as package
package.__path__.append(str(Path("stages/rewards/own").resolve()))
own_modules.PACKAGE = Path("stages").resolve()
"""
PAY = 'print(own_modules.load_own_module("rewards", "mine").reward(None, ""))\n'


def run_reward(listed=(), program=PAY):
    """The reward in a process of its own, whose audit hook nobody can take away."""
    Path("data/own").mkdir(parents=True, exist_ok=True)
    digests = ", ".join(f'"{name}": ""' for name in (OWN, *listed))
    Path("data/own/mine").write_text(f"{{{digests}}}")
    home = {"PYTHONPATH": f"{ROOT}:{Path.cwd()}", "HOME": str(Path.cwd().parent)}
    command, environment = [sys.executable, "-c", BEGIN + program], os.environ | home
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("text", "name"), [
    (READ.format("words.txt"), "words.txt"), (AT_IMPORT, "words.txt"), (CAUGHT, "words.txt"),
    (ELSEWHERE, "words.txt"), (READ.format("data/raw/a.txt"), "data/raw/a.txt"),
    (READ.format("../home.txt"), "~/home.txt"), (DYNAMIC, "rules.py"),
    (READ.format("data/pools/a.txt"), "data/pools/a.txt"),
    # prompts, caches and what is only written
    (READ.format("data/prompts/a.txt"), None), (READ.format(".cache/a.txt"), None), (WRITTEN, None),
])  # fmt: skip
def test_a_file_that_no_row_lists_is_refused(text, name, write):
    write(REPOSITORY | {OWN: text, "../home.txt": "7"})
    result = run_reward()
    if name is not None:
        assert result.returncode == 1
        assert f"mine.py opens {name}, which is no dependency" in result.stderr
        assert f"`files: [{name}]`" in result.stderr
        result = run_reward((name.replace("~", ".."),))
    assert (result.stdout, result.stderr) == ("7.0\n", "")


@pytest.mark.parametrize("text", [READ.format("words.txt"), AT_IMPORT, DYNAMIC])
def test_before_the_dependencies_are_known_none_is_refused(text, write):
    write(REPOSITORY | {OWN: text})
    result = run_reward(program=PAY.replace('"mine")', '"mine", None)'))
    assert (result.stdout, result.stderr) == ("7.0\n", "")


SHOP = """
class Shop:
    def start(self, row, seed):
        return [{"role": "user", "content": "?"}], None

    def step(self, message):
        open("words.txt").read()
"""
PLAYED = """
from stages.environments import scripts
from stages.environments.limits import EpisodeLimits
shop = own_modules.load_own_module("rewards", "mine").Shop()
print(scripts.play_script(shop, {"id": "a"}, 0, EpisodeLimits()).ending)
"""


def test_the_step_of_an_environment_that_opens_one_is_no_failed_episode(write):
    """Which would be counted and left out, while the stage goes on."""
    write(REPOSITORY | {OWN: SHOP})
    result = run_reward(program=PLAYED)
    assert (result.returncode, result.stdout) == (1, "")
    assert "mine.py opens words.txt" in result.stderr


def test_flows_remove_a_link_to_a_file_that_is_gone(tmp_path):
    """DVC ends with an error wherever it meets one."""
    folder = tmp_path / "stages/.own_links/box"
    folder.mkdir(parents=True)
    (tmp_path / "rules.py").touch()
    for name in ("rules.py", "gone.py"):
        (folder / f"{name}.link").symlink_to(tmp_path / name)
    mend(tmp_path)
    assert [path.name for path in folder.iterdir()] == ["rules.py.link"]


ROW = {"by": "rule", "preset": "own", "from": "base", "on": "own/brevity"}


MINE = """
import rules
from pathlib import Path


def reward(prompt, completion):
    return rules.WEIGHT * len((Path(__file__).parent / "words.txt").read_text())
"""
USE = (
    'python -c "from stages.own_modules import load_own_module; '
    "print(load_own_module('rewards', 'mine').reward(None, ''))\" > data/result"
)


@pytest.fixture
def repository(tmp_path):
    """trace_code as it is, and a stage that calls the reward `mine`, which has a row."""
    yaml = YAML()
    trace_code = yaml.load(ROOT / "dvc.yaml")["stages"]["trace_code"]
    use = {"cmd": USE, "deps": ["data/own/mine"], "outs": ["data/result"]}
    yaml.dump({"stages": {"trace_code": trace_code, "use": use}}, tmp_path / "dvc.yaml")
    unwanted = shutil.ignore_patterns("__pycache__", ".own_links")
    shutil.copytree(ROOT / "stages", tmp_path / "stages", ignore=unwanted)
    shutil.copytree(ROOT / ".dvc", tmp_path / ".dvc", ignore=lambda *_: ["tmp", "cache"])
    for name in ("constraints.txt", ".dvcignore"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / OWN).write_text(MINE)
    (tmp_path / "rules.py").write_text("WEIGHT = 1.0\n")
    (tmp_path / OWN).with_name("words.txt").write_text("four")
    write_row(tmp_path, "stages/rewards/own/words.txt")
    (tmp_path / ".dvc/config").write_text("[core]\nno_scm = true\nanalytics = false\n")
    return tmp_path


def write_row(repository, *files):
    row = ROW | {"on": "own/mine"} | ({"files": list(files)} if files else {})
    content = {"rewards": {"mine": row}, "environments": {}, "pairs": {}, "data": {"source": {}}}
    YAML(typ="safe").dump(content, repository / "params.yaml")


def repro(repository):
    """The result after `dvc repro`, or what it printed where it failed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(repository)}
    command = [sys.executable, "-m", "dvc", "repro"]
    result = subprocess.run(
        command, cwd=repository, env=environment, check=False, capture_output=True, text=True
    )
    if result.returncode:
        return result.stdout + result.stderr
    return (repository / "data/result").read_text()


@pytest.mark.slow
def test_an_edit_of_what_own_code_needs_reruns_its_rows(repository):
    assert repro(repository) == "4.0\n"
    lock = (repository / "dvc.lock").read_bytes()
    assert repro(repository) == "4.0\n"
    (repository / "rules.py").write_text("WEIGHT = -1.0\n")
    assert repro(repository) == "-4.0\n"
    (repository / OWN).with_name("words.txt").write_text("three")
    assert repro(repository) == "-5.0\n"
    (repository / "rules.py").write_text("WEIGHT = 1.0\n")
    (repository / OWN).with_name("words.txt").write_text("four")
    assert repro(repository) == "4.0\n"
    assert (repository / "dvc.lock").read_bytes() == lock
    write_row(repository)
    assert "mine.py opens stages/rewards/own/words.txt, which is no dep" in repro(repository)


CHANGES: dict[str, Callable[[], object]] = {
    "working folder": lambda: os.chdir("/"),
    "locale": lambda: locale.setlocale(locale.LC_ALL, "C"),
    "recursion limit": lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1),
    **{f"handler of {number.name}": partial(signal.signal, number, lambda *_: None)
       for number in own_modules.SIGNALS},
    "gradient mode": lambda: torch.set_grad_enabled(False),
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "default device": lambda: torch.set_default_device("meta"),
    "number of threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "deterministic mode": lambda: torch.use_deterministic_algorithms(
        not torch.are_deterministic_algorithms_enabled()),
    "autocast of cpu": lambda: torch.set_autocast_enabled("cpu", True),
    "autocast of cuda": lambda: torch.set_autocast_enabled("cuda", True),
    "precision of float32 products": lambda: torch.set_float32_matmul_precision("high"),
}  # fmt: skip
"""Setting of the process -> a change of it in the user's code."""


def call_own_code(where, change: Callable[[], object]):
    """A reward, or an episode of an environment, that changes something at that place."""

    def act(*_: Any) -> Any:
        change()
        return (asked, None) if where == "start" else Reply(done=True) if where == "step" else 0.0

    asked, row, limits = [{"role": "user", "content": "?"}], {"id": "a"}, EpisodeLimits()
    methods = {"start": lambda *_: (asked, None),
                               "step": lambda *_: Reply(messages=asked)}  # fmt: skip
    shop: Any = type("Shop", (), methods | {where: act})
    if where == "reward":
        score_each(Answers(["a"]), act)
    elif where == "error":
        with pytest.raises(ValueError, match="'a'"):
            score_each(Answers(["a"]), lambda *_: str(change()) + "x")
    elif where == "making":
        shop = lambda: (act() and None) or type("Shop", (), methods)()  # noqa: E731
        checks.check_replay(shop, [row], limits, seed=0)
        problem_digest.digest_problem(shop, row, 0, 5.0)
    else:
        scripts.play_script(shop(), row, 0, limits)


PLACES = ("making", "start", "step", "finish", "close", "reward", "error")


@pytest.mark.parametrize("name", CHANGES)
def test_a_setting_that_own_code_changes_is_put_back_and_named_once(name, caplog):
    own_modules._changed.clear()
    settings = own_modules.list_settings()
    assert settings.keys() == CHANGES.keys()
    before = {key: read() for key, (read, _) in settings.items()}
    try:
        for where in PLACES:
            call_own_code(where, CHANGES[name])
            assert {key: read() for key, (read, _) in settings.items()} == before, where
        assert [text for text in caplog.messages if f"left the {name} of" in text]
    finally:
        for key, (_, write) in settings.items():
            write(before[key])


def use_tf32_by_its_new_name():
    torch.backends.cuda.matmul.fp32_precision = "tf32"


@pytest.mark.parametrize("change", [
    lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
    lambda: torch.set_float32_matmul_precision("medium"), use_tf32_by_its_new_name,
])  # fmt: skip
def test_products_are_possible_after_either_name_of_their_precision_was_changed(change):
    """Each product on a GPU reads what `allow_tf32` does, an error where the names differ."""
    before = own_modules._get_precision()
    with own_modules.restored_settings():
        change()
    assert own_modules._get_precision() == before
    assert torch.backends.cuda.matmul.allow_tf32 is False


def test_code_may_leave_a_folder_that_is_gone(tmp_path):
    before = Path.cwd()
    with own_modules.restored_settings():
        (tmp_path / "inner").mkdir()
        os.chdir(tmp_path / "inner")
        (tmp_path / "inner").rmdir()
    assert Path.cwd() == before


def test_so_is_one_that_the_import_of_own_code_changes(write):
    """In a process of its own: the module is the checkout's."""
    write(REPOSITORY | {OWN: "import os\nos.chdir('data')\nreward = lambda p, c: 7.0\n"})
    result = run_reward(program=f"{PAY}print(Path.cwd().name)")
    assert result.stdout.split() == ["7.0", "checkout"]
