"""What is too large to compute is known from the text."""

import pytest

from stages.rewards.expression_size import is_small


@pytest.mark.parametrize(
    "text",
    [
        r"\frac{3\sqrt{5}}{7}", "2^{2019}", "2021^{2022}", "x^{100}", "20!", r"\binom{10}{3}",
        "(x+1)^{10}", r"e^{e^{x}}", r"2^{2^3}", r"\sqrt{2}+\sqrt{3}+\sqrt{5}", "10^{-9}", "1,000",
        r"\left(\frac{1}{2}\right)^{100}", "(", ")", "^", "!", "", r"\frac", "x^{-1}", "2^{x+y}",
    ],
)  # fmt: skip
def test_what_people_write_is_small(text: str) -> None:
    assert is_small(text)


@pytest.mark.parametrize(
    "text",
    [
        "9^{9^{9}}", "9^9^9^9", "9**9**9", "2^{3^{4^{5}}}", "9^{9999999}", "10^{-10^{9}}",
        "99999!", "(99!)!", "20!!!", r"\binom{99999999}{4999999}", r"\sin(10^{99999})",
        "(x+y+z+1)^{50}", r"(\sqrt{2}+1)^{9999}", "(a+b)" * 20, r"e^{e^{e^{e^{e}}}}",
        "((a+b)(c+d)(e+f)(g+h)(a+b)(c+d)(e+f)(g+h))^{99999}",
        r"\sqrt{2}" * 9, "9" * 10_001, "(" * 9_999, r"\frac{1}{2}^{9^{9^9}}", r"(9^{9^9})^{0}",
    ],
)  # fmt: skip
def test_what_takes_for_ever_is_not(text: str) -> None:
    assert not is_small(text)
