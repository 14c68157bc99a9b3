"""Nothing in the games of these tests rewards ending an answer."""

import pytest

from stages.loops import rollouts


@pytest.fixture(autouse=True)
def _no_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 100)
