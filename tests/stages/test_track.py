"""MLflow as a view of the run records: real DVC, real sqlite store, real outages."""

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import mlflow
import pytest
from mlflow.entities import ViewType
from toy_repo import make_toy_repo

from stages import track
from stages.tracking import lockfile, registry, saved_views, view

pytestmark = pytest.mark.slow

STAGES = {
    "train@sft",
    "train@dpo",
    "sample@dpo",
    "evaluate@sft",
    "evaluate@dpo",
    "compare",
}
NAMES = {stage.replace("@", " ") for stage in STAGES}


class View:
    """What a repository's store holds."""

    def __init__(self, repo, uri=None):
        self.repo = repo
        self.client = mlflow.MlflowClient(uri or f"sqlite:///{repo.path}/mlflow.db")

    @property
    def experiment(self):
        return self.client.get_experiment_by_name("posttrain").experiment_id

    def runs(self):
        return list(self.client.search_runs([self.experiment], run_view_type=ViewType.ALL))

    def run(self, name):
        (result,) = [run for run in self.runs() if run.info.run_name == name]
        return result

    def manifests(self):
        return [run for run in self.runs() if run.info.run_name.startswith("manifest")]

    def models(self):
        return list(self.client.search_logged_models([self.experiment]))

    def state(self):
        versions = self.client.search_model_versions("name = 'posttrain-policy'")
        return (
            {run.info.run_id: run.to_dictionary() for run in self.runs()},
            {model.model_id for model in self.models()},
            {version.version for version in versions},
        )

    def artifacts(self, run_id, folder=None):
        result = set()
        for item in self.client.list_artifacts(run_id, folder):
            result |= self.artifacts(run_id, item.path) if item.is_dir else {item.path}
        return result


@pytest.fixture(scope="module")
def tracked(tmp_path_factory):
    """A repository whose path has all that an address would write in another way."""
    repo = make_toy_repo(tmp_path_factory.mktemp("tracked") / "tüy 100% #1")
    view = View(repo)
    view.said = repo.repro()
    return view


def test_every_executed_stage_is_one_run_and_the_lock_one_more(tracked):
    names = [run.info.run_name for run in tracked.runs()]
    assert len(names) == 7
    assert set(names) > NAMES
    assert {run.info.status for run in tracked.runs()} == {"FINISHED"}
    kinds = {run.info.run_name: run.data.tags["stage"] for run in tracked.runs()}
    assert [kinds[name] for name in ("train sft", "train dpo", "compare")] == [
        "train", "train", "compare",
    ]  # fmt: skip
    assert tracked.run("train dpo").data.tags["row"] == "dpo"


def test_a_path_with_other_characters_leaves_no_folder_beside_it(tracked):
    assert [path.name for path in tracked.repo.path.parent.iterdir()] == [tracked.repo.path.name]
    assert (tracked.repo.path / "mlruns").is_dir()


def test_the_runs_of_an_execution_lie_below_its_manifest_and_share_a_tag(tracked):
    (manifest,) = tracked.manifests()
    stages = [run for run in tracked.runs() if run.info.run_id != manifest.info.run_id]
    assert {run.data.tags["mlflow.parentRunId"] for run in stages} == {manifest.info.run_id}
    (shared,) = {run.data.tags["pipeline_run"] for run in tracked.runs()}
    assert manifest.info.run_name == f"manifest {shared}"
    assert manifest.info.start_time == min(run.info.start_time for run in stages)


def test_the_views_hold_the_columns_that_the_policies_have(tracked):
    tags = tracked.client.get_experiment(tracked.experiment).tags
    for name, title in saved_views.NAMES.items():
        view = json.loads(tags[f"mlflow.sharedViewState.{name}"])
        assert view["name"] == title
        assert f"viewStateShareKey={name}" in tags["mlflow.note.content"]
    state = json.loads(json.loads(tags["mlflow.sharedViewState.manifests"])["state"])
    assert {"metrics.`accuracy/dpo`", "metrics.`accuracy/sft`"} < set(state["selectedColumns"])
    state = json.loads(json.loads(tags["mlflow.sharedViewState.curves"])["state"])
    assert state["compareRunCharts"][0]["selectedMetricKeys"] == [
        "reward/mean", "seed-0/reward/mean", "seed-1/reward/mean",
    ]  # fmt: skip
    assert f"/#/experiments/{tracked.experiment}/runs?" in tracked.said


def test_it_ends_with_the_seconds_the_verdict_and_where_the_report_is(tracked):
    output = tracked.said
    lines = output[output.index("seconds of each stage") :].splitlines()
    stages = ["compare", "evaluate", "sample", "train", "all"]
    assert [line.split()[0] for line in lines[1:6]] == stages
    assert "First.\nSecond.\nThird." in output
    assert "The report: data/report/report.html" in output


