"""How patient MLflow is, unless the environment says otherwise; apply before importing it."""

import logging
import os

SETTINGS = {
    # MLflow's own defaults block for four minutes a call when a server is down.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    # Read while it is imported: it would call home.
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


def apply() -> None:
    """Set what the environment leaves open."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    # They tell nine lines of set-up each time.
    for name in ("alembic", "mlflow.store.db.utils"):
        logging.getLogger(name).setLevel(logging.WARNING)
