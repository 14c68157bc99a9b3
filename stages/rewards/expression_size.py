r"""Bounds of an expression's size, read off its text before anything computes it.

`9^{9^{9}}`, `(99!)!` and `(a+b+c+d)^{99}` are short and take for ever. Whether an expression is
small enough depends on nothing but the expression.
"""

import re
from math import comb, log10

MAX_DIGITS = 10_000
"""Of a number that a power or factorial makes: 2021^{2022} has 6,684."""
MAX_TERMS = 3_000
"""Of the sum that is left when all products and powers are expanded."""
MAX_RADICALS = 8
"""Sums of n radicals in a denominator have 2^n conjugates."""
_TOKEN = re.compile(
    r"(?P<number>\d[\d,]*(?:\.\d+)?|\.\d+)|(?P<open>\\left\b|\\right\b|[({\[])|(?P<close>[)}\]])"
    r"|(?P<command>\\[A-Za-z]+)|(?P<power>\^|\*\*)|(?P<factorial>!)|(?P<sign>[-+])"
    r"|(?P<letter>[A-Za-z])|\S",
    re.ASCII,
)
_CHOICES = ("\\binom", "\\dbinom", "\\tbinom")


class TooLargeError(Exception):
    """An expression that is not computed."""


def is_small(text: str, max_terms: int = MAX_TERMS) -> bool:
    """Whether no number and no sum that an expression makes is too large to compute."""
    if len(re.findall(r"sqrt|\\root", text)) > MAX_RADICALS:
        return False
    try:
        digits, terms = _Reader(text).read_sum()
    except (TooLargeError, RecursionError):
        return False
    return digits <= MAX_DIGITS and terms <= max_terms


class _Reader:
    """Reads upper bounds of a sum's digits and of its terms, a token at a time.

    A number n has log10(1 + n) digits: those of sums, products and quotients are at most the sum.
    """

    def __init__(self, text: str) -> None:
        matches = _TOKEN.finditer(text)
        self.tokens = [(match.lastgroup or "", match[0]) for match in matches][::-1]

    def read_sum(self) -> tuple[float, int | float]:
        """Up to the bracket that closes it, or the end."""
        digits, terms, product = 0.0, 0.0, 1.0
        while self.tokens and self.tokens[-1][0] != "close":
            if self.tokens[-1][0] == "sign":
                self.tokens.pop()
                terms, product = terms + product, 1.0
                continue
            more, factors = self.read_power()
            digits, product = digits + more, product * factors
            if digits > MAX_DIGITS or product > MAX_TERMS:
                raise TooLargeError
        if self.tokens:
            self.tokens.pop()
        return digits, terms + product

    def read_power(self) -> tuple[float, int | float]:
        """A factor with its exponents and factorials."""
        digits, terms = self.read_factor()
        while self.tokens and self.tokens[-1][0] in ("power", "factorial"):
            kind, _ = self.tokens.pop()
            if kind == "factorial":
                number = to_number(digits)
                digits, terms = number * log10(1 + number), 1.0
            else:
                if self.tokens and self.tokens[-1][0] == "sign":
                    self.tokens.pop()
                exponent = to_number(self.read_power()[0])
                digits *= exponent
                if terms > 1 and digits <= MAX_DIGITS:  # a whole number of any size, no float
                    terms = comb(int(exponent + terms) - 1, int(terms) - 1)
            if digits > MAX_DIGITS or terms > MAX_TERMS:
                raise TooLargeError
        return digits, terms

    def read_factor(self) -> tuple[float, float]:
        """A number, a letter, a command, or what stands in brackets."""
        if not self.tokens:
            return 0.0, 1.0
        kind, text = self.tokens.pop()
        if kind == "open":
            return (0.0, 1.0) if text.startswith("\\") else self.read_sum()
        if kind == "number":
            return log10(1 + float(text.replace(",", "").rstrip("."))), 1.0
        if text in _CHOICES:
            (digits, terms), (more, factors) = self.read_factor(), self.read_factor()
            # n over k is at most 2^n
            return max(to_number(digits) * log10(2), more), terms * factors
        if kind in ("letter", "command"):
            # e and pi are numbers below 4; of a variable only the power counts
            return log10(5 if text in ("e", "\\pi") else 2), 1.0
        return 0.0, 1.0


def to_number(digits: float) -> float:
    """The largest number of so many digits that is an exponent, or has a factorial."""
    if digits > log10(1 + MAX_DIGITS * 10):
        raise TooLargeError
    return 10**digits - 1