def test_a_run_holds_every_seeds_history_parameters_and_headline_numbers(tracked):
    run = tracked.run("train dpo")
    assert run.data.params == {"rate": "1e-05", "seed": "0", "seeds": "[0, 1]"}
    folder = tracked.repo.find_record("train@dpo")
    for seed in (0, 1):
        path = folder / f"journal-seed-{seed}.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        points = tracked.client.get_metric_history(run.info.run_id, f"seed-{seed}/loss/total")
        assert [(point.step, point.value) for point in points] == [
            (row["index"], row["metrics"]["loss/total"]) for row in rows
        ]
    headline = {name for name in run.data.metrics if "/" not in name}
    mean = tracked.client.get_metric_history(run.info.run_id, "loss/total")
    of_seeds = [
        tracked.client.get_metric_history(run.info.run_id, f"seed-{seed}/loss/total")
        for seed in (0, 1)
    ]
    assert [(point.step, point.value) for point in mean] == [
        (a.step, (a.value + b.value) / 2) for a, b in zip(*of_seeds, strict=True)
    ]
    # its own, and those of its evaluation
    assert headline == {"final_loss", "trained_tokens", "accuracy", "dev_accuracy"}
    assert run.data.metrics["final_loss"] == 0.75  # the mean of 0.5 and 1.0
    record = tracked.repo.record("train@dpo")
    assert run.data.metrics["run/seconds"] == record["seconds"]
    assert abs(run.info.start_time / 1000 - time.time()) < 600


def test_a_run_says_where_it_came_from(tracked):
    run = tracked.run("train dpo")
    record = tracked.repo.record("train@dpo")
    tags = run.data.tags
    assert tags["posttrain.execution_id"] == record["execution_id"]
    assert tags["posttrain.input_key"] == record["input_key"]
    assert tags["mlflow.source.git.commit"] == record["git_commit"]
    assert tags["posttrain.git_dirty"] == "False"
    assert tags["posttrain.stage"] == "train@dpo"
    manifest = json.loads((tracked.repo.path / "data/tracked/manifest.json").read_text())
    assert tags["posttrain.result_hash"] == manifest["train@dpo"]
    assert set(manifest) == STAGES
    (dataset,) = [given.dataset for given in run.inputs.dataset_inputs]
    assert dataset.name == "policies/sft/model"
    assert dataset.digest.endswith(".dir")
    assert dataset.digest in (tracked.repo.path / "dvc.lock").read_text()


def test_small_files_are_copied_and_weights_are_not(tracked):
    compared = tracked.artifacts(tracked.run("compare").info.run_id)
    assert compared == {
        "metrics.json", "report.html", "verdict.txt", "run/journal.jsonl", "run/run.json",
    }  # fmt: skip
    trained = tracked.artifacts(tracked.run("train dpo").info.run_id)
    assert trained == {
        "0/metrics.json", "1/metrics.json", "run/journal.jsonl", "run/journal-seed-0.jsonl",
        "run/journal-seed-1.jsonl", "run/run.json",
    }  # fmt: skip


def test_completions_are_a_table_of_fifty_rows_without_token_ids(tracked, tmp_path):
    run = tracked.run("sample dpo")
    (shown,) = json.loads(run.data.tags["mlflow.loggedArtifacts"])
    assert shown == {"path": "completions/test.json", "type": "table"}
    path = tracked.client.download_artifacts(run.info.run_id, shown["path"], str(tmp_path))
    table = json.loads(Path(path).read_text())
    assert set(table["columns"]) == {"id", "completion", "drawn"}
    assert len(table["data"]) == 50


def test_the_policy_of_each_seed_is_an_external_model_with_dvc_path_and_digest(tracked):
    names = {f"{policy}-seed-{seed}" for policy in ("sft", "dpo") for seed in (0, 1)}
    assert {model.name for model in tracked.models()} == names
    (model,) = [model for model in tracked.models() if model.name == "dpo-seed-1"]
    assert model.source_run_id == tracked.run("train dpo").info.run_id
    assert model.tags["dvc.path"] == "data/policies/dpo/model/1"
    assert model.tags["dvc.md5"] in (tracked.repo.path / "dvc.lock").read_text()


