"""MLflow as a view of the run records: real DVC, real sqlite store, real outages."""

import json
import shutil
import time
from pathlib import Path

import mlflow
import pytest
from mlflow.entities import ViewType

STAGES = {
    "train_sft",
    "train_dpo",
    "sample_candidates@dpo-test",
    "compare_policies",
    "probe_policy@sft",
    "probe_policy@dpo",
}
PROBES = """
  probe_policy:
    foreach: [sft, dpo]
    do:
      cmd: python work.py probe_policy@${item}
      deps: [work.py, 'data/train_${item}/policy']
      params: [goal]
      outs: ['data/probe_policy/${item}/run']
      metrics: ['data/probe_policy/${item}/metrics.json': {cache: false}]
"""


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
        (found,) = [run for run in self.runs() if run.info.run_name == name]
        return found

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
        found = set()
        for item in self.client.list_artifacts(run_id, folder):
            found |= self.artifacts(run_id, item.path) if item.is_dir else {item.path}
        return found


@pytest.fixture(scope="module")
def tracked(shared_toy_repo):
    pipeline = shared_toy_repo.path / "dvc.yaml"
    text = pipeline.read_text().replace(
        "deps: [data/train_sft/run",
        "deps: [data/probe_policy/sft/run, data/probe_policy/dpo/run, data/train_sft/run",
    )
    pipeline.write_text(text + PROBES)
    author = ("-c", "user.name=test", "-c", "user.email=@")
    shared_toy_repo.run("git", *author, "commit", "-qam", "probes")
    shared_toy_repo.repro()
    return View(shared_toy_repo)


def test_every_executed_stage_is_one_run_and_the_lock_one_more(tracked):
    names = [run.info.run_name for run in tracked.runs()]
    assert len(names) == 7
    assert set(names) > STAGES
    assert {run.info.status for run in tracked.runs()} == {"FINISHED"}


def test_a_run_holds_the_whole_history_parameters_and_final_numbers(tracked):
    run = tracked.run("train_dpo")
    assert run.data.params == {"rate": "1e-05", "seed": "0"}
    folder = tracked.repo.path / "data/train_dpo"
    rows = [json.loads(line) for line in (folder / "run/journal.jsonl").read_text().splitlines()]
    points = tracked.client.get_metric_history(run.info.run_id, "loss/total")
    assert [(point.step, point.value) for point in points] == [
        (row["index"], row["metrics"]["loss/total"]) for row in rows
    ]
    assert run.data.metrics["final/pass_at_4"] == 0.5
    record = json.loads((folder / "run/run.json").read_text())
    assert run.data.metrics["run/seconds"] == record["seconds"]
    assert abs(run.info.start_time / 1000 - time.time()) < 600


def test_a_run_says_where_it_came_from(tracked):
    run = tracked.run("train_dpo")
    record = json.loads((tracked.repo.path / "data/train_dpo/run/run.json").read_text())
    tags = run.data.tags
    assert tags["posttrain.execution_id"] == record["execution_id"]
    assert tags["posttrain.input_key"] == record["input_key"]
    assert tags["mlflow.source.git.commit"] == record["git_commit"]
    assert tags["posttrain.git_dirty"] == "False"
    assert tags["posttrain.stage"] == "train_dpo"
    manifest = json.loads((tracked.repo.path / "data/track/manifest.json").read_text())
    assert tags["posttrain.result_hash"] == manifest["train_dpo"]
    assert set(manifest) == STAGES
    (dataset,) = [given.dataset for given in run.inputs.dataset_inputs]
    assert dataset.name == "data/train_sft/policy"
    assert dataset.digest.endswith(".dir")
    assert dataset.digest in (tracked.repo.path / "dvc.lock").read_text()


def test_small_files_are_copied_and_weights_are_not(tracked):
    compared = tracked.artifacts(tracked.run("compare_policies").info.run_id)
    assert compared == {"metrics.json", "report.md", "run/journal.jsonl", "run/run.json"}
    trained = tracked.artifacts(tracked.run("train_dpo").info.run_id)
    assert trained == {"metrics.json", "run/journal.jsonl", "run/run.json"}


def test_completions_are_a_table_of_fifty_rows_without_token_ids(tracked, tmp_path):
    run = tracked.run("sample_candidates@dpo-test")
    (shown,) = json.loads(run.data.tags["mlflow.loggedArtifacts"])
    assert shown == {"path": "completions/pool.json", "type": "table"}
    path = tracked.client.download_artifacts(run.info.run_id, shown["path"], str(tmp_path))
    table = json.loads(Path(path).read_text())
    assert set(table["columns"]) == {"id", "completion", "drawn"}
    assert len(table["data"]) == 50


