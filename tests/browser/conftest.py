"""One browser for the tests of a file."""

import chromium
import pytest

MISSING = not (chromium.BROWSER and chromium.DRIVER)


def pytest_collection_modifyitems(items):
    for item in items:
        if "browser" in item.keywords and MISSING:
            item.add_marker(pytest.mark.skip(reason="no chromium here: run .ci/install-chromium"))


@pytest.fixture(scope="module")
def driver():
    with chromium.started() as browser:
        yield browser
