"""The MLflow store: its address, writing into its runs, and messages about its failures.

Tracking must never cost a training run: requests have short timeouts and are not repeated
(stages/track.py), every failure is one of `OUTAGES`, and no message contains a password. Every
write can be repeated: an outage can come between any two requests, or between a request and its
answer.
"""

import fcntl
import logging
import os
import re
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import alembic.util
import mlflow
import requests
import sqlalchemy.exc
from mlflow.entities import Metric, Param, Run, RunTag, ViewType
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from stages.runtime import identity
from stages.runtime.redaction import hide_secrets

logger = logging.getLogger(__name__)
OUTAGES = (
    MlflowException,
    requests.RequestException,
    sqlalchemy.exc.SQLAlchemyError,
    alembic.util.CommandError,
    OSError,
    ImportError,
)
"""Exceptions of a store that is absent, slow, broken, too new or without a driver for its database
(TimeoutError is an OSError)."""
URI = "MLFLOW_TRACKING_URI"
COMPLETE = "posttrain.complete"
MAX_VALUE = 6000
PATIENCE = 0.75 if "DVC_STAGE" in os.environ else 10.0
"""Seconds without an answer after which a server counts as down: it must not delay a pipeline."""
SECONDS_BETWEEN_PINGS = 0.2
MAX_SECONDS = 300.0
"""Seconds after which a call stops and leaves the rest to the next call: a slow server must not
delay a pipeline, either."""


class TrackedRun(NamedTuple):
    """A run of the store."""

    run_id: str
    is_new: bool
    """Whether it is incomplete: just created, or interrupted by an outage."""
    is_deleted: bool
    """Whether a user deleted it: then nothing more is written to it, and it is not created
    again."""
    tags: dict[str, str]

    def may_be_below(self, *run_ids: str) -> bool:
        """Whether it has no parent, or one of these runs, so that it can be nested in them."""
        return not self.is_deleted and self.tags.get(MLFLOW_PARENT_RUN_ID, "") in ("", *run_ids)


@dataclass(frozen=True)
class Store:
    """An experiment of a reachable store."""

    client: mlflow.MlflowClient
    experiment_id: str

    def run(
        self, tag: str, value: str, *, name: str, started: str, tags: dict[str, str]
    ) -> TrackedRun:
        """The run with this tag, created if there is none.

        An incomplete run (after an outage) is written again, which makes no duplicates in MLflow. A
        run that a user deleted is not created again.
        """
        runs = self.client.search_runs(
            [self.experiment_id],
            filter_string=f"tags.`{tag}` = '{value}'",
            run_view_type=ViewType.ALL,
            max_results=1,
        )
        run: Run = next(iter(runs), None) or self.client.create_run(
            self.experiment_id,
            start_time=to_milliseconds(started),
            tags=tags | {tag: value},
            run_name=name,
        )
        is_deleted = run.info.lifecycle_stage != "active"
        is_new = not is_deleted and COMPLETE not in run.data.tags
        return TrackedRun(run.info.run_id, is_new, is_deleted, run.data.tags)

    def find_complete(self, tag: str, value: str) -> TrackedRun | None:
        """A complete run with this tag; None: there is none."""
        filter_string = f"tags.`{tag}` = '{value}' AND tags.`{COMPLETE}` = 'true'"
        runs = self.client.search_runs([self.experiment_id], filter_string, max_results=1)
        return TrackedRun(runs[0].info.run_id, False, False, runs[0].data.tags) if runs else None

    def log(self, run_id: str, kind: str, items: list[Any]) -> None:
        """Log `metrics`, `params` or `tags`, in batches of the size that MLflow allows."""
        size = 1000 if kind == "metrics" else 100
        for start in range(0, len(items), size):
            batch: dict[str, Any] = {kind: items[start : start + size]}
            self.client.log_batch(run_id, **batch)

    def log_numbers(self, run_id: str, numbers: Mapping[str, float], time: int) -> None:
        """Log metrics without steps, at a time in milliseconds."""
        items = [Metric(escape_key(name), value, time, 0) for name, value in numbers.items()]
        self.log(run_id, "metrics", items)

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set tags, with long values cut."""
        items = [RunTag(name, value[:MAX_VALUE]) for name, value in tags.items()]
        self.log(run_id, "tags", items)

    def log_params(self, run_id: str, params: dict[str, Any]) -> None:
        """Log parameters, with long values cut."""
        items = [Param(escape_key(name), str(value)[:MAX_VALUE]) for name, value in params.items()]
        self.log(run_id, "params", items)

    def steps(self, run_id: str) -> Iterator[tuple[str, int]]:
        """(metric, step) of every point of a run."""
        for name in self.client.get_run(run_id).data.metrics:
            for point in self.client.get_metric_history(run_id, name):
                yield name, point.step

    def complete(self, run_id: str, ended: int) -> None:
        """Mark a run as complete; `ended`: end time, in milliseconds since 1970."""
        self.client.set_terminated(run_id, "FINISHED", ended)
        self.client.set_tag(run_id, COMPLETE, "true")


def to_milliseconds(time: str) -> int:
    """An ISO time in milliseconds since 1970."""
    return int(datetime.fromisoformat(time).timestamp() * 1000)


def escape_key(text: str) -> str:
    """`text` as a key of MLflow: letters, digits, `_`, `-`, `.`, `/` and space only."""
    return re.sub(r"[^\w\-. /]", "_", text.replace("@", "_at_"))


def find_page(path: str) -> str:
    """Address of a page of MLflow, and the command that starts a server if the store has none."""
    uri = os.environ.get(URI, "")
    parts = urlsplit(uri)
    if parts.scheme in ("http", "https"):
        host = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{host}{parts.path.rstrip('/')}/{path}"
    backend = f'"${URI}"' if uri else "sqlite:///mlflow.db"
    return (
        f"http://127.0.0.1:5000/{path}\n(after `mlflow server --backend-store-uri {backend} "
        f"--host 127.0.0.1 --port 5000`)"
    )


def check_server(uri: str) -> None:
    """Raise one of `OUTAGES` if the store has a server that does not answer within `PATIENCE`."""
    try:
        parts, port = urlsplit(uri), urlsplit(uri).port
    except ValueError:  # its message would show a password that has a `/` or `#`
        raise OSError("the address has no port that is a number: %2F for /, %23 for #") from None
    if parts.scheme in ("http", "https"):
        with suppress(requests.exceptions.SSLError):  # an answer, too, which MLflow will report
            requests.get(f"{uri.rstrip('/')}/health", timeout=PATIENCE)
    elif port:  # a database, for which MLflow would wait for minutes
        socket.create_connection((parts.hostname or "", port), timeout=PATIENCE).close()


def find_uri(root: Path) -> str:
    """Address of the store: MLFLOW_TRACKING_URI, or the repository's own database."""
    return os.environ.get(URI) or f"sqlite:///{root.resolve()}/mlflow.db"


