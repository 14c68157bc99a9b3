"""What MLflow gets of a stage's files: data sets, small files, completions, pointers to models.

An external LoggedModel holds a seed's path and DVC's digest of the folder of all seeds; the weights
stay where they are. `dvc checkout` at the run's commit brings them back. The registry's alias names
the best policy.
"""

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelOutput, LoggedModelStatus
from mlflow.utils.mlflow_tags import MLFLOW_LOGGED_ARTIFACTS, MLFLOW_MODEL_IS_EXTERNAL

from stages.tracking.headlines import Chosen
from stages.tracking.lockfile import Entry
from stages.tracking.store import Store

REGISTERED = "posttrain-policy"
ALIAS = "best"
SUFFIXES = {".md", ".png", ".svg", ".csv", ".json", ".html", ".txt"}
MAX_BYTES = 4_000_000
TABLES = {"rollouts.jsonl", "test.jsonl", "test_greedy.jsonl", "train.jsonl", "verdicts.jsonl"}
MAX_ROWS = 50


def is_checkpoint(path: Path) -> bool:
    """Whether a folder holds a model (or an adapter) as transformers saves it."""
    return (path / "config.json").is_file() or (path / "adapter_config.json").is_file()


def find_policies(entry: Entry) -> Iterator[tuple[Path, str]]:
    """(path, digest of the output) of the policy of each seed that the stage trained."""
    for out in entry.outs:
        if out.path.name == "model":
            seeds = sorted(path for path in out.path.glob("*") if path.name.isdigit())
            yield from ((path, out.digest) for path in seeds if is_checkpoint(path))


def is_inside_model(path: Path, top: Path) -> bool:
    """Whether a model in the output `top` holds this file."""
    folders = [folder for folder in path.parents if folder == top or top in folder.parents]
    return any(is_checkpoint(folder) for folder in folders)


def log_inputs(store: Store, run_id: str, entry: Entry) -> None:
    """What the stage read of `data/`, as data sets with DVC's digests."""
    inputs = []
    for path, digest in ((dep.path.as_posix(), dep.digest) for dep in entry.deps):
        if path.startswith("data/"):
            source = json.dumps({"path": path, "md5": digest})
            dataset = Dataset(path, digest[:36], "dvc", source)
            inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", "input")]))
    if inputs:
        store.client.log_inputs(run_id, inputs)


def log_models(store: Store, run_id: str, entry: Entry) -> None:
    """An external LoggedModel for the policy of each seed that the stage trained.

    Not by `mlflow.create_external_model`, which adds tags of its own: the address of git's remote,
    where a token may stand.
    """
    policies = list(find_policies(entry))
    linked = store.client.get_run(run_id).outputs if policies else None
    for path, digest in policies:
        name = _name_model(entry.stage, path.name)
        model = _find_model(store, run_id, name) or store.client.create_logged_model(
            store.experiment_id,
            name=name,
            source_run_id=run_id,
            tags={
                "dvc.path": path.as_posix(),
                "dvc.md5": digest,
                "posttrain.stage": entry.stage,
                "posttrain.seed": path.name,
                MLFLOW_MODEL_IS_EXTERNAL: "true",
            },
            model_type="policy",
        )
        if model.status != LoggedModelStatus.READY:
            store.client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
        if linked is None or all(
            output.model_id != model.model_id for output in linked.model_outputs
        ):
            store.client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])


def mark_best(store: Store, run_id: str, chosen: Chosen) -> None:
    """Register the policy that `run_id` of its stage wrote, and let the alias `best` name it."""
    model = _find_model(store, run_id, _name_model(chosen.stage, chosen.seed))
    if model is None:
        return
    client = store.client
    if not client.search_registered_models(filter_string=f"name = '{REGISTERED}'"):
        client.create_registered_model(REGISTERED)
    versions = client.search_model_versions(f"name = '{REGISTERED}'")
    source = f"models:/{model.model_id}"  # a search leaves the model's id out
    version = next((item for item in versions if item.source == source), None)
    if version is None:
        version = client.create_model_version(
            REGISTERED,
            source=source,
            run_id=run_id,
            model_id=model.model_id,
            await_creation_for=0,
            tags={name: value for name, value in model.tags.items() if name.startswith("dvc.")},
        )
    for key, value in chosen.tags.items():
        client.set_model_version_tag(REGISTERED, str(version.version), key, value)
    client.set_registered_model_alias(REGISTERED, ALIAS, str(version.version))


def _find_model(store: Store, run_id: str, name: str) -> Any:
    models = store.client.search_logged_models(
        [store.experiment_id], filter_string=f"name = '{name}' AND source_run_id = '{run_id}'"
    )
    return models[0] if models else None


def _name_model(stage: str, seed: str) -> str:
    return f"{stage.partition('@')[2]}-seed-{seed}"


def log_files(store: Store, run_id: str, entry: Entry) -> None:
    """Small files, tables of completions, and the weights where they are asked for."""
    for path, folder in find_small_files(entry):
        store.client.log_artifact(run_id, str(path), folder)
    shown = []
    for name, table in read_tables(entry):
        # Not by `log_table`, which appends to a table that exists.
        shown.append({"path": f"completions/{name}.json", "type": "table"})
        store.client.log_text(run_id, json.dumps(table), shown[-1]["path"])
    if shown:
        store.client.set_tag(run_id, MLFLOW_LOGGED_ARTIFACTS, json.dumps(shown))
    if os.environ.get("POSTTRAIN_TRACK_WEIGHTS") == "1":
        for path, _ in find_policies(entry):
            store.client.log_artifacts(run_id, str(path), f"model/{path.name}")


def find_small_files(entry: Entry) -> Iterator[tuple[Path, str | None]]:
    """(file, folder in the run) of reports, plots, metrics and the run record, none of a model.

    Where the run record is on another machine, the journals are in its place.
    """
    journals = entry.journals
    if (record := entry.record or journals) is not None:
        yield from ((path, "run") for path in sorted(record.iterdir()))
    for out in entry.outs:
        if out.path == journals:
            continue
        paths = sorted(out.path.rglob("*")) if out.path.is_dir() else [out.path]
        for path in paths:
            if not path.is_file() or is_inside_model(path, out.path):
                continue
            if path.suffix in SUFFIXES and path.stat().st_size <= MAX_BYTES:
                within = path.relative_to(out.path).parent if out.path.is_dir() else Path()
                yield path, None if within == Path() else within.as_posix()


def read_tables(entry: Entry) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """(name, table) of the first rows of the first seed's completions, token ids left out."""
    for out in entry.outs:
        seeds = sorted(path for path in out.path.glob("*") if path.name.isdigit())
        for path in sorted(seeds[0].glob("*.jsonl")) if seeds else []:
            if path.name not in TABLES:
                continue
            with path.open(encoding="utf-8") as file:
                rows = [json.loads(line) for line in itertools.islice(file, MAX_ROWS)]
            if rows:
                names = [name for name, value in rows[0].items() if not isinstance(value, list)]
                data = [[row.get(name) for name in names] for row in rows]
                yield path.stem, {"columns": names, "data": data}
