"""The picture of the live display is that of today's display."""

from pipeline_copy import ROOT

from tests import pictures


def test_the_live_display_is_drawn_as_it_is_today() -> None:
    picture = (ROOT / pictures.LIVE).read_text(encoding="utf-8")
    assert pictures.draw_live() == picture, "run python -m tests.pictures, and look at it"