def test_the_manifest_holds_all_parameters_headline_numbers_and_the_runs(tracked, tmp_path):
    run = tracked.manifests()[0]
    children = [item for item in tracked.runs() if item.info.run_id != run.info.run_id]
    assert run.data.params == {"rate": "1e-05", "seed": "0", "seeds": "[0, 1]", "goal": "0.5"}
    assert next(iter(run.data.metrics)) == "accuracy"  # which the page of comparison plots
    seconds = run.data.metrics.pop("run/seconds")
    assert seconds == pytest.approx(sum(item.data.metrics["run/seconds"] for item in children))
    accuracy = {"accuracy/sft": 0.25, "accuracy/dpo": 0.5, "gain/dpo": 0.25}
    assert run.data.metrics == accuracy | {"accuracy": 0.5}  # of the best on dev problems
    path = tracked.client.download_artifacts(run.info.run_id, "runs.json", str(tmp_path))
    ids = {name: tracked.run(name.replace("@", " ")).info.run_id for name in STAGES}
    assert json.loads(Path(path).read_text()) == ids
    note = run.data.tags["mlflow.note.content"]
    assert note.startswith("First.")
    assert "| dpo | 50.0 | +25.0 |" in note
    assert f"/runs/{ids['train@dpo']}/model-metrics?" in note
    assert f"/runs/{ids['compare']}/artifacts/report.html?" in note
    note = tracked.run("train dpo").data.tags["mlflow.note.content"]
    assert (
        f"[policies/sft/model](#/experiments/{tracked.experiment}/runs/{ids['train@sft']}" in note
    )


def test_the_alias_best_names_the_policy_that_is_best_on_dev_problems_and_says_so(tracked):
    best = tracked.client.get_model_version_by_alias("posttrain-policy", "best")
    assert best.run_id == tracked.run("train dpo").info.run_id
    assert best.tags["dvc.path"] == "data/policies/dpo/model/1"
    assert best.tags["posttrain.seed"] == "1"
    assert best.tags["posttrain.dev_accuracy"] == "0.5625"  # the mean of 0.5 and 0.625


def test_the_best_policy_is_resolved_to_the_folder_of_its_weights(tracked, monkeypatch):
    monkeypatch.chdir(tracked.repo.path)
    path = registry.find_best()
    assert path == Path("data/policies/dpo/model/1")
    best = tracked.client.get_model_version_by_alias("posttrain-policy", "best")
    digest = best.tags["dvc.md5"]
    try:
        tracked.client.set_model_version_tag("posttrain-policy", best.version, "dvc.md5", "0.dir")
        with pytest.raises(ValueError, match=f"found {digest} in dvc.lock.*git checkout"):
            registry.find_best()
    finally:
        tracked.client.set_model_version_tag("posttrain-policy", best.version, "dvc.md5", digest)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tracked.repo.path}/mlflow.db")
    monkeypatch.setattr(registry, "REGISTERED", "none")
    with pytest.raises(ValueError, match="found none"):
        registry.find_best()


def test_a_run_that_mlflow_does_not_take_costs_no_other(tracked, monkeypatch, caplog):
    monkeypatch.chdir(tracked.repo.path)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "refused")
    entries = lockfile.read_entries()
    refused = replace(entries[0], params={"too_long" * 40: 1})
    assert view.sync_entries([refused, *entries[1:]])[0] == 6  # 5 and the manifest
    (warning,) = [row.message for row in caplog.records if "does not take" in row.message]
    assert entries[0].stage in warning
    assert view.sync_entries(entries)[0] == 1


def test_a_second_call_adds_nothing(tracked):
    before = tracked.state()
    assert "0 runs added" in tracked.repo.run("python", "-m", "stages.track")
    assert tracked.state() == before


def test_without_its_output_a_call_by_hand_writes_the_same_manifest(tracked):
    manifest = tracked.repo.path / "data/tracked/manifest.json"
    before, state = manifest.read_bytes(), tracked.state()
    shutil.rmtree(manifest.parent)
    assert "0 runs added" in tracked.repo.run("python", "-m", "stages.track")
    assert manifest.read_bytes() == before
    assert tracked.state() == state


def test_a_stage_without_a_run_record_does_not_change_the_manifest(tracked, monkeypatch):
    # `track` does not depend on what such a stage reads, so it would not run again.
    monkeypatch.chdir(tracked.repo.path)
    entries = lockfile.read_entries()
    of_code = replace(entries[0], stage="trace_code", outs=[], result_hash="of another README")
    before = Path("data/tracked/manifest.json").read_bytes()
    track.write_manifest([*entries, of_code])
    assert Path("data/tracked/manifest.json").read_bytes() == before


def test_a_run_that_an_outage_left_half_way_is_completed_without_duplicates(tracked):
    run_id = tracked.run("train sft").info.run_id
    before = tracked.state()
    tracked.client.delete_tag(run_id, "posttrain.complete")
    assert "1 runs added" in tracked.repo.run("python", "-m", "stages.track")
    assert tracked.state() == before
    assert len(tracked.client.get_metric_history(run_id, "seed-0/loss/total")) == 6


