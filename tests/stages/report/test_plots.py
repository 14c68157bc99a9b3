"""Lines are told apart without colour, and colours follow the reader's preference."""

import contextlib
import re

import pytest
import report_inputs

from stages import compare
from stages.report import plots


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """The SVG files of a report, by name."""
    path = tmp_path_factory.mktemp("plots")
    with contextlib.chdir(path):
        report_inputs.write()
        compare.main()
    paths = (path / compare.OUTPUT / "plots").glob("*.svg")
    return {path.name: path.read_text(encoding="utf-8") for path in paths}


def read_marks(svg):
    """Pairs of a line's dashes and its marker's shape, of lines that have a marker."""
    shapes = dict(re.findall(r'<path id="(m\w+)" d="([^"]+)"', svg))
    lines = re.findall(
        r'<g id="line2d_\d+">\s*<path d="[^"]+"[^>]*style="fill: none;([^"]*)"/>\s*<defs>\s*'
        r'<path id="(m\w+)"',
        svg,
    )
    dashes = [re.findall(r"stroke-dasharray: ([^;]+)", style) for style, _ in lines]
    return [(*dash, shapes[name]) for dash, (_, name) in zip(dashes, lines, strict=True)]


def test_lines_of_a_panel_differ_in_dashes_and_marker(pictures):
    marks = read_marks(pictures["accuracy_by_n.svg"])
    # pass@n, the majority, and best of n by outcome, preference, process and own log-probability
    assert len(set(marks)) == 6
    seeds = set(read_marks(pictures["training-dpo.svg"]))
    assert len(seeds) == len(report_inputs.SEEDS)


def test_every_colour_has_one_for_a_dark_page(pictures):
    assert len(pictures) == 5
    dark = {colour.lower() for colour in plots.DARK}
    for name, svg in pictures.items():
        used = set(re.findall(r"(?:fill|stroke): (#\w+)", svg.partition("</style>")[2]))
        assert used <= dark, name
        assert "@media (prefers-color-scheme: dark)" in svg


def test_lines_are_rounded_and_words_are_text(pictures):
    for name, svg in pictures.items():
        assert not re.search(r' d="[^"]*\.\d{3}', svg), name
        assert "<text" in svg
