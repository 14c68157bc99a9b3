r"""Bounds of an expression, from its text: of its numbers, its sums and its value at a point.

`9^{9^{9}}`, `(99!)!` and `(a+b+c+d)^{99}` are short but take for ever to compute: an expression is
refused if it makes a number of too many digits, or, when all products and powers are expanded, a
sum of too many terms. This depends only on the expression.

The value is computed in interval arithmetic, with a different positive number for each letter. If
the intervals of two expressions are disjoint, the expressions differ, and no algebra is needed.
That takes less than a millisecond, for `(x+y+1)^{30}` or ten nested fractions (which algebra would
expand) as for `x+1`.

Only unambiguous notation has a value: `1/2x`, `x^10`, `2\frac{1}{2}`, `\sin 2x`, `\log x`, units,
lists and relations have none, except two equations for the same letter (`y=3x` and `y=2x`).
Expressions that are not real at the point, such as `\sqrt{-2}`, have none either.
"""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import comb, log10
from typing import Any, NamedTuple

from mpmath import isfinite
from mpmath.ctx_iv import MPIntervalContext

MAX_DIGITS = 10_000
"""Digits of a number that a power or factorial makes: 2021^{2022} has 6,684."""
MAX_TERMS = 3_000
"""Terms of the sum after all products and powers are expanded."""
MAX_RADICALS = 8
"""Radicals in a denominator: a sum of n radicals has 2^n conjugates."""
MAX_DEPTH = 100
"""Depth of nested brackets."""
PRECISION = 200
"""Bits of a bound; a number with more digits has wider bounds."""
MIN_DISTANCE = 1e-6
"""Smallest distance between the bounds of values that surely differ, relative to the larger of the
two, or to 1 if both are smaller than 1."""
MAX_EXPONENT = 100_000
"""Largest exponent of a power, and argument of the exponential function, which makes as many
digits."""
MAX_ARGUMENT = 10**20
"""Largest argument of other functions: `\\sin` needs as many digits of pi as its argument has."""
_TOKEN = re.compile(
    r"(?P<number>\d[\d,]*(?:\.\d+)?|\.\d+)|(?P<command>\\[A-Za-z]+)"
    r"|(?P<indexed>[A-Za-z]_(?:\w|\{\w{1,3}\}))|(?P<word>[A-Za-z]+)|(?P<mark>\*\*|\S)",
    re.ASCII,
)
_EQUATION = re.compile(r"\s*([A-Za-z])\s*=([^=]*)", re.ASCII)
_END = ("end", "")
_CLOSES = {"(": ")", "{": "}", "[": "]"}
_SIGNS = ("+", "-")
_CONSTANTS = ("e", r"\pi")
_FRACTIONS = (r"\frac", r"\cfrac", r"\dfrac", r"\tfrac")
_CHOICES = (r"\binom", r"\dbinom", r"\tbinom")
_PRODUCTS = ("*", r"\cdot", r"\times")
_LETTERS = (r"\theta", r"\alpha", r"\beta", r"\phi", r"\lambda", r"\mu", r"\omega", r"\nu")
_PRODUCT_LETTERS = frozenset("abckmnpqrstuvwxyz")
"""Letters of words that are products, such as `xy`."""
_context: Any = MPIntervalContext()
_context.prec = PRECISION
_ONE = _context.mpf(1)
_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    r"\sin": _context.sin, r"\cos": _context.cos, r"\tan": _context.tan,
    r"\ln": _context.log, r"\exp": _context.exp, r"\log": _context.log,
}  # fmt: skip
_OFFSET = Fraction(1, 3)


class Bounds(NamedTuple):
    """Bounds of an expression, or of a part of it."""

    value: Any
    """Interval of the value at the point; None: it has no value there."""
    digits: float = 0.0
    """log10(1 + n) of the largest intermediate number n; in products and sums these add up."""
    terms: int | float = 1.0
    """Terms of the fully expanded sum."""


class _TooLargeError(Exception):
    """Expression too large to compute."""


@lru_cache(maxsize=1024)
def read_bounds(text: str) -> Bounds | None:
    """Bounds of an expression; None: it is too large, or too deeply nested, to compute."""
    if len(re.findall(r"sqrt|\\root", text)) > MAX_RADICALS:
        return None
    reader = _Reader(text)
    try:
        bounds = reader.read_sum("")
    except (_TooLargeError, RecursionError):
        return None
    if bounds.digits > MAX_DIGITS or bounds.terms > MAX_TERMS or reader.tokens:
        return None
    has_value = reader.has_value and isfinite(bounds.value.delta)
    return bounds if has_value else bounds._replace(value=None)


