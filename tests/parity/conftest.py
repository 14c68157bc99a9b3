"""The table of parity: rows that tests recorded, printed when the run ends."""

import importlib.util

import huggingface_hub
import pytest
from parity.rows import TOLERANCE, Row, compare, markdown


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/parity/" in item.nodeid:
            item.add_marker(pytest.mark.parity)


@pytest.fixture(autouse=True)
def _needs_trl(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("trl") is None:
        pytest.skip("TRL is not installed: pip install -c constraints.txt -e '.[test,parity]'")
    # TRL reports every trainer that is made, unless it is told not to.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_TELEMETRY", True)


@pytest.fixture
def agree(record_property):
    """Puts a row with its differences into the table, and fails if these are not rounding."""

    def check(row: Row, ours: object, theirs: object, tolerance: float = TOLERANCE) -> None:
        value, gradient = compare(ours, theirs)
        record_property("parity", row.cells(value, gradient))
        assert value <= tolerance
        assert gradient is None or gradient <= tolerance

    return check


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = terminalreporter.getreports("passed")
    rows = [value for r in reports for name, value in r.user_properties if name == "parity"]
    if rows:
        terminalreporter.section("parity")
        terminalreporter.write_line(markdown(rows))
