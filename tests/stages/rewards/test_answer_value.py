import json
from itertools import pairwise
from pathlib import Path

import pytest

from stages.rewards.answer_checker import answers_match, is_correct, states_an_answer
from stages.rewards.answer_value import answer_words, canonical_value, split_elements

MATH_500 = [
    json.loads(line)["answer"]
    for line in (Path(__file__).parent / "math500_answers.jsonl").read_text("utf-8").splitlines()
]
"""The gold answers of MATH-500 (Hendrycks et al. 2021, MIT licence; Lightman et al. 2023)."""


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("1,000.0", "1000"), ("$1000", "1000"), ("2000/2", "1000"), ("0.75", "3/4"),
        (r"\frac{6}{8}", "3/4"), ("-7", "-7"), (r"\sqrt{ 2 }", r"\sqrt{2}"), ("(1, 2)", "(1,2)"),
        ("nan", None), ("Tuesday", None), ("", None), ("3 + 4", None),
        ("5 or 7", None), ("9" * 10_000, None),
    ],
)  # fmt: skip
def test_equal_values_have_one_canonical_text(answer: str, value: str | None) -> None:
    assert canonical_value(answer) == value


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("2, 1", "{1,2}"), (r"\{1, 2\}", "{1,2}"), ("1 and 2", "{1,2}"),
        ("(1/2, 3)", "(1/2,3)"), ("(0.5,3)", "(1/2,3)"), (r"[0,\infty)", r"[0,\infty)"),
        (r"3 \pm \sqrt{2}", r"{3+\sqrt{2},3-\sqrt{2}}"), ("y=2, x=1", "(x,y)=(1,2)"),
        ("1,000, 5", "{1000,5}"), ("(1, 3 + 4)", None), ("apples and pears", None),
        (r"x \in [-2,7]", "[-2,7]"), ("y = 2x + 3", "2x+3"), (r"\sqrt2", r"\sqrt{2}"),
        ("(-1, 2) \\cup (3, 4)", "(-1,2)\\cup(3,4)"),
        (r"\frac{\pi}{2}.", r"\frac{\pi}{2}"), (r"3\sqrt{2}\text{ cm}^2", r"3\sqrt{2}"),
        ("2516_{8}", "2516_8"), ("2xy", "2xy"),
    ],
)  # fmt: skip
def test_mathematics_has_one_text_too(answer: str, value: str | None) -> None:
    assert canonical_value(answer) == value


def test_words_are_words_however_they_are_dressed() -> None:
    assert answer_words(r"\text{Even}") == answer_words("even.") == "even"
    assert answer_words(r"\text{(C)}") == answer_words("(C)") == answer_words("C") == "C"
    assert (
        answer_words("one of the many long answers")
        is answer_words("nan")
        is answer_words("7 even")
        is None
    )
    assert is_correct(r"\boxed{\text{Evelyn}}", r"\text{Evelyn}")
    assert is_correct(r"\boxed{Evelyn}", r"\text{Evelyn}")
    assert not is_correct(r"\boxed{Navin}", r"\text{Evelyn}")
    assert not is_correct(r"\boxed{B}", r"\text{(C)}")
    assert states_an_answer(r"\boxed{\text{even}}")
    assert not states_an_answer("#### even")


def test_the_order_counts_in_a_tuple_alone() -> None:
    assert answers_match("-2, 1", "1,-2")
    assert answers_match(r"\sqrt{8}, 1", r"1, 2\sqrt{2}")
    assert not answers_match("1, 1", "1,-2")
    assert not answers_match("1", "1,-2")
    assert not answers_match("(2, 1)", "(1, 2)")
    assert not answers_match("(1, 2)", "[1, 2]")
    assert answers_match("y = 2, x = 1", "x = 1, y = 2")
    assert not answers_match("x = 2, y = 1", "x = 1, y = 2")


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("8 = 7^1", "7"), ("7^1 = 8", "7"), ("3.1415927", r"\pi"), ("3.14", r"\pi"),
        ("3.14159265358979323846264338327950288", r"\pi"), (r"\pi", "3.14"),
        ("1.414214", r"\sqrt{2}"),
        ("0.333333", r"\frac{1}{3}"), ("2516", "2516_8"), ("2516_7", "2516_8"), ("2", "2xy"),
        ("7 squared", "7"), ("3 thousands", "3"), ("7 hundred thousand", "700"), ("7 < 8", "7"),
    ],
)  # fmt: skip
def test_what_differs_is_wrong(answer: str, gold: str) -> None:
    assert not answers_match(answer, gold)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        (r"7 \mathrm{~cm}", "7"), ("US$7", "7"), ("7 x 10^3", "7000"), (r"7 \times 10^{3}", "7000"),
        (r"\boxed{{7}}", "7"), (r"\frac{1,000}{2}", "500"), (r"\frac{\pi}{2}.", r"\frac{\pi}{2}"),
        ("7 hundred thousand", "700000"), ("3 thousands", "3000"), (r"0.5\pi", r"\frac{\pi}{2}"),
        (r"11,\! 111,\! 111,\! 100", "11111111100"), (r"864 \mbox{ inches}^2", "864"),
        (r"\frac{270}7\text{ degrees}", r"\frac{270}{7}"), (r"\frac 34", "0.75"),
        (r"x \in [-2,7]", "[-2, 7]"), (r"\{1+\sqrt{5}, -2, 1-\sqrt{5}\}", r"\{1\pm\sqrt{5},-2\}"),
        (r"\begin{pmatrix} 1/2 \\ 3 \end{pmatrix}",
         r"\begin{pmatrix} \frac{1}{2} \\ 3 \end{pmatrix}"),
        ("2k + 2", "2(k+1)"), (r"(0, 9) \cup (9, 36)", r"(0,9) \cup (9,36)"),
    ],
)  # fmt: skip
def test_what_is_the_same_is_right(answer: str, gold: str) -> None:
    assert is_correct(answer if "boxed" in answer else rf"\boxed{{{answer}}}", gold)


def test_every_gold_answer_of_math_500_equals_itself_in_its_usual_dress() -> None:
    assert len(MATH_500) == 500
    assert [gold for gold in MATH_500 if not is_correct(rf"so $\boxed{{{gold}}}$.", gold)] == []
    assert [gold for gold in MATH_500 if not is_correct(f"The answer is ${gold}$.", gold)] == []


def test_another_gold_answer_of_math_500_is_wrong() -> None:
    golds = sorted(set(MATH_500))
    assert [pair for pair in pairwise(golds) if answers_match(*pair)] == [
        ("120", r"120^\circ"), ("15", r"15\mbox{ cm}^2"), ("30", r"30^\circ"), ("36", r"36^\circ"),
    ]  # fmt: skip


def test_what_a_list_consists_of() -> None:
    result = split_elements(r"\{1, 2\}")
    assert result is not None
    assert (result.kind, list(result.elements), result.is_ordered) == ("set", ["1", "2"], False)
    assert split_elements("1,000") is split_elements("apples") is None
    assert split_elements("(1, 2) \\cup (3, 4)") is split_elements("7") is None
