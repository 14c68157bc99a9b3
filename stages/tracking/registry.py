"""The best policy in MLflow's registry of models: its alias, and where its weights are."""

from pathlib import Path

import mlflow
from mlflow.utils.mlflow_tags import MLFLOW_GIT_COMMIT

from stages.tracking import lockfile, store
from stages.tracking.artifacts import find_model, name_model
from stages.tracking.headlines import BestPolicy
from stages.tracking.store import Store

REGISTERED = "posttrain-policy"
ALIAS = "best"
DESCRIPTION = """The policy with the highest accuracy on dev problems has the alias `best`.

MLflow holds no weights, so `models:/posttrain-policy@best` loads nothing. The tag `dvc.path` is \
the folder of the weights, and in the repository they are loaded by

    from stages.tracking.registry import find_best
    AutoModelForCausalLM.from_pretrained(find_best())
"""


def mark_best(store: Store, run_id: str, chosen: BestPolicy) -> None:
    """Register the policy that `run_id` of its stage wrote, and let the alias `best` name it."""
    model = find_model(store, run_id, name_model(chosen.stage, chosen.seed))
    if model is None:
        return
    client = store.client
    if not client.search_registered_models(filter_string=f"name = '{REGISTERED}'"):
        client.create_registered_model(REGISTERED, description=DESCRIPTION)
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


def find_best() -> Path:
    """The folder of the best policy's weights, in the repository that is the working folder.

    Raises:
        ValueError: if MLflow does not answer, no policy is registered, or the folder holds other
            weights than its.
    """
    uri = store.find_uri(Path.cwd())
    try:
        store.check_server(uri)  # MLflow would try for minutes, and print nothing
    except OSError as error:  # those of requests are OSErrors, too
        reason = store.hide_secrets(f"{uri}: expected MLflow, which does not answer: {error}")
        raise ValueError(f"{reason}. Start its server, or correct {store.URI}.") from None
    client = mlflow.MlflowClient(uri)
    if not client.search_registered_models(filter_string=f"name = '{REGISTERED}'"):
        raise ValueError(
            f"expected a model '{REGISTERED}' in MLflow, found none: `dvc repro` trains policies, "
            f"and `python -m stages.track` registers the best of them"
        )
    version = client.get_model_version_by_alias(REGISTERED, ALIAS)
    path, digest = Path(version.tags["dvc.path"]), version.tags["dvc.md5"]
    outs = [out for entry in lockfile.read_entries() for out in entry.outs]
    present = next((out.digest for out in outs if out.path == path.parent), None)
    if present == digest and path.is_dir():
        return path
    commit = client.get_run(version.run_id or "").data.tags.get(
        MLFLOW_GIT_COMMIT, "<the commit of its run>"
    )
    reason = "no such folder" if present == digest else f"{present} in dvc.lock"
    raise ValueError(
        f"{path}: expected the weights {digest}, found {reason}. `git checkout {commit}` and "
        f"`dvc checkout {path.parent}` bring them back."
    )
