"""The calculator: exact results, and nothing else than arithmetic."""

import pytest

from stages.environments.arithmetic import calculate


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("483 * 907", "438081"),
        ("2 + 3 * 4", "14"),
        ("-(2 - 5) * +4", "12"),
        ("1 / 3 + 1 / 6", "0.5"),
        ("1 / 3", "1/3"),
        ("0.1 + 0.2", "0.3"),
        ("-1 / 800", "-0.00125"),
        ("5.50 * 2", "11"),
        ("12345678901234567890.125 * 8", "98765431209876543121"),
        (" 2\n+ 2 ", "4"),
        ("9" * 99 + "*" + "9" * 99, str((10**99 - 1) ** 2)),
        ("(" * 60 + "7" + ")" * 60, "7"),
        ("-" * 190 + "7", "7"),
    ],
)
def test_results_are_exact(expression: str, result: str):
    assert calculate(expression) == result


@pytest.mark.parametrize(
    "expression",
    ["", "2 +", "2 ** 9", "7 // 2", "1e9", "0x10", "x", "__import__('os')", "2, 3", "(2)(3)", "007",
     "2 2", "1 " * 150, "()", "٣ + 1", "2 < 3", "...", "()" * 100],
)  # fmt: skip
def test_everything_else_is_refused(expression: str):
    with pytest.raises(ValueError, match="expected numbers"):
        calculate(expression)


def test_division_by_zero_is_said():
    with pytest.raises(ValueError, match="division by zero"):
        calculate("1 / (2 - 2)")