@contextmanager
def connect(root: Path) -> Iterator[Store]:
    """Context with the experiment, created if new, locked by this process: sqlite allows just one.

    MLFLOW_TRACKING_URI names another store than the repository's database, and
    MLFLOW_EXPERIMENT_NAME another experiment than `posttrain`. The body gets one of `OUTAGES` as
    soon as the store stops answering: a request may be slow, but one that hangs ends within about a
    second.
    """
    uri = find_uri(root)
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "posttrain"
    deadline = time.monotonic() + MAX_SECONDS

    def look(*_: object) -> None:
        try:
            check_server(uri)
            if time.monotonic() > deadline:
                raise TimeoutError(f"the store took longer than {MAX_SECONDS:.0f} s")
        finally:
            signal.setitimer(signal.ITIMER_REAL, SECONDS_BETWEEN_PINGS)

    signal.signal(signal.SIGALRM, look)
    pipe = root / identity.PIPE
    pipe.mkdir(exist_ok=True)
    try:
        look()  # before this process takes the lock
        with (pipe / "track.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            client = mlflow.MlflowClient(uri)
            if (experiment := client.get_experiment_by_name(name)) is None:
                # A server has its own artifact folder; a database's depends on the working folder.
                is_server = uri.startswith(("http:", "https:", "databricks"))
                folder = None if is_server else (root.resolve() / "mlruns").as_uri()
                yield Store(client, client.create_experiment(name, artifact_location=folder))
            else:
                yield Store(client, experiment.experiment_id)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


@contextmanager
def naming_refusals(name: str, named: set[str] | None = None) -> Iterator[None]:
    """Context in which a server's refusal of a run is a warning that names it, and no outage.

    What it refuses now (a value too long, a parameter with another value) it will refuse again: the
    runs after it would never come. `named`: those of which there was a warning; none comes again.
    """
    try:
        yield
    except MlflowException as error:
        if error.get_http_status_code() != HTTPStatus.BAD_REQUEST:
            raise
        if named is not None and name in named:
            return
        reason = hide_secrets(f"{type(error).__name__}: {error}")
        logger.warning("MLflow refuses the run of %s, and each call tries again (%s)", name, reason)
        if named is not None:
            named.add(name)


def describe_outage(error: Exception, module: str) -> str:
    """Message about an outage: the reason, and the module to run when it is over."""
    reason = hide_secrets(f"{type(error).__name__}: {error}")
    return (
        f"MLflow is not up to date ({reason}). Nothing is lost: once the store answers, run "
        f"`python -m {module}`."
    )
