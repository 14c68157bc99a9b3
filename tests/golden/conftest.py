"""An option to write the golden curves anew."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden-write", action="store_true", help="write tests/golden/curves.json")
