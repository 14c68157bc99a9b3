"""Markdown reports as sections."""

import re

import pytest
import report_inputs

from stages.reports.page.markdown_section import convert, slug


def section(text, folder, anchor="a"):
    return convert(text, folder=folder, anchor=anchor)


def test_headings_are_one_level_deeper_and_have_ids_of_their_own(tmp_path):
    found = section("# T `x`\n\n## One & two\n\n## One & two\n\n### Deep\n", tmp_path)
    assert (found.title, found.anchor) == ("T x", "a")
    assert found.parts == [("a-one-two", "One & two"), ("a-one-two-2", "One & two")]
    assert '<h3 id="a-one-two">One &amp; two</h3>' in found.body
    assert '<h4 id="a-deep">Deep</h4>' in found.body
    assert "<h1" not in found.body
    assert "T <" not in found.body


def test_tables_scroll_in_a_box_and_keep_their_alignment(tmp_path):
    body = section("# T\n\n| a | b |\n| --- | ---: |\n| 1 | 2 |\n", tmp_path).body
    assert re.search(r'<div class="scroll table" tabindex="0"[^>]*><table>', body)
    assert '<td style="text-align:right">2</td>' in body
    assert body.count("<div") == body.count("</div>") == 1


def test_images_are_inlined_from_the_reports_folder(tmp_path):
    (tmp_path / "plots").mkdir()
    report_inputs.line(tmp_path / "plots/x.png")
    body = section('# T\n\n![a "b" <c>](plots/x.png)\n', tmp_path).body
    assert 'alt="a &quot;b&quot; &lt;c&gt;" width="200" height="100"' in body
    assert "plots/x.png" not in body


def test_an_image_elsewhere_is_refused(tmp_path):
    report_inputs.line(tmp_path / "x.png")
    (tmp_path / "in").mkdir()
    with pytest.raises(ValueError, match="own folder"):
        section("# T\n\n![a](../x.png)\n", tmp_path / "in")


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[a](javascript:alert(1))",
        "[a](data:text/html,x)",
        "[a](file:///etc/passwd)",
        "<javascript:alert(1)>",
    ],
)
def test_no_markup_of_a_report_runs_or_leads_away(text, tmp_path):
    body = section(f"# T\n\n{text}\n\n| a |\n| --- |\n| {text} |\n", tmp_path).body
    assert not re.search(r"<(script|img|a)\b", body)


@pytest.mark.parametrize("text", ["", "text\n", "# A\n\n# B\n", "## A\n", "text\n\n# A\n"])
def test_a_report_has_one_title_at_its_top(text, tmp_path):
    with pytest.raises(ValueError, match="begins with its one heading"):
        section(text, tmp_path)


def test_slugs():
    assert slug("Gain over SFT, by 5 %") == "gain-over-sft-by-5"
