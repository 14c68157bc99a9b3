"""A calculator as a tool: exact sums, differences, products and quotients.

A model writes the expression, so it is not executed: Python's parser parses it, and only numbers,
the four operations and brackets are computed, in fractions. The limit of its length bounds the
digits of all intermediate numbers.
"""

import ast
import decimal
import operator
import re
from collections.abc import Callable
from fractions import Fraction

MAX_CHARACTERS = 200
OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
EXPECTED = f"expected numbers, + - * / and brackets, at most {MAX_CHARACTERS} characters"


def calculate(expression: str) -> str:
    """Calculates an expression of numbers.

    Args:
        expression: For example 12 * (3 + 4.5) / 2
    """
    # No letters, so no exponents, names or other bases.
    if len(expression) > MAX_CHARACTERS or not re.fullmatch(
        r"[\d\s.+*/()-]+", expression, re.ASCII
    ):
        raise ValueError(EXPECTED)
    try:
        text = " ".join(expression.split())
        return show_number(_compute(ast.parse(text, mode="eval").body, text))
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(EXPECTED) from None
    except ZeroDivisionError:
        raise ValueError("division by zero") from None


def _compute(node: ast.expr, text: str) -> Fraction:
    match node:
        case ast.Constant(value=int() | float()):
            # the digits in the text, not those of the nearest binary number
            return Fraction(ast.get_source_segment(text, node) or "")
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_compute(operand, text)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _compute(operand, text)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_compute(left, text), _compute(right, text))
        case _:
            raise ValueError(EXPECTED)


def show_number(number: Fraction) -> str:
    """A whole number, a decimal number if that is exact, else a quotient: `7`, `0.25`, `1/3`."""
    with decimal.localcontext(prec=1000):
        quotient = decimal.Decimal(number.numerator) / number.denominator
    return f"{quotient:f}" if Fraction(quotient) == number else str(number)
