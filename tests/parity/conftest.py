"""The table of parity: rows that tests recorded, printed when the run ends."""

import importlib.util
from collections.abc import Callable

import huggingface_hub
import pytest
from parity.reference import Computed
from parity.rows import TRL, Row, as_property, largest_differences, markdown

# float32 on both sides: TRL's output layer computes in float32 whatever the model's precision.
TOLERANCE = 1e-5


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/parity/" in item.nodeid:
            item.add_marker(pytest.mark.parity)


@pytest.fixture(autouse=True)
def needs_trl(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("trl") is None:
        pytest.skip("TRL is not installed: pip install -c constraints.txt -e '.[test,parity]'")
    # TRL reports every trainer that is made, unless it is told not to.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_TELEMETRY", True)


@pytest.fixture
def record(record_property: Callable[[str, object], None]) -> Callable[[Row], None]:
    """Puts a row in the table."""
    return lambda row: record_property("parity", as_property(row))


@pytest.fixture
def agree(record: Callable[[Row], None]) -> Callable[..., None]:
    """Records how far two computations differ, and fails if that is not rounding."""

    def check(
        method: str,
        compared: str,
        ours: Computed | list[Computed],
        theirs: Computed | list[Computed],
        *,
        note: str = "",
        trl: str = TRL,
    ) -> None:
        loss, gradient = largest_differences(ours, theirs)
        record(
            Row(method=method, compared=compared, value=loss, gradient=gradient, note=note, trl=trl)
        )
        assert loss <= TOLERANCE
        assert gradient <= TOLERANCE

    return check


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = terminalreporter.getreports("passed")
    rows = [value for r in reports for name, value in r.user_properties if name == "parity"]
    if rows:
        terminalreporter.section("parity")
        terminalreporter.write_line(markdown(rows))
