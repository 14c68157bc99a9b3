r"""Bounds of an expression's value at fixed points: whether two expressions surely differ.

A sum, product, quotient, power, root or function of numbers and letters is computed in interval
arithmetic, each letter at a positive number of its own. Where the intervals of two expressions are
apart, the expressions are different, whatever algebra could do with them. That takes less than a
millisecond, and no longer for `(x+y+1)^{30}` or ten nested fractions than for `x+1`, which algebra
expands.

Only notation of one meaning is read: `1/2x`, `x^10`, `2\frac{1}{2}`, `\sin 2x`, `\log x`, units,
lists and relations are not, but for two equations that give the same letter (`y=3x` and `y=2x`).
Nor is what is not real at the points, such as `\sqrt{-2}`.
"""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from mpmath import isfinite
from mpmath.ctx_iv import MPIntervalContext

PRECISION = 200
"""Bits of a bound; a number with more digits has wider bounds."""
MIN_DISTANCE = 1e-6
"""Smallest distance between the bounds of values that surely differ, relative to the larger of the
two, or to 1 where both are smaller than 1."""
MAX_DEPTH = 100
MAX_EXPONENT = 100_000
"""Of powers, and the largest argument of the exponential function, which makes as many digits."""
MAX_ARGUMENT = 10**20
"""Of other functions: `\\sin` needs as many digits of pi as its argument has."""
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?|\.\d+)|(?P<command>\\[A-Za-z]+)"
    r"|(?P<indexed>[A-Za-z]_(?:\w|\{\w{1,3}\}))|(?P<word>[A-Za-z]+)|(?P<mark>[-+*/^(){}_\[\]]))",
    re.ASCII,
)
_EQUATION = re.compile(r"\s*([A-Za-z])\s*=([^=]*)", re.ASCII)
_END = ("end", "")
_BRACKETS = {"(": ")", "{": "}"}
_FRACTIONS = (r"\frac", r"\cfrac", r"\dfrac", r"\tfrac")
_PRODUCTS = ("*", r"\cdot", r"\times")
_LETTERS = (r"\theta", r"\alpha", r"\beta", r"\phi", r"\lambda", r"\mu", r"\omega", r"\nu")
_PRODUCT_LETTERS = frozenset("abckmnpqrstuvwxyz")
"""Of a word of them, such as `xy`, a product."""
_context: Any = MPIntervalContext()
_context.prec = PRECISION
_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    r"\sin": _context.sin, r"\cos": _context.cos, r"\tan": _context.tan,
    r"\ln": _context.log, r"\exp": _context.exp, r"\log": _context.log,
}  # fmt: skip
_OFFSETS = (Fraction(1, 3), Fraction(5, 7))
"""Of the two points."""


class _NotReadError(Exception):
    """An expression in other notation, or without a real value."""


def differ(answer: str, gold: str) -> bool | None:
    """Whether both have values that are surely different; None: one of them has none here."""
    equations = [_EQUATION.fullmatch(text) for text in (answer, gold)]
    if equations[0] is not None and equations[1] is not None:
        (name, answer), (gold_name, gold) = (match.groups() for match in equations if match)
        if name != gold_name or name in answer + gold:
            return None
    of_answer, of_gold = bound_values(answer), bound_values(gold)
    if of_answer is None or of_gold is None:
        return None
    for first, second in zip(of_answer, of_gold, strict=True):
        distance = max(first.a - second.b, second.a - first.b)  # intervals of one number each
        if distance > MIN_DISTANCE * max(1, abs(first).b, abs(second).b):
            return True
    return False


@lru_cache(maxsize=1024)
def bound_values(text: str) -> tuple[Any, ...] | None:
    """An interval at each point; None for what is not read, or has no finite bounds."""
    try:
        values = tuple(_Reader(text, offset).read() for offset in _OFFSETS)
        return values if all(isfinite(value.delta) for value in values) else None
    except (_NotReadError, ArithmeticError, ValueError, RecursionError):
        return None  # of mpmath: a division by zero, a logarithm of a negative number


