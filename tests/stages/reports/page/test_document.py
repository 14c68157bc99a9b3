"""The frame of the page."""

import pytest

from stages.reports.page import document
from stages.reports.page.section import Section

SECTION = Section(anchor="a", title="A < B", body="<p>x</p>", parts=[("a-1", "One & two")])


def test_titles_are_escaped_and_listed():
    page = document.render("T & U", "1 < 2", [SECTION])
    assert "<title>T &amp; U</title>" in page
    assert "<p>1 &lt; 2</p>" in page
    assert '<a href="#a">A &lt; B</a><ul><li><a href="#a-1">One &amp; two</a></li></ul>' in page
    assert '<h2 id="a">A &lt; B' in page


def test_a_section_without_parts_has_no_empty_list():
    bare = Section(anchor="b", title="B", body="", parts=[])
    assert "<ul>" not in document.contents([bare])


def test_two_sections_with_one_anchor_are_refused():
    with pytest.raises(ValueError, match="name each report once"):
        document.render("T", "", [SECTION, SECTION])
