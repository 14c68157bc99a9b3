"""The points of a grid of parameters, and the table of the experiments that they become."""

import subprocess
from contextlib import suppress

import pytest
from toy_repo import init_dvc

from flows.experiments import tabulate_experiments
from flows.sweep import check_changes, expand_grid, name_point, replace_experiment


def test_the_points_of_a_grid() -> None:
    changes = ["a.b=1,2", "+policies.c.d=x", "seeds=[0,1]", "stages/presets.yaml:e.f=3,4"]
    points = expand_grid(changes)
    assert sorted(map(sorted, points)) == sorted(
        sorted([f"a.b={a}", "+policies.c.d=x", "seeds=[0,1]", f"stages/presets.yaml:e.f={b}"])
        for a in (1, 2)
        for b in (3, 4)
    )
    assert len({name_point(point) for point in points}) == 4


@pytest.mark.parametrize(
    "changes", [["a.b=1", "c.d=0.5"], ["seeds=[0,1]"], ["~a=.."], ["stages/presets.yaml:e.f=x y"]]
)
def test_a_point_has_a_name_that_git_takes_and_no_folder(changes: list[str]) -> None:
    name = name_point(changes)
    command = ["git", "check-ref-format", f"refs/{name}"]
    assert subprocess.run(command, check=False).returncode == 0
    assert "/" not in name
    assert not name.startswith("-")


@pytest.mark.parametrize("change", ["a", "=3", "a=[1"])
def test_a_change_that_cannot_be_read_is_refused(change: str) -> None:
    with pytest.raises(ValueError, match=change[-1]):
        expand_grid([change])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("a.c=1", r"params.yaml: Could not override 'a.c'"),
        ("other.yaml:a=1", "other.yaml"),
        ("+a.c=1", None),
        ("a.b=1", None),
    ],
)
def test_a_key_that_the_file_does_not_have_is_refused(change, words, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("a: {b: 0}\n")
    if words is None:
        check_changes([change])
    else:
        with pytest.raises(ValueError, match=words):
            check_changes([change])
    assert (tmp_path / "params.yaml").read_text() == "a: {b: 0}\n"


def data(steps: int, **measures: dict[str, float]) -> dict[str, object]:
    params = {"params.yaml": {"data": {"seeds": [0, 1], "grpo": {"num_steps": steps}}}}
    metrics = {f"data/headlines/{name}.json": {"data": of} for name, of in measures.items()}
    return {"params": params, "metrics": metrics}


def experiment(name: str, content: object, state: str | None = None) -> dict[str, object]:
    executor = {"state": state} if state else None
    return {"name": name, "revs": [{"data": content}], "executor": executor}


@pytest.mark.parametrize(
    ("end", "left", "killed"),  # killed: the agent of an earlier run of the point
    [(0, "new", False), (1, "old", True), (TimeoutError, "old", False)],
)
def test_an_experiment_is_there_until_another_takes_its_place(end, left, killed, tmp_path) -> None:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=tmp_path, check=True, text=True,
                              capture_output=True).stdout.strip()  # fmt: skip

    def commit(message: str) -> str:
        git("commit", "-qm", message, "--allow-empty")
        return git("rev-parse", "HEAD")

    init_dvc(tmp_path)
    base = commit("base")
    commits = {name: commit(name) for name in ("old", "new")}
    git("reset", "-q", "--hard", base)
    name = name_point(["a.b=1", "c=[0,1]"])
    ref = f"refs/exps/{base[:2]}/{base[2:]}/{name}"
    git("update-ref", f"{ref}@before" if killed else ref, commits["old"])

    def compute() -> int:
        assert git("for-each-ref", "--format=%(refname)", "refs/exps") == f"{ref}@before"
        if end == 0:
            git("update-ref", ref, commits["new"])
        if not isinstance(end, int):
            raise end
        return end

    with suppress(TimeoutError):
        assert replace_experiment(name, tmp_path, compute) == end
    shown = git("for-each-ref", "--format=%(refname) %(objectname)", "refs/exps")
    assert shown == f"{ref} {commits[left]}"


BEFORE = data(4, accuracy={"sft": 60.0, "grpo": 90.5}, gain={"grpo": 30.5})
SHOWN = [
    {"rev": "workspace", "name": None, "data": BEFORE, "experiments": None},
    {
        "rev": "0123456789",
        "name": "main",
        "data": BEFORE,
        "experiments": [
            experiment("b", data(16, accuracy={"sft": 60.0, "grpo": 90.5}), "running"),
            experiment("a", data(8, accuracy={"sft": 60.0, "grpo": 92.25})),
        ],
    },
]


def test_a_row_an_experiment_with_what_it_changed_and_no_number_before_it_ended() -> None:
    assert tabulate_experiments(SHOWN) == ("accuracy", [
        {"experiment": "main", "grpo.num_steps": "4", "sft": "60", "grpo": "90.5"},
        {"experiment": "a", "grpo.num_steps": "8", "sft": "60", "grpo": "92.25"},
        {"experiment": "b (running)", "grpo.num_steps": "16"},
    ])  # fmt: skip


def test_another_measure_is_tabulated_and_one_that_nobody_has_refused() -> None:
    measure, rows = tabulate_experiments(SHOWN, "gain")
    assert (measure, rows[0]["grpo"]) == ("gain", "30.5")
    assert "grpo" not in rows[1]
    with pytest.raises(ValueError, match="accuracy, gain"):
        tabulate_experiments(SHOWN, "gane")
