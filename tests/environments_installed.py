"""Mark of the tests that need the packages of the extra `environments`."""

import importlib.util

import pytest

PACKAGES = ("reasoning_gym", "skyrl_gym", "textarena", "aviary")


def needs_environments(test):
    """The mark `environments`, skipped where one of the packages is missing."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    reason = f"not installed: {', '.join(missing)} (pip install -e '.[environments]')"
    return pytest.mark.environments(pytest.mark.skipif(bool(missing), reason=reason)(test))
