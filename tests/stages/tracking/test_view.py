"""MLflow as a view of a finished pipeline, and of running stages, in a real sqlite store."""

import json
import shutil
import socket
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mlflow
import pytest
from made_pipeline import evaluate, make_pipeline, write
from mlflow.entities import ViewType

from stages import track
from stages.runtime import journal
from stages.tables import NAME
from stages.tracking import headlines, lockfile, store, view

FOLDER = Path(".pipe/train@dpo-0123456789abcdef")
KEY = "seed-0/loss/total"


@pytest.fixture(scope="module")
def database(tmp_path_factory) -> Path:
    """A store, whose making takes seconds; to be copied."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with store.connect(folder):
            pass
    return folder / "mlflow.db"


@pytest.fixture(autouse=True)
def place(database: Path, tmp_path: Path, monkeypatch) -> Path:
    """The working folder: its path has all that an address would write in another way."""
    folder = tmp_path / "tüy 100% #1"
    folder.mkdir()
    shutil.copy(database, folder / "mlflow.db")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "here")  # its files lie here, too
    write(Path("params.yaml"), "seeds: [0]\n")
    return folder


class View:
    """What a store holds."""

    def __init__(self) -> None:
        self.client = mlflow.MlflowClient(store.find_uri(Path.cwd()))
        self.experiment = self.client.get_experiment_by_name("here").experiment_id

    def runs(self) -> dict[str, Any]:
        """By name; of executions after the first, by name and number."""
        order, result = ["attributes.start_time ASC"], {}
        options = {"run_view_type": ViewType.ALL, "order_by": order}
        for run in self.client.search_runs([self.experiment], **options):
            name, execution = run.info.run_name, run.data.tags.get(view.EXECUTION, "1")
            name += f" {execution[0]}" if execution[0] in "23" else ""
            assert name not in result, "a duplicate"
            result[name] = run
        return result

    def points(self, name: str, key: str) -> list[tuple[int, float]]:
        history = self.client.get_metric_history(self.runs()[name].info.run_id, key)
        return [(point.step, point.value) for point in history]


def list_files(client: Any, run_id: str, folder: str | None = None) -> set[str]:
    result = set()
    for item in client.list_artifacts(run_id, folder):
        result |= list_files(client, run_id, item.path) if item.is_dir else {item.path}
    return result


def sync() -> int:
    return view.sync_entries(lockfile.read_entries())[0]


STAGES = ("train sft", "train dpo", "evaluate sft", "evaluate dpo", "compare")


def test_a_pipeline_is_one_run_per_stage_below_a_manifest() -> None:
    make_pipeline()
    (trained,) = [entry for entry in lockfile.read_entries() if entry.stage == "train@sft"]
    used = journal.JournalRow(index=0, time=1.0, metrics={"cpu_cores": 0.75})
    write(trained.record / "usage-seed-0.jsonl", json.dumps(asdict(used)) + "\n")
    assert sync() == 6
    mine = View()
    runs, lock = mine.runs(), lockfile.hash_entries(lockfile.read_entries())[:8]
    assert set(runs) == {*STAGES, f"manifest {lock}"}
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    manifest = runs.pop(f"manifest {lock}")
    assert {run.data.tags["pipeline_run"] for run in runs.values()} == {lock}
    assert {run.data.tags["mlflow.parentRunId"] for run in runs.values()} == {manifest.info.run_id}
    assert manifest.info.start_time == min(run.info.start_time for run in runs.values())
    assert [path.name for path in Path.cwd().parent.iterdir()] == [Path.cwd().name]

    # a stage: where it came from, its curves and their mean, its evaluation
    dpo, entry = runs["train dpo"], lockfile.read_entries()[1]
    tags = {name.removeprefix("posttrain."): value for name, value in dpo.data.tags.items()}
    expected = {
        "execution_id": "1train@dpo", "input_key": entry.input_key,
        "result_hash": entry.result_hash, "mlflow.source.git.commit": "c0", "git_dirty": "False",
        "row": "dpo", "method": "dpo", "preset": "p", "from": "sft", "on": "prompts",
    }  # fmt: skip
    assert expected.items() <= tags.items()
    assert dpo.data.params == {"rate": "0.5", "seeds": "[0, 1]"}
    assert mine.points("train dpo", "seed-0/loss") == [(0, 4.0), (1, 2.0)]
    assert mine.points("train dpo", "loss") == [(0, 3.0), (1, 1.5)]
    assert runs["train sft"].data.metrics["system/seed-0/cpu_cores"] == 0.75
    numbers = {"final_loss": 0.75, "run/seconds": 1.5, "accuracy": 0.5, "dev_accuracy": 0.5625}
    assert numbers.items() <= dpo.data.metrics.items()
    assert f"runs/{runs['train sft'].info.run_id}" in dpo.data.tags["mlflow.note.content"]
    assert list_files(mine.client, dpo.info.run_id) == {
        "0/metrics.json", "1/metrics.json", "run/journal.jsonl", "run/journal-seed-0.jsonl",
        "run/journal-seed-1.jsonl", "run/run.json",
    }  # fmt: skip

    # the whole: parameters, the report's numbers, the best policy
    assert manifest.data.params == {"rate": "0.5", "seeds": "[0, 1]", "goal": "0.5"}
    assert manifest.data.metrics == {
        "accuracy": 0.5, "accuracy/sft": 0.25, "accuracy/dpo": 0.5, "gain/dpo": 0.25,
        "run/seconds": 7.5,
    }  # fmt: skip
    assert next(iter(manifest.data.metrics)) == "accuracy", "which the page of comparison plots"
    assert manifest.data.tags["mlflow.note.content"].startswith("First.")
    assert headlines.find_best() == Path("data/policies/dpo/model/1")
    shutil.rmtree("data/policies/dpo/model/1")
    with pytest.raises(ValueError, match="dvc checkout data/policies/dpo/model"):
        headlines.find_best()
    shutil.rmtree("data/evaluations")
    with pytest.raises(ValueError, match="found none"):
        headlines.find_best()


def test_a_second_call_adds_nothing_and_completes_what_an_outage_left() -> None:
    make_pipeline()
    sync()
    mine = View()
    stages = mine.runs()
    before = {name: run.to_dictionary() for name, run in stages.items()}
    assert sync() == 0
    assert {name: run.to_dictionary() for name, run in View().runs().items()} == before
    for name in ("train dpo", next(name for name in stages if "manifest" in name)):
        mine.client.delete_tag(stages[name].info.run_id, store.COMPLETE)
    assert sync() == 2
    assert {name: run.to_dictionary() for name, run in View().runs().items()} == before
    assert mine.points("train dpo", "loss") == [(0, 3.0), (1, 1.5)]
    # one that its user deleted stays deleted
    mine.client.delete_run(stages["train sft"].info.run_id)
    assert sync() == 0
    assert View().runs()["train sft"].info.lifecycle_stage == "deleted"


def test_a_change_adds_what_was_executed_and_its_reversal_adds_nothing() -> None:
    made = make_pipeline()
    sync()
    before = View().runs()
    evaluate(made, "dpo", 0.0625, execution="2", ended=7)
    assert sync() == 2
    mine = View()
    runs = mine.runs()
    added = {name: run for name, run in runs.items() if name not in before}
    (manifest,) = [run for name, run in added.items() if "manifest" in name]
    assert set(added) == {manifest.info.run_name, "evaluate dpo 2"}
    below = added["evaluate dpo 2"]
    assert below.data.tags["mlflow.parentRunId"] == manifest.info.run_id
    assert manifest.info.start_time == below.info.start_time
    assert manifest.data.metrics["run/seconds"] == 1.5
    # of the training the evaluation that was tracked last is shown
    assert runs["train dpo"].data.metrics["accuracy"] == 0.0625
    assert headlines.find_best() == Path("data/policies/sft/model/1")
    evaluate(made, "dpo", 0.5)
    assert sync() == 0
    undone = View().runs()
    assert set(undone) == set(runs)
    assert undone["train dpo"].data.metrics["accuracy"] == 0.5
    # a stage executed once more, with the same results, comes below the manifest that there is
    record = lockfile.read_entries()[0].record
    again = record.with_name(record.name + "3")
    shutil.copytree(record, again)
    content = json.loads((record / "run.json").read_text())
    later = {"execution_id": "3train@sft", "ended": "2026-01-01T00:00:09+00:00"}
    write(again / "run.json", content | later)
    assert sync() == 1
    tags = {name: run.data.tags for name, run in View().runs().items()}
    first = runs["evaluate sft"].data.tags["mlflow.parentRunId"]
    assert tags["train sft 3"]["mlflow.parentRunId"] == first
    note = "mlflow.note.content"
    assert tags["evaluate sft"][note] == runs["evaluate sft"].data.tags[note], "of its own parent"
    # a new manifest with the evaluation of the first one, older than that of the second
    evaluate(made, "sft", 0.375, execution="2", ended=8)
    assert sync() == 2
    assert mine.points("train dpo", "accuracy") == [(0, 0.5), (1, 0.0625), (2, 0.5)]


def test_numbers_of_a_policy_that_was_trained_again_since_are_not_of_the_new_one() -> None:
    made = make_pipeline()
    sync()
    first = made.stages["train@dpo"]
    outs = {
        out["path"]: f"{out['md5']}-2" for out in first["outs"] if "journals" not in out["path"]
    }
    deps = {dep["path"]: dep["md5"].removeprefix("md5-") for dep in first["deps"]}
    params = {"params.yaml": {"rate": 0.25, "seeds": [0, 1]}}
    again = {"execution": "2", "params": params, "command": first["cmd"], "ended": 7}
    made.add("train@dpo", deps=deps, outs=outs, **again)
    assert sync() == 2
    runs = View().runs()
    assert "accuracy" not in runs["train dpo 2"].data.metrics
    (manifest,) = [run for run in runs.values() if "0.25" in run.data.params.get("rate", "")
                   and run.data.tags["stage"] == "manifest"]  # fmt: skip
    assert manifest.data.metrics.keys() == {"run/seconds"}
    assert "mlflow.note.content" not in manifest.data.tags
    assert headlines.find_best() == Path("data/policies/sft/model/1")
    # once it is evaluated, and the report made, the manifest of that lock has the numbers
    evaluate(made, "dpo", 0.375, execution="3", ended=8)
    made.stages["evaluate@dpo"]["deps"][0]["md5"] = outs["data/policies/dpo/model"].join(
        ["md5-", ""]
    )
    made.write()
    assert headlines.find_best() == Path("data/policies/dpo/model/1")


def test_a_run_that_the_store_refuses_is_named_and_keeps_out_no_other(caplog, monkeypatch) -> None:
    made = make_pipeline()
    params = made.stages["train@sft"]["params"]["params.yaml"]
    made.add("train@sft", params={"params.yaml": params | {"x" * 251: 1}})  # MLflow takes 250
    for _ in range(2):  # the manifest lacks a run, so it is filled anew
        caplog.clear()
        sync()
        (warning,) = caplog.messages
        assert warning.startswith("MLflow refuses the run of train@sft, and")
        assert "250" in warning
        runs = View().runs()
        unfinished = [name for name in runs if store.COMPLETE not in runs[name].data.tags]
        assert {name.split()[0] for name in unfinished} == {"manifest", "train"}
        assert (len(runs), "train sft" in unfinished) == (6, True)
        assert runs["train dpo"].data.metrics["accuracy"] == 0.5
    monkeypatch.setattr(store, "escape_key", lambda text: text[:250])  # it is mended
    assert sync() == 2
    assert all(store.COMPLETE in run.data.tags for run in View().runs().values())


def test_results_from_elsewhere_are_found_or_added_without_times(monkeypatch) -> None:
    made = make_pipeline()
    sync()
    made.remove_records()
    assert sync() == 0
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "another")
    monkeypatch.setenv("POSTTRAIN_TRACK_WEIGHTS", "1")
    assert sync() == 6
    client = mlflow.MlflowClient(store.find_uri(Path.cwd()))
    experiment = client.get_experiment_by_name("another").experiment_id
    runs = {run.info.run_name: run for run in client.search_runs([experiment])}
    assert "run/seconds" not in runs["train dpo"].data.metrics
    assert runs["train dpo"].data.metrics["loss"] == 1.5
    assert view.ELSEWHERE in runs["train dpo"].data.tags["mlflow.note.content"]
    weights = list_files(client, runs["train dpo"].info.run_id)
    assert {"model/0/config.json", "model/1/model.safetensors"} <= weights
    assert sync() == 0


def test_without_a_store_the_manifest_is_written_and_verdict_and_report_are_shown(
    monkeypatch, capsys, caplog
) -> None:
    caplog.set_level("INFO", track.logger.name)
    make_pipeline()
    monkeypatch.setattr(track.process, "die_with_dvc", lambda _: None)
    with socket.socket() as bound:  # and not listening: it refuses every connection
        bound.bind(("127.0.0.1", 0))
        address = f"http://me:sekret@127.0.0.1:{bound.getsockname()[1]}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        track.main()
    output = capsys.readouterr()
    assert "sekret" not in output.out + output.err
    assert len(json.loads(track.MANIFEST.read_text())) == len(STAGES)
    assert caplog.messages[-1].endswith("First.\nSecond.\n\nThe report: data/report/report.html")


# One stage.


def test_batches_leave_nothing_out_and_every_row_name_that_the_plan_allows_is_a_key(place) -> None:
    rows = ("dpo-beta0.5", "a..b", "0.", "A_b-1.0-", "x" * 100)
    assert all(map(NAME.fullmatch, rows))
    numbers = {f"accuracy/{row}/{at}": float(at) for row in rows for at in range(50)}
    with store.connect(place) as target:
        started = "2026-01-01T00:00:00+00:00"
        run = target.run(view.EXECUTION, "a", name="train", started=started, tags={})
        target.log_params(run.run_id, numbers)
        target.log_numbers(run.run_id, numbers, 0)
        logged = target.client.get_run(run.run_id).data
    assert (logged.metrics, len(logged.params)) == (numbers, 250)


def test_points_that_were_logged_are_not_sent_again_but_each_of_equal_steps_is() -> None:
    points = [view.Metric("a", value, 0, step) for step, value in ((0, 1.0), (0, 2.0), (1, 3.0))]
    logged = view.Counter({("a", 0): 1})
    assert [point.value for point in view._drop_logged(points, logged)] == [2.0, 3.0]


# Running stages: journals that grow, shrink and vanish.


def grow(
    indices: range, *, scale: float = 1.0, attempt: int = 1, torn: str = "",
    stage: str = "train@dpo", seed: int = 0,
) -> None:  # fmt: skip
    """A journal as it is when these steps were done; times differ at every call."""
    execution = {"execution_id": "e" * 32, "stage": stage, "input_key": "k", "attempt": attempt}
    write(FOLDER / "exec.json", execution)
    text = ""
    for index in indices:
        metrics = {"loss/total": scale / (1 + index), "time/step": 0.5 * attempt}
        row = journal.JournalRow(index=index, time=1e9 + 100 * attempt + index, metrics=metrics)
        text += json.dumps(asdict(row)) + "\n"
    write(FOLDER / f"seed-{seed}/journal.jsonl", text + torn)
    write(FOLDER / "journal.jsonl", "")


def look(last: dict[str, Any], key: str = KEY) -> tuple[Any, list[tuple[int, float]]]:
    """Look once; the run, and the points of a metric."""
    with store.connect(Path.cwd()) as target:
        for folder in view.find_running():
            view.send_points(target, folder, last)
        runs = target.client.search_runs([target.experiment_id])
        if not runs:
            return None, []
        (run,) = runs
        points = target.client.get_metric_history(run.info.run_id, key)
    return run, [(point.step, point.value) for point in points]


def test_new_points_follow_until_the_end_and_none_twice() -> None:
    write(Path("params.yaml"), "seeds: [0, 1]\n")
    last: dict[str, Any] = {}
    grow(range(2), torn='{"index": 2, "met')
    run, points = look(last)
    assert points == [(0, 1.0), (1, 0.5)], "a torn line waits"
    assert (run.info.run_name, run.info.status) == ("train dpo", "RUNNING")
    assert run.data.tags["posttrain.execution_id"] == "e" * 32
    assert (run.data.tags["stage"], run.data.tags["row"]) == ("train", "dpo")
    grow(range(4))
    assert look(last)[1] == [(0, 1.0), (1, 0.5), (2, 1 / 3), (3, 0.25)]
    assert look(last, "seed-0/time/step")[1] == [], "times are sent at the end"
    assert look(last, "loss/total")[1] == [], "the mean needs every seed"
    grow(range(2), scale=3.0, seed=1)
    assert look(last, "loss/total")[1] == [(0, 2.0), (1, 1.0)]
    write(FOLDER / "failed.json", "{}")
    look(last)
    assert look(last)[0].info.status == "FAILED"
    (FOLDER / "failed.json").unlink()
    grow(range(3), attempt=2)  # resumed, cut back to its checkpoint
    run, points = look(last)
    assert len(points) == 4
    grow(range(7), attempt=2)
    assert [step for step, _ in look(last)[1]] == list(range(7))
    assert look(last)[0].info.status == "RUNNING"
    # another process goes on where this one ended
    grow(range(9), attempt=2)
    assert [step for step, _ in look({})[1]] == list(range(9))


def test_completions_of_the_first_seed_follow_with_the_steps(place, tmp_path) -> None:
    last: dict[str, Any] = {}
    grow(range(1))
    text = ""
    for step in range(2):
        text += json.dumps({"completion": f"of {step}", "id": "a", "step": step}) + "\n"
        write(FOLDER / "seed-0/loop/rollouts.jsonl", text)
        run, _ = look(last)
        (listed,) = json.loads(run.data.tags["mlflow.loggedArtifacts"])
        with store.connect(place) as target:
            table = target.client.download_artifacts(run.info.run_id, listed["path"], str(tmp_path))
        rows = json.loads(Path(table).read_text())["data"]
        assert [row[1] for row in rows] == [f"of {number}" for number in range(step + 1)]


def test_studies_what_was_killed_long_ago_and_what_ends_meanwhile_are_left_out(
    place, monkeypatch
) -> None:
    grow(range(3), stage="studies/dvc.yaml:search")
    assert look({}) == (None, [])
    grow(range(3))
    with monkeypatch.context() as patch:
        patch.setattr(view, "SECONDS_OF_A_STEP", 0.0)
        assert look({}) == (None, [])
    (folder,) = view.find_running()
    shutil.rmtree(folder)
    with store.connect(place) as target:
        view.send_points(target, folder, {})
