"""Checkpoints in MLflow: pointers into DVC's cache, and the alias of the best policy.

An external LoggedModel holds a seed's path and DVC's digest of the folder of all seeds; the weights
stay where they are. `dvc checkout` at the run's commit brings them back.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from mlflow.entities import LoggedModel, LoggedModelOutput, LoggedModelStatus
from mlflow.models.model import MLMODEL_FILE_NAME
from mlflow.models.utils import get_external_mlflow_model_spec
from mlflow.utils.mlflow_tags import MLFLOW_MODEL_IS_EXTERNAL

from stages.tracking.headlines import Chosen
from stages.tracking.lockfile import Entry
from stages.tracking.store import Store

REGISTERED = "posttrain-policy"
ALIAS = "best"


def is_checkpoint(path: Path) -> bool:
    """Whether a folder holds a model (or an adapter) as transformers saves it."""
    return (path / "config.json").is_file() or (path / "adapter_config.json").is_file()


def checkpoints(entry: Entry) -> Iterator[tuple[Path, str]]:
    """(path, digest of the output) of the policy of each seed that the stage trained."""
    for out in entry.outs:
        if out.path.name == "model":
            seeds = sorted(path for path in out.path.glob("*") if path.name.isdigit())
            yield from ((path, out.digest) for path in seeds if is_checkpoint(path))


def holds(path: Path, top: Path) -> bool:
    """Whether a model in the output `top` holds this file."""
    folders = [folder for folder in path.parents if folder == top or top in folder.parents]
    return any(is_checkpoint(folder) for folder in folders)


def log(store: Store, run_id: str, entry: Entry) -> None:
    """An external LoggedModel for the policy of each seed that the stage trained.

    Not by `mlflow.create_external_model`, which adds tags of its own: the address of git's remote,
    where a token may stand.
    """
    found = list(checkpoints(entry))
    linked = store.client.get_run(run_id).outputs if found else None
    for path, digest in found:
        name = _name(entry.stage, path.name)
        model = _find(store, run_id, name) or store.client.create_logged_model(
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
            with TemporaryDirectory() as folder:
                get_external_mlflow_model_spec(model).save(str(Path(folder) / MLMODEL_FILE_NAME))
                store.client.log_model_artifacts(model.model_id, folder)
            store.client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
        if linked is None or all(one.model_id != model.model_id for one in linked.model_outputs):
            store.client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])


def mark_best(store: Store, run_id: str, chosen: Chosen) -> None:
    """Register the policy that `run_id` of its stage wrote, and let the alias `best` name it."""
    model = _find(store, run_id, _name(chosen.stage, chosen.seed))
    if model is None:
        return
    client = store.client
    if not client.search_registered_models(filter_string=f"name = '{REGISTERED}'"):
        client.create_registered_model(REGISTERED)
    versions = client.search_model_versions(f"name = '{REGISTERED}'")
    version = next((item for item in versions if item.model_id == model.model_id), None)
    if version is None:
        version = client.create_model_version(
            REGISTERED,
            source=f"models:/{model.model_id}",
            run_id=run_id,
            model_id=model.model_id,
            await_creation_for=0,
            tags={name: value for name, value in model.tags.items() if name.startswith("dvc.")},
        )
    for key, value in chosen.tags.items():
        client.set_model_version_tag(REGISTERED, str(version.version), key, value)
    client.set_registered_model_alias(REGISTERED, ALIAS, str(version.version))


def _find(store: Store, run_id: str, name: str) -> LoggedModel | None:
    found = store.client.search_logged_models(
        [store.experiment_id], filter_string=f"name = '{name}' AND source_run_id = '{run_id}'"
    )
    return found[0] if found else None


def _name(stage: str, seed: str) -> str:
    return f"{stage.partition('@')[2]}-seed-{seed}"
