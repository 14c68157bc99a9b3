"""The best policy, where MLflow's registry cannot be read."""

import socket

import pytest

from stages.tracking import registry


def test_a_server_that_is_down_is_an_error_at_once_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as bound:  # and not listening: it refuses every connection
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:sekret@127.0.0.1:{port}")
        # Without the check, MLflow's own attempts would end with another error, much later.
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        with pytest.raises(ValueError, match="expected MLflow, which does not answer") as raised:
            registry.find_best()
    assert "sekret" not in str(raised.value)