def differ(answer: str, gold: str) -> bool | None:
    """Whether the values of both surely differ; None: at least one has no value here."""
    equations = [_EQUATION.fullmatch(text) for text in (answer, gold)]
    if equations[0] is not None and equations[1] is not None:
        (name, answer), (gold_name, gold) = (match.groups() for match in equations if match)
        if name != gold_name or name in answer + gold:
            return None
    bounds = [read_bounds(text) for text in (answer, gold)]
    first, second = (each and each.value for each in bounds)
    if first is None or second is None:
        return None
    distance = max(first.a - second.b, second.a - first.b)  # intervals of width zero
    return bool(distance > MIN_DISTANCE * max(1, abs(first).b, abs(second).b))


class _Reader:
    """Recursive-descent parser that computes an expression from left to right.

    A part that it cannot read has no value, but is parsed for the bounds of the rest.
    """

    def __init__(self, text: str) -> None:
        matches = _TOKEN.finditer(text)
        self.tokens = [(match.lastgroup or "", match[0]) for match in matches][::-1]
        self.has_value = True
        self.depth = 0
        self.previous = ""
        """Kind of the last factor: its token's kind, `function` or `power`."""

    def peek(self) -> tuple[str, str]:
        return self.tokens[-1] if self.tokens else _END

    def take(self, *texts: str) -> str | None:
        """The next token, if it is one of these."""
        return self.tokens.pop()[1] if self.peek()[1] in texts else None

    def need(self, condition: object) -> None:
        """Drop the value if the condition does not hold."""
        self.has_value = self.has_value and bool(condition)

    def compute(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Value of a function, if it has one."""
        try:
            return function(*arguments) if self.has_value else _ONE
        except (ArithmeticError, ValueError):  # a division by zero, a negative number's logarithm
            self.has_value = False
            return _ONE

    def read_sum(self, closing: str) -> Bounds:
        """Parse a sum, up to the closing bracket or the end."""
        self.depth += 1
        self.need(self.depth <= MAX_DEPTH)
        value, digits, terms, sign = _context.mpf(0), 0.0, 0.0, self.take(*_SIGNS)
        while True:
            product = self.read_product()
            value = value - product.value if sign == "-" else value + product.value
            digits, terms = digits + product.digits, terms + product.terms
            if (sign := self.take(*_SIGNS)) is None:
                break
        self.depth -= 1
        self.need((self.take(*_CLOSES.values()) or "") == closing)
        return Bounds(value, digits, terms)

    def read_product(self) -> Bounds:
        value, digits, terms = self.read_power()
        is_quotient = False
        while (next_token := self.peek()) != _END and next_token[1] not in _SIGNS:
            kind, text = next_token
            if text in _CLOSES.values():
                break
            is_division = self.take("/") is not None
            is_quotient = is_quotient or is_division
            if not is_division and not self.take(*_PRODUCTS):
                self.need(kind != "mark" or text == "(")
                self.need(not is_quotient)  # 1/2x
                self.need(kind != "number")  # x2
                self.need(self.previous != "number" or text not in _FRACTIONS)  # 2\frac{1}{2}
                self.need(self.previous != "function")  # \sin(x)(2)
            factor = self.read_power()
            value = self.divide(value, factor.value) if is_division else value * factor.value
            digits, terms = digits + factor.digits, terms * factor.terms
            check_size(digits, terms)
        return Bounds(value, digits, terms)

    def read_power(self) -> Bounds:
        """Parse a factor with factorials and exponents (in braces, or one digit or letter)."""
        kind, text = self.peek()
        value, digits, terms = self.read_factor()
        self.previous = "function" if text in _FUNCTIONS else kind
        while mark := self.take("^", "**", "!"):
            self.need(mark == "^" and self.previous not in ("function", "power"))  # \sin(x)^2
            if mark == "!":
                number = to_number(digits)
                digits, terms = number * log10(1 + number), 1.0
            else:
                kind, text = self.peek()
                self.need(text == "{" or (kind in ("number", "word") and len(text) == 1))  # x^10
                self.take(*_SIGNS)
                exponent = self.read_power()
                self.need(self.previous != "power")  # 2^3^2
                value = self.raise_to(value, exponent.value)
                number = to_number(exponent.digits)
                digits *= number
                if terms > 1 and digits <= MAX_DIGITS:  # an exact integer instead of a float
                    terms = comb(int(number + terms) - 1, int(terms) - 1)
            check_size(digits, terms)
            self.previous = "power"
        return Bounds(value, digits, terms)

    def raise_to(self, base: Any, exponent: Any) -> Any:
        if not self.has_value:
            return _ONE
        whole = round(float(exponent.mid)) if abs(exponent).b <= MAX_EXPONENT else None
        if whole is not None and exponent.a == exponent.b == whole:
            return self.compute(lambda: base**whole)
        self.need(base.a > 0)
        argument = exponent * self.compute(_context.log, base)
        self.need(abs(argument).b <= MAX_EXPONENT)
        return self.compute(_context.exp, argument)

    def divide(self, value: Any, divisor: Any) -> Any:
        return self.compute(lambda: value / divisor)

    def read_factor(self) -> Bounds:
        kind, text = self.peek()
        if kind == "end" or text in (*_CLOSES.values(), *_SIGNS):
            self.need(condition=False)
            return Bounds(_ONE)
        self.tokens.pop()
        if text in _CLOSES:
            self.need(text != "[")
            return self.read_sum(_CLOSES[text])
        if text in (*_FRACTIONS, *_CHOICES):
            return self.read_pair(is_fraction=text in _FRACTIONS)
        if text in _FUNCTIONS:
            return self.read_function(text)
        if text == r"\sqrt":
            return self.read_root()
        # e and pi are below 4; another letter adds no digits
        number = text.replace(",", "") if kind == "number" else "4" if text in _CONSTANTS else "1"
        digits = log10(1 + float(number)) if kind != "mark" else 0.0
        check_size(digits)
        return Bounds(self.read_symbol(kind, text), digits)

    def read_pair(self, *, is_fraction: bool) -> Bounds:
        """Parse a fraction, or a binomial n over k, which is at most 2^n."""
        top, bottom = self.read_braces(), self.read_braces()
        self.need(is_fraction)
        value = self.divide(top.value, bottom.value)
        digits = top.digits if is_fraction else to_number(top.digits) * log10(2)
        return Bounds(value, digits + bottom.digits, top.terms * bottom.terms)

    def read_symbol(self, kind: str, text: str) -> Any:
        """Value of a number, letter or constant; of several letters, the first one's."""
        if kind == "number" and "," not in text:
            number = Fraction(text)
            return _context.mpf(number.numerator) / number.denominator
        if text == r"\pi":
            return +_context.pi
        if text in _LETTERS:
            return place_letter(200 + _LETTERS.index(text))
        if kind == "indexed":
            name = re.sub("[{}]", "", text)
            return place_letter(300 + int.from_bytes(name.encode()) % 997)
        self.need(kind == "word" and not {"i", "I"} & {*text})
        self.need(len(text) == 1 or _PRODUCT_LETTERS.issuperset(text))
        if kind == "word" and len(text) > 1:
            self.tokens.append((kind, text[1:]))
        return _context.e if text[0] == "e" else place_letter(ord(text[0]))

    def read_function(self, name: str) -> Bounds:
        r"""Parse a function of an argument in round brackets, or of a number or letter.

        The base of a logarithm is in braces or one digit; only `\ln` may have none.
        """
        base, exponent = 1, None
        if self.take("^"):  # \sin^2 x; \sin^{-1} x is another function
            kind, text = self.peek()
            self.need(text == "{" or (kind in ("number", "word") and len(text) == 1))
            exponent = self.read_factor()
            self.need(exponent.value.a > 0)
        if name == r"\log":
            self.need(self.take("_") and (self.peek()[1] == "{" or len(self.peek()[1]) == 1))
            base = self.compute(_context.log, self.read_factor().value)
        kind, text = self.peek()
        argument = self.read_factor()
        if text != "(":
            is_single = kind in ("number", "indexed", "command") or len(text) == 1
            self.need(is_single)  # \sin{x}, \sin x
            self.need(self.peek()[1] in ("", "+", "-", ")", "}"))
        largest = MAX_EXPONENT if name == r"\exp" else MAX_ARGUMENT
        self.need(abs(argument.value).b <= largest)
        value = self.divide(self.compute(_FUNCTIONS[name], argument.value), base)
        digits = argument.digits + log10(2)
        if exponent is not None:
            value, digits = (
                self.raise_to(value, exponent.value),
                digits * to_number(exponent.digits),
            )
            check_size(digits)
        return Bounds(value, digits, argument.terms)

    def read_root(self) -> Bounds:
        degree = self.read_sum("]") if self.take("[") else None
        root = self.read_braces()
        self.need(root.value.a >= 0)
        digits = root.digits + (degree.digits if degree else 0.0)
        if degree is None:
            return Bounds(self.compute(_context.sqrt, root.value), digits, root.terms)
        argument = self.divide(self.compute(_context.log, root.value), degree.value)
        return Bounds(self.compute(_context.exp, argument), digits, root.terms)

    def read_braces(self) -> Bounds:
        self.need(self.peek()[1] == "{")
        return self.read_factor()


def place_letter(number: int) -> Any:
    """Value of letter `number`: the root of a fraction, different for each letter."""
    place = Fraction(number, 8) + _OFFSET
    return _context.sqrt(_context.mpf(place.numerator) / place.denominator)


def check_size(digits: float, terms: int | float = 1) -> None:
    """Raise _TooLargeError for an expression too large to compute."""
    if digits > MAX_DIGITS or terms > MAX_TERMS:
        raise _TooLargeError


def to_number(digits: float) -> float:
    """Largest number with these digits, as an exponent or the argument of a factorial."""
    if digits > log10(1 + MAX_DIGITS * 10):
        raise _TooLargeError
    return 10**digits - 1