def test_a_result_that_was_computed_elsewhere_is_found_or_added_without_times(tracked, tmp_path):
    shutil.rmtree(tracked.repo.path / "data/runs")
    assert "0 runs added" in tracked.repo.run("python", "-m", "stages.track")
    uri = f"sqlite:///{tmp_path}/another.db"
    output = tracked.repo.run("python", "-m", "stages.track", MLFLOW_TRACKING_URI=uri)
    assert "7 runs added" in output
    assert "6 stages were computed elsewhere" in output
    run = View(tracked.repo, uri).run("train dpo")
    assert "run/seconds" not in run.data.metrics
    assert run.data.metrics["final_loss"] == 0.75
    assert len(run.data.tags["mlflow.note.content"]) > 20
    assert run.data.metrics["seed-0/loss/total"] == pytest.approx(
        tracked.run("train dpo").data.metrics["seed-0/loss/total"]
    )
    assert "0 runs added" in tracked.repo.run(
        "python", "-m", "stages.track", MLFLOW_TRACKING_URI=uri
    )


def test_an_unreachable_server_costs_seconds_and_tells_no_password(tracked):
    manifest = tracked.repo.path / "data/tracked/manifest.json"
    before = manifest.read_bytes()
    started = time.monotonic()
    output = tracked.repo.run(
        "python", "-m", "stages.track", MLFLOW_TRACKING_URI="http://me:secret@127.0.0.1:9"
    )
    assert time.monotonic() - started < 90  # MLflow's own patience is 246 s a call
    assert "run `python -m stages.track` when it can be reached" in output
    assert "secret" not in output
    assert "Traceback" not in output
    assert manifest.read_bytes() == before


def test_a_changed_parameter_adds_what_was_executed_and_its_reversal_adds_nothing(tracked):
    before = {run.info.run_id for run in tracked.runs()}
    tracked.repo.set_params(goal=0.125)
    tracked.repo.repro()
    added = [run for run in tracked.runs() if run.info.run_id not in before]
    assert sorted(run.info.run_name.split()[0] for run in added) == [
        "compare", "evaluate", "evaluate", "manifest",
    ]  # fmt: skip
    new = next(run for run in added if run.info.run_name.startswith("manifest"))
    below = [run for run in added if run != new]
    assert {run.data.tags["mlflow.parentRunId"] for run in below} == {new.info.run_id}
    assert new.info.start_time == min(run.info.start_time for run in below)
    best = tracked.client.get_model_version_by_alias("posttrain-policy", "best")
    assert best.tags["dvc.path"] == "data/policies/sft/model/1"
    tracked.repo.set_params()
    tracked.repo.repro()
    assert {run.info.run_id for run in tracked.runs()} == before | {r.info.run_id for r in added}


@pytest.mark.slow
def test_an_experiment_in_a_temporary_copy_is_a_group_in_the_store_of_the_checkout(tmp_path):
    tracked = View(make_toy_repo(tmp_path / "plain"))  # DVC cannot push experiments of odd paths
    tracked.repo.repro()
    before = {run.info.run_id for run in tracked.runs()}
    tracked.repo.run("git", "add", "dvc.lock")
    tracked.repo.run(
        "git",
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@t",
        "commit",
        "-qm",
        "lock",
        "--",
        "dvc.lock",
    )
    output = tracked.repo.run("dvc", "exp", "run", "--temp", "--name", "hot", "-S", "goal=0.375")
    assert "WARNING" not in output
    assert "MLflow was not brought up to date" not in output
    added = {run.info.run_name for run in tracked.runs() if run.info.run_id not in before}
    assert added == {"manifest hot", "evaluate sft", "evaluate dpo", "compare"}
    tracked.repo.run("dvc", "exp", "apply", "hot")
    assert "0 runs added" in tracked.repo.run("python", "-m", "stages.track")


@pytest.mark.slow
def test_four_calls_on_a_fresh_store_add_each_run_once_and_weights_where_asked(tracked, tmp_path):
    uri = f"sqlite:///{tmp_path}/fresh.db"
    calls = [
        tracked.repo.start(
            "python", "-m", "stages.track", MLFLOW_TRACKING_URI=uri, POSTTRAIN_TRACK_WEIGHTS="1"
        )
        for _ in range(4)
    ]
    outputs = [call.communicate(timeout=600)[0] for call in calls]
    assert [call.returncode for call in calls] == [0, 0, 0, 0], outputs
    assert sum("MLflow: 7 runs added" in text for text in outputs) == 1, outputs
    assert sum("MLflow: 0 runs added" in text for text in outputs) == 3, outputs
    with_weights = View(tracked.repo, uri)
    run = with_weights.run("train dpo")
    assert {"model/0/config.json", "model/1/weights"} <= with_weights.artifacts(run.info.run_id)
