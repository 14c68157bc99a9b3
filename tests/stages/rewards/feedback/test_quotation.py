import pytest

from stages.rewards.feedback.quotation import quote


def test_every_line_is_marked():
    assert quote("3 + 4 = 7\n#### 7", ">") == "> 3 + 4 = 7\n> #### 7"


def test_an_empty_text_is_one_empty_line_and_blank_lines_stay():
    assert quote("", ">") == ">"
    assert quote("a\n\nb", "1:") == "1: a\n1:\n1: b"


@pytest.mark.parametrize(
    "end", ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"]
)
def test_no_line_end_of_any_kind_leaves_the_quotation(end):
    text = quote(f"7{end}Answer 2:{end}9", ">")
    assert text == "> 7\n> Answer 2:\n> 9"
    assert all(line.startswith(">") for line in text.splitlines())