def test_a_checkpoint_is_an_external_model_with_dvc_path_and_digest(tracked):
    assert {model.name for model in tracked.models()} == {"train_sft-policy", "train_dpo-policy"}
    (model,) = [model for model in tracked.models() if model.name == "train_dpo-policy"]
    assert model.source_run_id == tracked.run("train_dpo").info.run_id
    assert model.tags["dvc.path"] == "data/train_dpo/policy"
    assert model.tags["dvc.md5"] in (tracked.repo.path / "dvc.lock").read_text()


def test_the_manifest_holds_all_parameters_headline_numbers_and_the_runs(tracked):
    run = tracked.manifests()[0]
    assert run.data.params == {"rate": "1e-05", "seed": "0", "goal": "0.5"}
    assert run.data.metrics["policies.dpo.mean_accuracy"] == 0.5
    for stage in STAGES:
        made = run.data.tags[f"posttrain.run.{stage.replace('@', '/')}"]
        assert made == tracked.run(stage).info.run_id
    assert "| dpo | 0.500 | +0.250 |" in run.data.tags["mlflow.note.content"]


def test_the_alias_best_names_the_policy_that_is_best_on_dev_problems_and_says_so(tracked):
    best = tracked.client.get_model_version_by_alias("posttrain-policy", "best")
    assert best.run_id == tracked.run("train_dpo").info.run_id
    assert best.tags["dvc.path"] == "data/train_dpo/policy"
    assert best.tags["posttrain.chosen_by"] == "dev_accuracy"
    assert best.tags["posttrain.dev_accuracy"] == "0.5000"


def test_a_second_call_adds_nothing(tracked):
    before = tracked.state()
    assert "0 runs added" in tracked.repo.run("python", "-m", "stages.track")
    assert tracked.state() == before


def test_without_its_output_a_call_by_hand_writes_the_same_manifest(tracked):
    manifest = tracked.repo.path / "data/track/manifest.json"
    before, state = manifest.read_bytes(), tracked.state()
    shutil.rmtree(manifest.parent)
    assert "0 runs added" in tracked.repo.run("python", "-m", "stages.track")
    assert manifest.read_bytes() == before
    assert tracked.state() == state


def test_a_run_that_an_outage_left_half_way_is_completed_without_duplicates(tracked):
    run_id = tracked.run("train_sft").info.run_id
    before = tracked.state()
    tracked.client.delete_tag(run_id, "posttrain.complete")
    assert "1 runs added" in tracked.repo.run("python", "-m", "stages.track")
    assert tracked.state() == before
    assert len(tracked.client.get_metric_history(run_id, "loss/total")) == 6


def test_an_unreachable_server_costs_seconds_and_tells_no_password(tracked):
    manifest = tracked.repo.path / "data/track/manifest.json"
    before = manifest.read_bytes()
    started = time.monotonic()
    told = tracked.repo.run(
        "python", "-m", "stages.track", MLFLOW_TRACKING_URI="http://me:secret@127.0.0.1:9"
    )
    assert time.monotonic() - started < 90  # MLflow's own patience is 246 s a call
    assert "run `python -m stages.track` when it can be reached" in told
    assert "secret" not in told
    assert "Traceback" not in told
    assert manifest.read_bytes() == before


def test_a_changed_parameter_adds_what_was_executed_and_its_reversal_adds_nothing(tracked):
    before = {run.info.run_id for run in tracked.runs()}
    tracked.repo.set_params(goal=0.125)
    tracked.repo.repro()
    added = [run for run in tracked.runs() if run.info.run_id not in before]
    assert sorted(run.info.run_name.split()[0] for run in added) == [
        "compare_policies",
        "manifest",
        "probe_policy@dpo",
        "probe_policy@sft",
    ]
    best = tracked.client.get_model_version_by_alias("posttrain-policy", "best")
    assert best.tags["dvc.path"] == "data/train_sft/policy"
    tracked.repo.set_params()
    tracked.repo.repro()
    assert {run.info.run_id for run in tracked.runs()} == before | {r.info.run_id for r in added}


def test_four_calls_on_a_fresh_store_add_each_run_once_and_weights_where_asked(tracked, tmp_path):
    uri = f"sqlite:///{tmp_path}/fresh.db"
    calls = [
        tracked.repo.start(
            "python", "-m", "stages.track", MLFLOW_TRACKING_URI=uri, POSTTRAIN_TRACK_WEIGHTS="1"
        )
        for _ in range(4)
    ]
    told = [call.communicate(timeout=600)[0] for call in calls]
    assert [call.returncode for call in calls] == [0, 0, 0, 0], told
    assert sum("MLflow: 7 runs added" in text for text in told) == 1, told
    assert sum("MLflow: 0 runs added" in text for text in told) == 3, told
    with_weights = View(tracked.repo, uri)
    run = with_weights.run("train_dpo")
    assert {"policy/config.json", "policy/weights"} <= with_weights.artifacts(run.info.run_id)