class _Reader:
    """Computes an expression from left to right."""

    def __init__(self, text: str, offset: Fraction) -> None:
        self.tokens, self.offset, self.depth = _split(text)[::-1], offset, 0
        self.previous = ""
        """Kind of the last factor: that of its token, `function` or `power`."""

    def read(self) -> Any:
        value = self.read_sum()
        if self.peek() != _END:
            raise _NotReadError
        return value

    def peek(self) -> tuple[str, str]:
        return self.tokens[-1] if self.tokens else _END

    def take(self, *texts: str) -> str | None:
        """The next token, if it is one of these."""
        return self.tokens.pop()[1] if self.peek()[1] in texts else None

    def read_sum(self) -> Any:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _NotReadError
        value, sign = _context.mpf(0), self.take("+", "-") or "+"
        while True:
            value = value + self.read_product() if sign == "+" else value - self.read_product()
            sign = self.take("+", "-")
            if sign is None:
                self.depth -= 1
                return value

    def read_product(self) -> Any:
        value, is_quotient = self.read_power(), False
        while True:
            kind, text = self.peek()
            if self.take(*_PRODUCTS):
                value *= self.read_power()
            elif self.take("/"):
                value, is_quotient = value / self.read_power(), True
            elif kind in ("number", "indexed", "word", "command") or text == "(":
                has_meanings = (
                    is_quotient  # 1/2x
                    or kind == "number"  # x2
                    or (self.previous == "number" and text in _FRACTIONS)  # 2\frac{1}{2}
                    or self.previous == "function"  # \sin(x)(2)
                )
                if has_meanings:
                    raise _NotReadError
                value *= self.read_power()
            else:
                return value

    def read_power(self) -> Any:
        """A factor with its exponent: in braces, or a digit or letter."""
        kind, text = self.peek()
        base = self.read_factor()
        self.previous = "function" if text in _FUNCTIONS else kind
        if not self.take("^"):
            return base
        kind, text = self.peek()
        is_read = text == "{" or (kind in ("number", "word") and len(text) == 1)
        if self.previous == "function" or not is_read:  # \sin(x)^2, x^10
            raise _NotReadError
        exponent = self.read_factor()
        self.previous = "power"
        if self.peek()[1] == "^":
            raise _NotReadError
        if abs(exponent).b <= MAX_EXPONENT and (
            exponent.a == exponent.b == (whole := round(float(exponent.mid)))
        ):
            return base**whole
        if not base.a > 0:
            raise _NotReadError
        return _context.exp(check_size(exponent * _context.log(base), MAX_EXPONENT))

    def read_factor(self) -> Any:
        kind, text = self.peek()
        if text in _BRACKETS:
            return self.read_bracket(text, _BRACKETS[text])
        if self.tokens:
            self.tokens.pop()
        match kind:
            case "number":
                number = Fraction(text)
                value = _context.mpf(number.numerator) / number.denominator
            case "word":
                value = self.read_letters(text)
            case "command" if text == r"\pi":
                value = +_context.pi
            case "command" if text in _LETTERS:
                value = self.read_letter(200 + _LETTERS.index(text))
            case "command" if text in _FRACTIONS:
                value = self.read_bracket("{", "}") / self.read_bracket("{", "}")
            case "command" if text in _FUNCTIONS:
                base = self.read_base() if text == r"\log" else 1
                largest = MAX_EXPONENT if text == r"\exp" else MAX_ARGUMENT
                value = _FUNCTIONS[text](check_size(self.read_argument(), largest)) / base
            case "command" if text == r"\sqrt":
                value = self.read_root()
            case "indexed":
                name = re.sub("[{}]", "", text)
                value = self.read_letter(300 + int.from_bytes(name.encode()) % 997)
            case _:
                raise _NotReadError
        return value

    def read_base(self) -> Any:
        """The logarithm of the base of a logarithm, in braces or a digit."""
        if not self.take("_") or not (self.peek()[1] == "{" or len(self.peek()[1]) == 1):
            raise _NotReadError
        return _context.log(self.read_factor())

    def read_argument(self) -> Any:
        """In round brackets, or a number or letter behind which the product ends."""
        kind, text = self.peek()
        if text == "(":
            return self.read_bracket("(", ")")
        value = self.read_factor()
        is_single = kind in ("number", "indexed", "command") or len(text) == 1
        if not is_single or self.peek()[1] not in ("", "+", "-", ")", "}"):
            raise _NotReadError
        return value

    def read_root(self) -> Any:
        degree = self.read_bracket("[", "]") if self.peek()[1] == "[" else None
        root = self.read_bracket("{", "}")
        if not root.a >= 0:
            raise _NotReadError
        return _context.sqrt(root) if degree is None else _context.exp(_context.log(root) / degree)

    def read_letters(self, text: str) -> Any:
        """The value of a letter, or the product of a word's."""
        if len(text) > 1 and not _PRODUCT_LETTERS.issuperset(text):
            raise _NotReadError
        value = _context.mpf(1)
        for letter in text:
            if letter in "iI":
                raise _NotReadError
            value *= _context.e if letter == "e" else self.read_letter(ord(letter))
        return value

    def read_letter(self, number: int) -> Any:
        """A value that is the root of a fraction: of another letter another one."""
        place = Fraction(number, 8) + self.offset
        return _context.sqrt(_context.mpf(place.numerator) / place.denominator)

    def read_bracket(self, opening: str, closing: str) -> Any:
        if not self.take(opening):
            raise _NotReadError
        value = self.read_sum()
        if not self.take(closing):
            raise _NotReadError
        return value


def check_size(argument: Any, largest: int) -> Any:
    """The argument of a function, if it is not too large."""
    if not abs(argument).b <= largest:
        raise _NotReadError
    return argument


def _split(text: str) -> list[tuple[str, str]]:
    """Kind and text of each token."""
    text, tokens, place = text.strip(), list[tuple[str, str]](), 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise _NotReadError
        tokens.append((match.lastgroup or "", match[match.lastgroup or 0]))
        place = match.end()
    return tokens
