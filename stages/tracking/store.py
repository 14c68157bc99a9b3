"""The MLflow store: where it is, how long we wait for it, how its failures are told.

A tracker must never cost a training run: requests are short (stages/track.py), every failure is
one of `OUTAGES`, and nothing that is told contains a password.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import alembic.util
import mlflow
import requests
import sqlalchemy.exc
from mlflow.exceptions import MlflowException

from stages.runtime import identity

OUTAGES = (
    MlflowException,
    requests.RequestException,
    sqlalchemy.exc.SQLAlchemyError,
    alembic.util.CommandError,
    OSError,
)
"""What an absent, slow, broken or too new store raises (TimeoutError is an OSError)."""

EXPERIMENT = "posttrain"


@dataclass(frozen=True)
class Store:
    """An experiment of a reachable store."""

    client: mlflow.MlflowClient
    experiment_id: str


@contextmanager
def exclusive() -> Iterator[None]:
    """Keep this repository's other processes away: several that make one sqlite file break it."""
    identity.PIPE.mkdir(exist_ok=True)
    with (identity.PIPE / "track.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def connect(root: Path) -> Store:
    """The experiment, created when it is new.

    Call it within `exclusive`. MLFLOW_TRACKING_URI names another store than the repository's own,
    and MLFLOW_EXPERIMENT_NAME another experiment than `posttrain`.
    """
    local = f"sqlite:///{root.resolve()}/mlflow.db"
    uri = os.environ.get("MLFLOW_TRACKING_URI") or local
    # Creating external models goes through the module's own functions, which use this.
    mlflow.set_tracking_uri(uri)
    client = mlflow.MlflowClient(uri)
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
    experiment = client.get_experiment_by_name(name)
    if experiment is not None:
        return Store(client, experiment.experiment_id)
    # A server has its own artifact folder; a database's default depends on the working directory.
    is_server = uri.startswith(("http:", "https:", "databricks"))
    folder = None if is_server else (root.resolve() / "mlruns").as_uri()
    return Store(client, client.create_experiment(name, artifact_location=folder))


def outage(error: Exception, module: str) -> str:
    """What to tell of an outage: why, and the module that makes up for it when it is over."""
    reason = without_secrets(f"{type(error).__name__}: {error}")
    return (
        f"MLflow was not brought up to date ({reason}). Nothing is lost: "
        f"run `python -m {module}` when it can be reached."
    )


def without_secrets(text: str) -> str:
    """`text` with the user and password of every address in it hidden."""
    return re.sub(r"//[^/@\s]+@", "//***@", text)
