"""Parse an answer to an exact number: the cheap rule of the answer checker.

Only ASCII digits count, so no look-alike (other scripts, superscripts) can pass for the gold
answer. Nothing is rounded, and no text is evaluated.
"""

import math
import re
from fractions import Fraction
from functools import lru_cache
from itertools import takewhile

from stages.rewards.units import ABBREVIATIONS, unit_name

MAX_CHARACTERS = 200
"""Longest text that can be a number."""
MAX_DIGITS = 60
"""Most digits that can be a number, far below Python's limit on digit strings."""

_MULTIPLIERS = {
    "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9,
    "trillion": 10**12, "quadrillion": 10**15, "quintillion": 10**18, "lakh": 10**5,
    "crore": 10**7, "dozen": 12,
}  # fmt: skip
NUMBER_WORDS = frozenset((
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "zero", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
))  # fmt: skip
# `5 or 7`, `5 plus 2`, `7 squared` and `2 pi` are not the number 5, 7 or 2 with a unit.
_NOT_UNITS = NUMBER_WORDS | frozenset((
    "or", "and", "to", "not", "no", "plus", "minus", "times", "over", "mod", "modulo", "factorial",
    "pi", "sqrt", "squared", "cubed", "choose", "divided", "multiplied", "negative", "wrong",
    "incorrect", "false", "at", "if", "but", "except", "without", "than", "point", "half", "halves",
    "third", "thirds", "fourth", "fourths", "fifth", "fifths", "sixth", "sixths", "eighth",
    "eighths", "seventh", "sevenths", "ninth", "ninths", "twelfth", "twelfths",
    "tenth", "tenths", "tens", "mil", "mln", "isn", "never",
    "binary", "octal", "hex", "hexadecimal",
    *(size + part for size in _MULTIPLIERS for part in ("th", "ths")),
))  # fmt: skip
_UNIT_LETTERS = frozenset("mgshlLCF")
_SPACED_UNIT_LETTERS = _UNIT_LETTERS | frozenset("NJWV")
"""Units of one letter after a space: `5 N`; `5N` may be a product."""
_SHORT_UNITS = ABBREVIATIONS | frozenset(("am", "pm", "AM", "PM", "st", "nd", "rd", "th"))
"""Units of two letters, or three without a space before; others are products of variables."""
PRODUCT_IN_ORDER = (
    r"(?=[a-z]{3})(?![a-z]+s\b|(?:bst|btw|cry|cst|dry|mst|npv|pry|pst)\b)"
    r"(?:abc?d?|b?c?d?)k?m?n?p?q?r?s?t?v?w?x?y?z?(?![A-Za-z])"
)
"""Variables in alphabetical order, as `xyz` and `abc`; not a word, nor a plural such as `kms`."""
_HALF_DAY = re.compile(r"\b([ap])\.m\b", re.IGNORECASE)
_PART = re.compile(r"[\s%]*of (?:an?|the) (?=[a-z]{3})")
"""Part of a unit: `3/4 of a cup` is 3/4, but `3/4 of a dozen` is not."""
_WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_SPACED = r"\d{1,3}(?: \d{3})+"
_NEARLY = re.compile(r"^(?:\\approx(?![A-Za-z])|≈|(?:approximately|about|roughly)\b) ?")
"""Mark of an approximate number, which counts as the number: nothing is rounded to it."""
_NUMBER = re.compile(
    rf"(?:(?:USD|EUR|GBP|INR|Rs\.?) ?)?"
    rf"(?P<sign>[-+\u2212\u2013]?) ?[$€£¥₹]? ?(?P<sign2>[-\u2212\u2013]?)(?:"
    rf"(?:(?P<mixed>{_WHOLE})[ +])?(?P<numerator>{_WHOLE}) ?/ ?(?P<denominator>{_WHOLE})"
    rf"|(?P<decimal>(?:{_WHOLE}|{_SPACED})(?:\.\d+)?|\.\d+)"
    r"(?:[eE](?P<exponent>[-+]?\d{1,2})"
    r"| ?[*x×] ?10\^(?:\{(?P<braced>-?\d{1,2})\}|(?P<power>-?\d{1,2})))?"
    r")(?P<tail>[A-Za-z²³°%$€£¥₹¢\s.,;:!'/)-]*)",
    re.ASCII,
)
_PLAIN = re.compile(r"-?\d{1,18}", re.ASCII)
_WORD = re.compile(r"[A-Za-z]+")
_LATEX = (
    (re.compile(r"(?<=\d),\\!\s*(?=\d)"), ","),
    (re.compile(r"\b(?:US|CA|AU|NZ|HK)(?=\\?\$)"), ""),
    (re.compile(r"(?<=\d)\\[!,;: ](?=\d{3}(?!\d))", re.ASCII), ""),
    # A space, lest two numbers become one, or a power a product: `4\\,2`, `4__2`.
    (re.compile(r"(?<=\d)\\[!,;: ](?=\d)|(?<=\w)(?:[*_`~]{2}|[$`])(?=\w)", re.ASCII), " "),
    (
        re.compile(
            r"(?<!\\)\\(?:left|right|displaystyle|[!,;: ])|[*_`~]{2}|[$`]|(?<!\\)\\[()\[\]$]"
        ),
        "",
    ),
    (re.compile(r" ?\{, ?\} ?"), ","),
    (re.compile(r"\\[cdt]frac"), r"\\frac"),
    (re.compile(r"^\s*\{([^{}]*)\}\s*$"), r"\1"),
    (
        re.compile(
            r"\\(?:text(?:[bi][ft]|rm|normal)?|math[rb][mf]|mbox|operatorname) *\{([^{}]*)\}"
        ),
        r" \1 ",
    ),
    (re.compile(r"\\(?:boldsymbol|underline) *\{([^{}]*)\}"), r"\1"),
    (re.compile(r"~"), " "),
    (re.compile(r"\^\{?\\circ\}?|\\degrees?(?![A-Za-z])"), "°"),
    (
        re.compile(
            r"(\d\s*)([kcdm]?m|ft|in|yd|mi|[a-z]{4,}"
            r"|(?<=\s)[A-Za-z]{1,3} ?/ ?(?:s|sec|min|h|hr|[kcdm]?m|ft|in|yd|mi))"
            r"\s*\^\{?[23]\}?(?=[\s.]*$)",
            re.ASCII,
        ),
        r"\1\2",
    ),
    (re.compile(r"\\%"), "%"),
    (re.compile(r"\\(?:times|cdot)(?![A-Za-z])"), "*"),
)  # fmt: skip
_POWER = re.compile(r"(?<=[\w)\]}])\*\*(-?\d+|[A-Za-z]|\([^()]*\))", re.ASCII)
_QUOTES = (('"', '"'), ("'", "'"), ("\u201c", "\u201d"), ("\u2018", "\u2019"))
_UNICODE = str.maketrans({
    "½": " 1/2", "⅓": " 1/3", "⅔": " 2/3", "¼": " 1/4", "¾": " 3/4", "⅕": " 1/5", "⅛": " 1/8",
    "⅜": " 3/8", "⅝": " 5/8", "⅞": " 7/8", "\u00a0": " ", "\u2009": " ", "\u202f": " ",
    "±": "\\pm ",
})  # fmt: skip
_FRACTION = re.compile(
    r"(?P<whole>\d*)\s*\\frac\s*(?:\{(?P<top>[^{}]+)\}|(?P<upper>\d))\s*"
    r"(?:\{(?P<bottom>[^{}]+)\}|(?P<lower>\d))",
    re.ASCII,
)


