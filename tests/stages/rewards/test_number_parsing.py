from fractions import Fraction

import pytest
from cpu_time import cpu_seconds

from stages.rewards.number_parsing import parse_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        ("-7", -7),
        ("\u22127", -7),
        ("- 7", -7),
        ("1,234", 1234),
        ("1,234,567.50", Fraction(2469135, 2)),
        ("1{,}000", 1000),
        ("$18", 18),
        ("-$5.50", Fraction(-11, 2)),
        ("$-5", -5),
        (r"\$1,000", 1000),
        ("50%", 50),
        (r"50\%", 50),
        ("18 dollars", 18),
        ("5 km/h", 5),
        (r"18\text{ cm}^2", 18),
        (r"45^\circ", 45),
        ("3 million", 3_000_000),
        ("2 quadrillion", 2 * 10**15),
        ("10 lakh", 1_000_000),
        ("3 crore", 30_000_000),
        ("3 months", 3),
        ("₹500", 500),
        ("5 N", 5),
        (".5", Fraction(1, 2)),
        ("18.00", 18),
        ("18.", 18),
        ("3/4", Fraction(3, 4)),
        (r"-\frac{3}{4}", Fraction(-3, 4)),
        (r"$\dfrac{3}{4}$", Fraction(3, 4)),
        (r"\frac34", Fraction(3, 4)),
        ("2 1/2", Fraction(5, 2)),
        (r"2\frac{1}{2}", Fraction(5, 2)),
        ("1e3", 1000),
        ("x = 5", 5),
        ("**18**", 18),
    ],
)
def test_a_number_is_read_exactly(text: str, value: Fraction) -> None:
    assert parse_number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "", "nan", "inf", "five", "Step 2", "5 or 7", "5 and a half", "3:30", "1.5.2", "3/4/5",
        "1,23", "1234,567", "1,2345", "1/0", "2 3/2", "--5", "-$-5", "5 - x", "10 - 3", "2x",
        "2 pi", "2 plus two", "(5)", "5²", "10 millionths", "10 hundredths", "10 zillion", "10 hex",
        "10 in binary", "5N", "5 rs", "1e999", "\u0665", "\uff15", "9" * 61, "9" * 10_000,
    ],
)  # fmt: skip
def test_what_is_not_one_number_is_unreadable(text: str) -> None:
    assert parse_number(text) is None


def test_long_text_is_refused_at_once() -> None:
    texts = ["9" * 1_000_000, "5 " + "aa " * 100_000, "1," * 100_000]
    assert [parse_number(text) for text in texts] == [None] * 3
    assert cpu_seconds(lambda: [parse_number(text) for text in texts], parse_number) < 0.5
