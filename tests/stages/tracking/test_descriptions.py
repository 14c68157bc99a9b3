"""Descriptions of runs show a text as it is."""

import pytest

from stages.tracking import descriptions


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("grpo (+29.6 points), 64.2 %", r"grpo \(+29.6 points\), 64.2 %"),
        ("![x](http://a)", r"\!\[x\]\(http://a\)"),
        ("<img src=x> a_b | c", r"&lt;img src=x&gt; a\_b \| c"),
    ],
)
def test_no_text_is_markup(text, markdown):
    assert descriptions.escape(text) == markdown
    note = descriptions.describe_manifest(text, {}, {}, "1")
    assert note == markdown


def test_a_policy_without_a_gain_or_runs_has_its_accuracy_alone():
    note = descriptions.describe_manifest("", {"accuracy/a": 0.25, "gain/b": 1.0}, {}, "1")
    assert note.splitlines()[-1] == "| a | 25.0 |  |  |"