_AMBIGUOUS_COMMAS = re.compile(
    r"(?:(?:USD|EUR|GBP|INR|Rs\.?) ?)?[-+\u2212\\$€£¥₹ ]*(?:"
    r"\d{1,2}(?:,\d\d)+,\d{3}(?!\d|,)[^,]*"
    r"|\d{1,3}(?:,\d{3})+,\d{1,2}(?!\d|,)[^,]*"
    r"|\d+,\d+(?:[eE][-+]?\d+| ?[%°€£]| ?(?!(?:and|or)\b)[^\W\d_]{2})[^,]*)",
    re.ASCII,
)


def has_ambiguous_commas(text: str) -> bool:
    """Whether a text may be one or several numbers: `1,23,456`, `1,000,00`, `1,5 Millionen`."""
    match = _AMBIGUOUS_COMMAS.fullmatch(text) if "," in text else None
    return match is not None and parse_number(text) is None


def strip_markup(text: str) -> str:
    r"""`text` without LaTeX and Markdown markup: `$\frac{3}{4}$` becomes `3/4`."""
    text = text.strip()
    if len(text) > 2 and (text[0], text[-1]) in _QUOTES:
        text = text[1:-1].strip()
    if not text.isascii():
        text = text.translate(_UNICODE).strip()
    if not any(mark in text for mark in "\\$*_`~{^"):
        return text
    text = mark_powers(text).strip("*_ ")  # before a multiplication becomes `*`
    for pattern, replacement in _LATEX:
        text = pattern.sub(replacement, text)
    return _FRACTION.sub(_slash, text).strip()


def mark_powers(text: str) -> str:
    """`text` with Python's `x**2` as `x^{2}`; text between two `**` is bold."""
    return text if text.lstrip(" $").startswith("**") else _POWER.sub(r"^{\1}", text)


