"""Cells of the report's tables."""

import pytest

from stages.report import tables
from stages.report.markdown import render_table
from stages.report.sections import CaptionedTable


def make_metrics(strict, lenient):
    """Of two policies, their accuracy by both readings, and the gain of the second."""
    readings = {"mean_strict": strict, "mean_lenient": lenient}
    return {
        "policies": {
            name: {key: {"value": values[place]} for key, values in readings.items()}
            for place, name in enumerate(("sft", "grpo"))
        },
        "gains": {
            key: {"grpo": {"value": values[1] - values[0]}} for key, values in readings.items()
        },
    }


@pytest.mark.parametrize(
    ("strict", "lenient", "share"),
    [
        ((0.50, 0.75), (0.60, 0.75), "40"),  # 25 points, of which 10 were right but for the format
        ((0.50, 0.75), (0.50, 0.75), "0"),
        ((0.50, 0.75), (0.75, 0.75), "100"),
        ((0.50, 0.50), (0.75, 0.75), "–"),
        ((0.50, 0.40), (0.75, 0.75), "–"),
    ],
)
def test_the_share_of_a_gain_that_is_format(strict, lenient, share):
    metrics = make_metrics(strict, lenient)
    assert tables.format_readings(metrics, "grpo") == {
        "strict, %": f"{100 * strict[1]:.1f}", "lenient, %": f"{100 * lenient[1]:.1f}",
        "gain by format, %": share,
    }  # fmt: skip
    assert tables.format_readings(metrics, "sft")["gain by format, %"] == "–"


def test_readings_differ_from_a_point_on():
    assert not tables.readings_differ(make_metrics((0.5, 0.5), (0.5, 0.51)))
    assert tables.readings_differ(make_metrics((0.5, 0.5), (0.5, 0.511)))


def test_words_stand_on_the_left_and_numbers_on_the_right():
    rows = [
        {"policy": "sft", "method": "SFT", "steps": "2,324", "gain": "–", "result": ""},
        {"policy": "dpo", "method": "DPO", "steps": "120 to 124", "gain": "+1.0", "result": "none"},
    ]
    table = CaptionedTable("", rows)
    assert render_table(table.columns, table.cells, table.words).splitlines()[:2] == [
        "| policy | method | steps | gain | result |",
        "| --- | --- | ---: | ---: | --- |",
    ]
