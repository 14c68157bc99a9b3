r"""Units and opposite words after a number, in which two answers of equal value may differ.

A unit in only one of the answers does not count, nor does a word in neither table below: `5`, `5 m`
and `5 apples` are equal. `12 hours` and `12 hr` are equal; `12 hours` and `12 minutes` are not, nor
are `5 am` and `5 pm`. Nothing is converted: `60 minutes` is not `1 hour`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

_SPELLINGS = {
    "millimeter": "mm", "centimeter": "cm", "decimeter": "dm", "meter": "m", "kilometer": "km",
    "inch": "in", "foot": "ft feet", "yard": "yd", "mile": "mi",
    "milligram": "mg", "gram": "g", "kilogram": "kg kilo", "ton": "tonne", "ounce": "oz",
    "pound": "lb £ GBP",
    "milliliter": "ml mL", "centiliter": "cl", "liter": "l L", "gallon": "gal", "cup": "",
    "second": "s sec", "minute": "min", "hour": "h hr", "day": "", "week": "", "month": "",
    "year": "yrs", "degree": "°", "radian": "rad", "percent": "%",
    "dollar": "$ USD", "cent": "¢", "euro": "€ EUR", "yen": "¥", "rupee": "₹ Rs INR",
    "newton": "N", "kilonewton": "kN", "joule": "J", "kilojoule": "kJ", "watt": "W",
    "kilowatt": "kW", "volt": "V", "pascal": "Pa", "hertz": "Hz",
    "mile/hour": "mph", "kilometer/hour": "kph kmh",
}  # fmt: skip
"""Name of a unit -> other spellings. A rule covers plurals, `metre` and `litre`."""
_OPPOSITES = (
    ("am", "pm"), ("celsius C", "fahrenheit F", "kelvin K"), ("left", "right"),
    ("clockwise", "counterclockwise anticlockwise"), ("before", "after"), ("older", "younger"),
    ("north", "south", "east", "west", "northeast", "northwest", "southeast", "southwest"),
    ("increase rise gain profit more up", "decrease fall loss less fewer down"),
)  # fmt: skip
"""Groups of words that exclude each other, with synonyms; plurals and participles count too."""


def _index(spellings: Mapping[str, str]) -> dict[str, str]:
    """Spelling -> name, also in lower case if it has more than one letter."""
    pairs = [
        (spelling, name)
        for name, synonyms in spellings.items()
        for spelling in (name, *synonyms.split())
    ]
    lowered = {spelling.lower(): name for spelling, name in pairs if len(spelling) > 1}
    return lowered | dict(pairs)


_NAMES = _index(_SPELLINGS)
ABBREVIATIONS = frozenset(
    spelling + plural
    for others in _SPELLINGS.values()
    for spelling in others.split()
    for plural in ("", "s")
    if spelling.isalpha() and (len(spelling) > 1 or not plural)
)
"""Abbreviations, case-sensitive: `5 kN`, while `5 KN` may be a product."""
_SIDES = [
    _index({words.split()[0]: " ".join(words.split()[1:]) for words in group})
    for group in _OPPOSITES
]

_UNITLESS = re.compile(r"[\d\s.,/+\\{}()-]*", re.ASCII)
_DOLLAR = re.compile(r"\\\$|^[^$]*\$[^$]*$")
_CURRENCY = re.compile(r"[€£¥¢₹]|\b(?:USD|EUR|GBP|INR|Rs)\b")
EXPONENTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_REWRITES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"\^ ?\{? ?\\circ ?\}?|\\degrees?(?![A-Za-z])"), "° "),
    (re.compile(r"\\(?:text|text[bi][ft]|math[rb][mf]|mbox|operatorname)(?![A-Za-z])|[{}$]"), ""),
    (re.compile(r"\\[,;:! ]|~|\\(?=%)"), " "),
    (re.compile(r" *\^ *([2-9])(?!\d)"), lambda exponent: EXPONENTS[int(exponent[1])]),
    (re.compile(r"\b(?:square|sq\.?) ([A-Za-z]+)"), r"\1²"),
    (re.compile(r"\b(?:cubic|cu\.?) ([A-Za-z]+)"), r"\1³"),
    (re.compile(r"\b([ap])\.m\b", re.IGNORECASE), r"\1m"),
    (re.compile(r"\b(counter|anti)-(?=clockwise)"), r"\1"),
    (re.compile(r"\bin +(?=[A-Za-z])"), " "),  # `12 in total`
)  # fmt: skip
_TAIL = re.compile(r"[^0-9]*$")
_TOKEN = re.compile(r"[^\W\d_]+|[/°%]")
_PER = frozenset(("/", "per", "a", "an", "each", "every"))


class Unit(NamedTuple):
    """Unit of a number, and all words after it."""

    name: str | None
    """Name of the first unit, with its exponent; None: no word is a unit of the table."""
    per: str | None
    """Name of the unit in the denominator, `second` of `m/s`."""
    is_quotient: bool
    """Whether `per` is written as in `m/s`, not as in `meters per second`."""
    words: tuple[str, ...]


NO_UNIT = Unit(None, None, is_quotient=False, words=())


def units_differ(unit: Unit, gold_unit: Unit) -> bool:
    """Whether an answer and a gold answer state different units, or opposite words.

    `60 km` is not `60 km/h`, but `8 hours a day` may be answered by `8 hours`.
    """
    if _are_different(unit.name, gold_unit.name) or _are_different(unit.per, gold_unit.per):
        return True
    is_rate = (unit.per is None) != (gold_unit.per is None) and (
        unit.is_quotient or gold_unit.is_quotient
    )
    is_other_quantity = is_rate and None not in (unit.name, gold_unit.name)
    return is_other_quantity or _are_opposite(unit.words, gold_unit.words)


def _are_different(name: str | None, other_name: str | None) -> bool:
    return None not in (name, other_name) and name != other_name


def read_unit(text: str) -> Unit:
    """Unit and words at the end of an answer, or the currency at its beginning."""
    if _UNITLESS.fullmatch(text):
        return NO_UNIT
    is_dollar, currency = _DOLLAR.search(text), _CURRENCY.search(text)
    for pattern, spelling in _REWRITES:
        text = pattern.sub(spelling, text)
    tail = _TAIL.search(text)
    words = _TOKEN.findall(tail[0] if tail else "")
    place = next((place for place, word in enumerate(words) if word in _PER), len(words))
    name, per = _first_unit(words[:place]), _first_unit(words[place:])
    is_quotient = per is not None and words[place] == "/"
    if name is not None and "/" in name:
        (name, per), is_quotient = name.split("/"), True
    if is_dollar or currency:
        name = "dollar" if is_dollar or currency is None else unit_name(currency[0])
        is_quotient = False
    return Unit(name, per, is_quotient, tuple(words))


def _first_unit(words: Sequence[str]) -> str | None:
    for word in words:
        name = unit_name(word.rstrip(EXPONENTS))
        if name is not None:
            return name + word[len(word.rstrip(EXPONENTS)) :]
    return None


def unit_name(word: str) -> str | None:
    """Name of a unit in any spelling; None: the word is not a unit."""
    return _find_name(word, _NAMES, ("s", "es"))


def _are_opposite(words: Sequence[str], other_words: Sequence[str]) -> bool:
    """Whether both have words that exclude each other."""
    for names in _SIDES:
        sides, other_sides = (
            {name for word in side if (name := _find_name(word, names, ("s", "es", "d", "ed")))}
            for side in (words, other_words)
        )
        if sides and other_sides and sides.isdisjoint(other_sides):
            return True
    return False


def _find_name(word: str, names: Mapping[str, str], endings: Sequence[str]) -> str | None:
    if word in names:
        return names[word]
    word = word.lower().replace("metre", "meter").replace("litre", "liter")
    if len(word) > 1 and word in names:
        return names[word]
    stems = (word.removesuffix(ending) for ending in endings if word.endswith(ending))
    return next((names[stem] for stem in stems if len(stem) > 1 and stem in names), None)