@lru_cache(maxsize=65536)
def parse_number(text: str) -> Fraction | None:
    r"""The exact value of an answer; None if it is not one number, with or without a unit.

    A number may have a sign, thousands separators in groups of three, decimals, `\approx` or
    `about`, a currency sign, words after it (`18 dollars`, `3 hundred thousand`), or the form
    `3/4`, `2 1/2`, `1e3`, `\frac{3}{4}` or `7 x 10^3`. A percent sign is a unit: `50%` is 50, never
    0.5. With a second number (`5 or 7`, `3:30`) or another word before it there is no value.
    """
    if len(text) > MAX_CHARACTERS:
        return None
    if _PLAIN.fullmatch(text):
        return Fraction(int(text))
    if any(bar in text for bar in ("\\overline", "\\bar", "\\dot{")) or (
        "!" in text and _APPLIED_FACTORIAL.search(text)
    ):
        factorial = _FACTORIAL.fullmatch(text.strip(" $."))
        return _repeating(text) or (factorial and Fraction(math.factorial(int(factorial[1]))))
    stripped = strip_markup(text)
    if any(word in stripped for word in ("approx", "≈", "about", "roughly")):
        stripped = _NEARLY.sub("", stripped)
    match = _NUMBER.fullmatch(stripped)
    if match is None or sum(map(str.isdigit, match[0])) > MAX_DIGITS:
        return None
    factor, value = unit_scale(match["tail"]), _magnitude(match)
    if factor is None or value is None or (match["sign"] and match["sign2"]):
        return None
    negative = (match["sign"] or match["sign2"]) in ("-", "\u2212", "\u2013")
    return -value * factor if negative else value * factor


_FACTORIAL = re.compile(r"(\d{1,2})!", re.ASCII)
_APPLIED_FACTORIAL = re.compile(r"[\d)}]\$? ?!")
_REPEATING = re.compile(r"\$?(-?)(\d*)\.(\d*)\\(?:overline|bar|dot)\{(\d{1,20})\}\$?", re.ASCII)


def _repeating(text: str) -> Fraction | None:
    r"""Value of a repeating decimal: 1/6 for `0.1\overline{6}`."""
    match = _REPEATING.fullmatch(text.strip().replace(" ", ""))
    if match is None:
        return None
    sign, whole, fixed, repeated = match.groups()
    scale = 10 ** len(fixed)
    period = Fraction(int(repeated), scale * (10 ** len(repeated) - 1))
    value = int(whole or "0") + Fraction(int(fixed or "0"), scale) + period
    return -value if sign else value


def _magnitude(match: re.Match[str]) -> Fraction | None:
    if match["decimal"] is not None:
        exponent = int(match["exponent"] or match["braced"] or match["power"] or 0)
        return Fraction(re.sub("[ ,]", "", match["decimal"])) * Fraction(10) ** exponent
    whole, top, bottom = (
        int((match[name] or "0").replace(",", "")) for name in ("mixed", "numerator", "denominator")
    )
    if bottom == 0 or (match["mixed"] is not None and top >= bottom):
        return None
    return whole + Fraction(top, bottom)


def unit_scale(tail: str) -> int | None:
    """Factor by which the words after a number multiply it, 1 for a unit; None: not a unit."""
    part = _PART.match(tail) if "of " in tail else None
    tail = tail if part is None else tail[part.end() :]
    words = _WORD.findall(_HALF_DAY.sub(r"\1m", tail) if "." in tail else tail)
    if ")" in tail or (not words and re.search(r"[-/²³']", tail)):
        return None
    lowered = [word.lower() for word in words]
    if not words or any(word in _NOT_UNITS for word in lowered):
        return None if words else 1
    is_close = tail[0].isalpha() and part is None
    if len(words[0]) == 1:
        is_unit = words[0] in (_UNIT_LETTERS if is_close else _SPACED_UNIT_LETTERS)
    else:
        is_unit = (
            len(words[0]) >= (4 if is_close else 3)
            or words[0] in _SHORT_UNITS
            or (
                words[0] in ("sq", "cu")
                and len(words) > 1
                and (words[1] in ("unit", "units") or unit_name(words[1]) is not None)
            )
        )
    if not is_unit or re.fullmatch(PRODUCT_IN_ORDER, words[0]):
        return None
    lowered = [word.removesuffix("s") for word in lowered]
    if any(word.endswith("illion") and word not in _MULTIPLIERS for word in lowered):
        return None  # `2 zillion`
    factors = [_MULTIPLIERS.get(word) for word in lowered]
    leading = [] if part is not None else list(takewhile(bool, factors))
    # `7 groups of a hundred` is ambiguous.
    return math.prod(filter(None, leading)) if not any(factors[len(leading) :]) else None


def _slash(match: re.Match[str]) -> str:
    r"""Fraction with a slash: `2 1/2` for `2\frac{1}{2}`."""
    top, bottom = match["top"] or match["upper"], match["bottom"] or match["lower"]
    if not all(re.fullmatch(_WHOLE, part.strip(), re.ASCII) for part in (top, bottom)):
        return match[0]
    return f"{match['whole']} {top}/{bottom}".lstrip()
