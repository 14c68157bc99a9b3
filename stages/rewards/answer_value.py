r"""Parsing of an answer into a value: a number, choice, words, list, interval, expression, ...

Each answer is parsed once (`read_value`), and two values are compared once (`answer_checker`).
`write_value` gives a canonical text, for grouping the answers of a vote, without equality that
needs algebra. This module parses only the structure around expressions: lists, tuples, intervals,
inequalities, names; math-verify parses expressions.
"""

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from math import factorial
from operator import itemgetter
from typing import NamedTuple, TypeVar

from stages.rewards.final_answer import extract_answer
from stages.rewards.number_parsing import (
    MAX_CHARACTERS,
    NUMBER_WORDS,
    PRODUCT_IN_ORDER,
    mark_powers,
    parse_number,
    strip_markup,
    unit_scale,
)
from stages.rewards.units import NO_UNIT, Unit, read_unit, unit_name


class Number(NamedTuple):
    """An exact number."""

    number: Fraction
    unit: Unit


class Choice(NamedTuple):
    """A letter from A to J, with the value after it (`(B) 24`), or several letters (`ABD`)."""

    letters: str
    value: "Value | None" = None


class Words(NamedTuple):
    """A few words, in lower case, or a letter."""

    text: str


class Elements(NamedTuple):
    """Several answers as one: a list or set, or, with its brackets, a tuple or interval."""

    brackets: str
    """Empty for a list or set, which has no order."""
    elements: "tuple[Value, ...]"


class Named(NamedTuple):
    """`x = 5`, and with several names `x = 1, y = 2` and `(x, y) = (1, 2)`."""

    names: tuple[str, ...]
    value: "Value"

    def by_name(self) -> "tuple[tuple[str, ...], tuple[Value, ...]]":
        """Several names and their values, in alphabetical order."""
        assert isinstance(self.value, Elements)
        pairs = zip(self.names, self.value.elements, strict=True)
        names, values = zip(*sorted(pairs, key=itemgetter(0)), strict=True)
        return names, values


class Family(NamedTuple):
    r"""A value for every number of a domain: `2k\pi` for every `k \in \mathbb{Z}`."""

    value: "Value"
    domain: str


class Either(NamedTuple):
    """Alternative values, each of which is right: `3 or 4`."""

    values: "tuple[Value, ...]"


class Expression(NamedTuple):
    """Mathematical expression that is not a number, without its unit."""

    text: str
    unit: Unit


class Notation(NamedTuple):
    r"""Text that equals only the same text, such as `\overline{AB}`, `10:30 AM` and `2:3`."""

    text: str


Value = Number | Choice | Words | Elements | Named | Family | Either | Expression | Notation

_SYNONYMS = (
    (re.compile(r"(?:\\leq?(?:slant)?(?![A-Za-z])|≤|<=) *"), r"\\le "),
    (re.compile(r"(?:\\geq?(?:slant)?(?![A-Za-z])|≥|>=) *"), r"\\ge "),
    (re.compile(r"(?:\\neq?(?![A-Za-z])|≠|!=) *"), r"\\ne "),
    (re.compile(r"\\lt(?![A-Za-z])"), "<"), (re.compile(r"\\gt(?![A-Za-z])"), ">"),
    (re.compile(r"\\mid(?![A-Za-z])"), "|"),
    (re.compile(r"\\[lr]angle(?![A-Za-z])"), lambda match: "()"["r" in match[0][:2]]),
    (re.compile(r"\\varnothing|∅|\\\{ *\\\}|(?i:(?:the )?empty set|no solutions?)"), r"\\emptyset"),
    (re.compile(r"(?i:(?:all )?real numbers)|\(-\\infty, *\\infty\)"), r"\\reals"),
    (re.compile(r"\\mathbb(?:\{R\}| ?R(?![A-Za-z]))"), r"\\reals"),
    (re.compile(r"(?i:(?:the limit )?does not exist|dne)"), "dne"),
    (re.compile(r"(?<= solution)s"), ""),
)  # fmt: skip
"""Canonical spellings of well-known signs and sets."""
_WELL_KNOWN = frozenset(("\\emptyset", "\\reals", "dne"))
OR = re.compile(r" or | \\text\{ ?or ?\} |\\text\{ or \}")
PAIR = re.compile(r"[$ ]*\d+,\d+[$. ]*", re.ASCII)


@lru_cache(maxsize=65536)
def read_value(answer: str) -> Value | None:
    """Value of an answer; None: it is too long, or its brackets do not match."""
    if len(answer) > MAX_CHARACTERS:
        return None
    number = parse_number(answer)
    if number is not None:
        return Number(number, read_unit(answer))
    value = _read_family(answer) or _read_alternatives(answer) or _read_choice(answer)
    if value is not None:
        return value
    for pattern, spelling in _SYNONYMS:
        answer = pattern.sub(spelling, answer)
    text = strip_markup(answer).strip().removesuffix(".").rstrip()  # and no `1, 2, ...`
    if text in _WELL_KNOWN or not has_matched_brackets(answer):
        return Words(text) if text in _WELL_KNOWN else None
    return (
        _read_named(answer)
        or _read_inequality(text)
        or _read_elements(text)
        or _read_expression(*split_unit(answer))
        or _read_words(answer)
        or Notation(spell(answer))
    )


def write_value(value: Value | None) -> str | None:
    r"""Canonical text of a value, for grouping answers in a vote.

    `1,000.0`, `$1000` and `2000/2` are all `1000`; `0.75` is `3/4`; `2, 1` is `{1,2}`. An
    expression that is not a number becomes its text without spaces. None: the checker cannot parse
    it, or it is only words.
    """
    match value:
        case Number(number):
            text = str(number)
        case Expression(algebra):
            text = compact(algebra)
        case Family(inner, domain):
            text = write_value(inner)
            text = text and f"{text}, {domain}"
        case Named(names, Elements("", _)) if len(names) > 1:
            names, elements = value.by_name()
            text = write_value(Elements("()", elements))
            text = text and f"({','.join(names)})={text}"
        case Named(_, inner):
            text = write_value(inner)
        case Elements(brackets, elements):
            texts = complete(
                each[0]
                if isinstance(each, Words | Choice) and len(each[0]) == 1
                else write_value(each)
                for each in elements  # a letter is a variable, or a choice of several
            )
            left, right = brackets or "{}"
            content = None if texts is None else ",".join(texts if brackets else sorted(texts))
            text = None if content is None else left + content + right
        case _:
            text = None
    return text


def compact(text: str) -> str:
    """An expression without spaces and needless braces."""
    text = re.sub(r"([_^])\{(\w)\}", r"\1\2", strip_markup(text).replace(" ", ""))
    return re.sub(r"\\sqrt(\w)", r"\\sqrt{\1}", text)


# --- alternatives, names and lists


T = TypeVar("T")


def complete(values: Iterable[T | None]) -> tuple[T, ...] | None:
    """All values; None: any of them is None."""
    everything = tuple(values)
    present = tuple(value for value in everything if value is not None)
    return present if len(present) == len(everything) else None


def _read_alternatives(answer: str) -> Value | None:
    values = complete(map(read_value, parts)) if len(parts := OR.split(answer)) > 1 else None
    return None if values is None else _join_alternatives(values)


def _join_alternatives(values: Sequence[Value]) -> Value | None:
    """`a or b`: a union of inequalities, all solutions of one name, or either of two."""
    names = [value.names if isinstance(value, Named) else None for value in values]
    inner = [value.value if isinstance(value, Named) else value for value in values]
    if {*names} <= {names[0], None} and names[0] is not None and len(names[0]) == 1:
        if all(isinstance(value, Elements) and value.brackets for value in inner):
            intervals = complete(map(to_text, values))
            union = Expression(r" \cup ".join(intervals or ()), NO_UNIT)
            return None if intervals is None else Named(names[0], union)
        # In different units, as `5 km or 5000 m` and `p = 1/4 or 25%`, they may be the same value.
        units = {value.unit.name for value in inner if isinstance(value, Number | Expression)}
        texts = [write_value(value) or value for value in inner]
        units = units if units & {"percent", "degree"} else units - {None}  # of a number alone
        if len(units) <= 1 and len({*texts}) == len(texts):
            return Named(names[0], Elements("", tuple(inner)))
    return Either(tuple(values))


def to_text(value: Value) -> str | None:
    """Algebraic text of a number, expression, interval or a named one of these; else None."""
    match value:
        case Number(number):
            return str(number)
        case Expression(text):
            return text
        case Named((name,), inner) if isinstance(inner, Number | Expression):
            return f"{name} = {to_text(inner)}"
        case Named((_,), Elements(brackets, (low, high))) if brackets:
            texts = complete((to_text(low), to_text(high)))
            return None if texts is None else brackets[0] + ", ".join(texts) + brackets[1]
    return None


_NO_NAME = (
    rf"(?!{PRODUCT_IN_ORDER})"
    r"(?!(?i:.*\b(?:not?|or|and|if|when|than|wrong|incorrect|false|except)\b.*=))"
)
PRODUCT_LETTER = "[abcdkmnpqrstvwxyz]"
PRODUCT = rf"(?!as|at|am|an|by|my){PRODUCT_LETTER}{{2}}"
"""Two letters that are not a word."""
_OPERATION = re.compile(
    r"[+*/]|(?<!\{)-|\d ?[A-Za-z]|\^(?!\{?-1)|\\(?:cdot|times)(?![A-Za-z])"
    rf"|(?<![A-Za-z\\])(?:{PRODUCT}|{PRODUCT_IN_ORDER}|{PRODUCT_LETTER} {PRODUCT_LETTER})"
    r"(?![A-Za-z])"
)


def is_operation(text: str) -> bool:
    r"""Whether a text has an operation, as `x+y`, `2x` and `xy`, but not `\cos A`."""
    return _OPERATION.search(text) is not None


_ARGUMENT = r"(?:[A-Za-z]|-?\d{1,9})"
_LETTERS = rf"[A-Za-z](?:\({_ARGUMENT}(?:[,|] ?{_ARGUMENT})*\)|_\{{?\w{{1,3}}\}}?)?"
_NAME = (
    rf"(?:{_LETTERS}|\\?(?:angle|triangle) ?[A-Z]{{1,3}}|[A-Z]{{2,4}}|\|[A-Za-z]{{1,3}}\|"
    r"|\\(?:vec|hat|overrightarrow) ?\{?[A-Za-z]{1,2}\}?"
    r"|\\(?:alpha|beta|gamma|delta|theta|lambda|mu|phi|sigma|omega)"
    rf"|{_NO_NAME}[A-Za-z]{{3,}}(?: [a-z]+){{0,3}})"
)
"""Names of values: `x`, `a_{10}`, `f(2)`, `P(A)`, `AB`, `\\angle ABC`, `total cost`."""
_WORKING = r"(?:[\d\s.,()]*\d[\s)]*[-+*/×÷][-+\d\s.,()*/×÷]*= ?)?"
"""Arithmetic between a name and its value, `2 + 5 =` of `x = 2 + 5 = 7`, which is skipped."""
_APPROXIMATELY = r"\\approx(?![A-Za-z])|≈"
_RELATIONS = re.compile(rf"=|\\in\b|∈|{_APPROXIMATELY}")
_NAMED = re.compile(
    rf" *(\({_NAME}(?:, ?{_NAME})+\)|{_NAME}(?: ?: ?{_NAME})*) *"
    rf"(?:= ?{_WORKING}|\\in\b|∈|{_APPROXIMATELY}) ?(?=[^=]*$)"
)
_NEARLY = re.compile(rf"(=[^=]*?)(?:{_APPROXIMATELY})(?:(?!, | and )[^=;])*$")
"""Approximation after an exact value, such as `\\approx 0.33`, which adds nothing."""


def _read_named(answer: str) -> Value | None:
    answer = _NEARLY.sub(r"\1", answer)
    text = strip_markup(answer)
    match = _NAMED.match(text)
    if match is None:
        return None
    rest = _RELATIONS.split(answer)[-1]  # with its markup, from which a unit is read
    if answer.lstrip().startswith("$"):
        rest = rest.rstrip("$. ")
    value = read_value(rest if has_matched_brackets(rest) else text[match.end() :])
    if isinstance(value, Elements) and match[1].startswith("("):
        names = tuple(map(_tidy_name, match[1][1:-1].split(",")))
        is_list = not value.brackets and isinstance(value.elements[0], Elements)  # of pairs
        return Named(names, value) if len(names) == len(value.elements) and not is_list else None
    return None if value is None else Named((_tidy_name(match[1]),), value)


def _tidy_name(name: str) -> str:
    name = re.sub(r"[ {}]", "", name)
    return name.lower() if len(name) > 4 and name.isalpha() else name


_BOUNDS = re.compile(
    r"(?:([^<>≤≥=,]+) ?([<>≤≥]))? ?(-?)([a-z](?:\([a-z]\))?) ?(?:([<>≤≥]) ?([^<>≤≥=,]+))?"
)
_BUILT = re.compile(r"\\\{ *([a-z]) *(?:\\in *\\reals *)?[|:](.*)\\\}")
"""Set-builder notation: `\\{x \\mid x > 2\\}`."""


def _read_inequality(text: str) -> Value | None:
    r"""Interval of an inequality, with its letter: `x` in `[2, \infty)` for `x \ge 2`."""
    if built := _BUILT.fullmatch(text):
        inner = _read_inequality(built[2])
        return inner if isinstance(inner, Named) and inner.names == (built[1],) else None
    text = re.sub(r"\\([lg])e(?![a-z])", lambda match: {"l": "≤", "g": "≥"}[match[1]], text)
    match = _BOUNDS.fullmatch(text.strip("$. "))
    if match is None:
        return None
    low, first, minus, letter, second, high = match.groups()
    signs = {first, second} - {None}
    if signs and signs <= {">", "≥"}:
        low, first, second, high = high, second, first, low
    elif not signs or not signs <= {"<", "≤"}:
        return None
    bounds = [read_value(low or r"-\infty"), read_value(high or r"\infty")]
    if minus:
        first, second, bounds = second, first, [_negate(bound) for bound in reversed(bounds)]
    brackets = ("[" if first in ("≤", "≥") else "(") + ("]" if second in ("≤", "≥") else ")")
    ends = complete(None if isinstance(bound, Notation) else bound for bound in bounds)
    return None if ends is None else Named((letter,), Elements(brackets, ends))


def _negate(value: Value | None) -> Value | None:
    match value:
        case Number(number, unit):
            return Number(-number, unit)
        case Expression(text, unit):
            term = re.fullmatch(r"(-?)(\\?\w+)", text)
            minus = "" if term is not None and term[1] else "-"
            return Expression(minus + (f"({text})" if term is None else term[2]), unit)
    return None


_GROUP = re.compile(r"(\\\{|[(\[])(.*)(\\\}|[)\]])", re.DOTALL)
_PLUS_MINUS = re.compile(r"\\pm(?![A-Za-z])")
_AND = re.compile(r",?\s+and\s+")


def _read_elements(text: str) -> Value | None:
    r"""Elements of an answer, `a \pm b` as two; None: it is a single one."""
    group, brackets = _GROUP.fullmatch(text), ""
    if group is not None and min(_depths(group[2]), default=0) >= 0:  # not `(1, 2) \cup (3, 4)`
        text, brackets = group[2], "" if group[1] == "\\{" else group[1] + group[3]
    else:
        text = _AND.sub(", ", text)
    parts = _split(text)
    if not brackets:
        parts = [
            _PLUS_MINUS.sub(sign, part)
            for part in parts
            for sign in ("+-" if _PLUS_MINUS.search(part) else "+")
        ]
    values = complete(map(read_value, parts)) if len(parts) > 1 and all(parts) else None
    if values is None:
        return None
    choices = [value for value in values if isinstance(value, Choice) and value.value is None]
    letters = "".join(sorted(choice.letters for choice in choices))
    if not brackets and len(choices) == len(values) == len({*letters}) == len(letters):
        return Choice(letters)
    named = [value for value in values if isinstance(value, Named) and len(value.names) == 1]
    names = tuple(value.names[0] for value in named)
    if len(named) == len(values) and len({*names}) == 1:
        return _intersect(*values) or _intersect(*reversed(values)) or _join_alternatives(values)
    if len({*names}) == len(values):
        return Named(names, Elements("", tuple(value.value for value in named)))
    return Elements(brackets, values)


def _intersect(*values: Value) -> Named | None:
    """Intersection: from 2 to 5 for `x > 2` and `x < 5`; None: empty, or not of such intervals."""
    match values:
        case (
            Named(names, Elements(left, (low, Expression(r"\infty")))),
            Named(_, Elements(right, (Expression(r"-\infty"), high))),
        ) if not _is_above(low, high):
            return Named(names, Elements(left[:1] + right[-1:], (low, high)))
    return None


def _is_above(low: Value, high: Value) -> bool:
    """Whether the lower end of an interval is surely above or equal to its upper end."""
    if isinstance(low, Number) and isinstance(high, Number):
        return low.number >= high.number
    from stages.rewards.expression_bounds import read_bounds  # imports mpmath, seldom needed

    texts = complete((to_text(low), to_text(high)))
    bounds = [read_bounds(compact(text)) for text in texts or ()]
    values = complete(each and each.value for each in bounds) or None
    return values is not None and bool(values[0].a >= values[1].b)


def _depths(text: str) -> list[int]:
    """Number of open brackets after each character."""
    return list(accumulate((character in "([{") - (character in ")]}") for character in text))


def _split(text: str) -> list[str]:
    """Parts between outer semicolons or commas; if any have spaces, `1,000` is one part."""
    outer = "".join(map(lambda char, depth: "\0" if depth else char, text, _depths(text)))
    mark = next((mark for mark in (";", ", ") if mark in outer), ",")
    ends = pairwise([-1, *(match.start() for match in re.finditer(mark, outer)), len(text)])
    return [text[start + 1 : end].strip() for start, end in ends]


# --- expressions

_COMMAND = re.compile(r"\\(?:begin|end)\{[a-z]*\}|\\[A-Za-z]+")
_WORD = re.compile(r"(?![A-Z]e\^)[A-Za-z]{2,}")  # `Ce^{2x}` is a product
_FUNCTIONS = frozenset(
    ("sqrt", "pi", "sin", "cos", "tan", "log", "ln", "exp", "oo", "abs", "inf", "infinity")
)
_VARIABLES = re.compile(
    rf"{PRODUCT}|{PRODUCT_IN_ORDER}|(?!(?:th|st|nd|rd|ft|lb|ml|gal)$)(?i:(?![aeiou])[a-z]){{2,4}}"
)
"""Several letters that are a product: two that are not a word, `abc`, `mgh`."""
_STRUCTURE = re.compile(
    r"[-+*/^=()\[\]|!]|\w ?[<>] ?[-\w\\]|\\[A-Za-z]|sqrt|pi|infinity|\d ?[A-Za-z]{1,2}\b"
    r"|\d ?[a-z]{3}\b|\d_"
)
_FRAGMENT = re.compile(
    r"^\W*$|^[$ ]*[*/^!]|^[^|]*\|[$ ]*$|^[$ ]*\|[^|]*$|(?<!\^)[-+*/^][$ ]*$|(?<!frac )\b\d+ +\d"
    r"|\\(?:[cdt]?frac|sqrt)(?: *\{[^{}]*\})? *\{ *\}",
    re.ASCII,
)
"""Only signs, an operator or bar without its other side, `69 4`, an empty fraction or root."""
_ARITHMETIC = re.compile(r"(?:[\d\s.,+*/×÷=()\u2212-]|x(?= ?\d))*", re.ASCII)
_POWER = r"(?:\^\{?\d\}?|[²³])?"
_GAP = r"(?:\\[,;:! ]|[ ~])"
_UNIT = re.compile(rf"\\(?:text|mbox|mathrm) *\{{([ ~A-Za-z./]+){_POWER}\}}{_POWER}[$. ]*$")
_BARE_UNIT = re.compile(
    rf"(?<=[\w)}}])(?:{_GAP}+|(?<=[)}}π]))((?!mg$)[A-Za-z]{{2,}}(?:[ /][A-Za-z]+)*){_POWER}$"
)
_GAPS = re.compile(rf"{_GAP}+$")
_UNIT_WORDS = frozenset(("unit", "units", "square", "sq", "cubic", "cu", "per"))
_BY = re.compile(r"[\w.)}] by\b")
"""The word in `10 by 12`, but not the product in `ax + by`."""
_PART = re.compile(r"(?<![\w^{\\])\d[\d.,]* ?([A-Za-z]+)\.?,? ?(?:and|by|x|×)? ?\d", re.ASCII)
_UNIT_LETTER = re.compile(rf"(?<=[\w)}}])(?: +[mgshlLNJWV]|(?<=[)}}])[mgshlL]){_POWER}$")
_LETTER = re.compile(r"(?<![\\A-Za-z])(?!(?:[ie]|pi)(?![A-Za-z]))[A-Za-z]")
_DELIMITER = re.compile(r"(?<!\\)\\[()\[\]]")
_SYMBOLS = str.maketrans({
    "π": "\\pi ", "∞": "\\infty ", "×": "\\times ", "·": "\\cdot ", "÷": "/", "−": "-",
    "²": "^2", "³": "^3", "∪": "\\cup ", "∩": "\\cap ", "θ": "\\theta ", "α": "\\alpha ",
    "β": "\\beta ",
})  # fmt: skip
_ROOT = re.compile(r"√ ?(?:\(([^()]*)\)|(\d+|[A-Za-z]))|\\sqrt ?\(([^()]*)\)")
_TOKEN = r" *(\d|[A-Za-z](?![A-Za-z])|\\(?:pi|alpha|beta|theta|lambda|mu|sigma)(?![A-Za-z]))"
_UNBRACED = (
    (re.compile(rf"(\\[cdt]?frac){_TOKEN}{_TOKEN}"), r"\1{\2}{\3}"),
    (re.compile(rf"(\\[cdt]?frac){_TOKEN}(?= *\{{)"), r"\1{\2}"),
    (re.compile(rf"(\\[cdt]?frac *\{{[^{{}}]*\}}){_TOKEN}"), r"\1{\2}"),
)
"""Fractions without braces, such as `\\frac2\\pi`, and their form with braces."""
_DERIVATIVE = re.compile(r"\\frac *\{ *d(?:[ ^}]|[A-Za-z] *\})")
"""Derivatives, which math-verify would compute: it gets 0 for `\\frac{dy}{dx}`."""
_NAMES = ((re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])"), r"\\pi "),
          (re.compile(r"(?<![A-Za-z\\])(?:infinity|inf|oo)(?![A-Za-z])"), r"\\infty "))  # fmt: skip
_FACTORIAL = re.compile(r"(?<![\d.])(\d{1,2})!(?!!)", re.ASCII)
_IMAGINARY = re.compile(r"\\(?:mathrm|text|operatorname) ?\{([ie])\}")
SUPPORTED = frozenset((
    "frac", "cfrac", "dfrac", "tfrac", "sqrt", "pi", "cdot", "times", "div", "sin", "cos", "tan",
    "cot", "sec", "csc", "arcsin", "arccos", "arctan", "log", "ln", "exp", "infty", "pm", "cup",
    "cap", "le", "leq", "ge", "geq", "lt", "gt", "left", "right", "theta", "alpha", "beta",
    "phi", "lambda", "mu", "nu", "sigma", "omega", "gamma", "delta", "begin", "end", "pmatrix",
    "matrix", "bmatrix", "displaystyle", "quad", "tbinom", "binom", "dbinom",
))  # fmt: skip
"""LaTeX commands that math-verify parses completely."""
_RELATION = re.compile(r"[=<>]|\\(?:leq?|geq?|lt|gt|neq?)(?![A-Za-z])")
_UNFINISHED = re.compile(
    rf"^[ $]*(?:{_RELATION.pattern})"
    rf"|(?:{_RELATION.pattern}|[-+*/^]|\\(?:times|cdot|div|pm|cup|cap))[ $.]*$"
)
"""A relation or an operator without its other side, which math-verify drops."""
_READABLE = re.compile(r"[\w\s+\-*/^(){}\[\],.=<>\\&]*", re.ASCII)


def to_algebra(text: str) -> str | None:
    r"""Text for math-verify; None: math-verify would ignore a part of it.

    Symbols become commands (`2√3` is `2\sqrt{3}`) and factorials numbers. The result must consist
    of numbers, letters, brackets, operators and `SUPPORTED` commands, with at most one relation:
    math-verify ignores parts of anything else (`\mid`, `\overline`, `!`, a chain of inequalities).
    """
    for pattern, command in (*_UNBRACED, *_NAMES):
        text = pattern.sub(command, text)
    if _DERIVATIVE.search(text):
        return None
    text = _ROOT.sub(lambda match: rf"\sqrt{{{match[1] or match[2] or match[3]}}}", text)
    text = _IMAGINARY.sub(r"\1", mark_powers(text).translate(_SYMBOLS))
    text = _FACTORIAL.sub(lambda match: str(factorial(int(match[1]))), text)
    text = re.sub(r"\\\\\[[\d.]+ ?[a-z]{2}\]", r"\\\\", text)  # a distance between lines
    text = re.sub(r"(?<!\\)\\(?:[,;:! ]|(?:left|right)(?![A-Za-z]))", " ", text)
    if _UNFINISHED.search(text):
        return None
    commands = re.findall(r"\\([A-Za-z]+)", text)
    bare = re.sub(r"\\[A-Za-z]+|\\\\", " ", text)
    is_whole = _READABLE.fullmatch(text) and "\\" not in bare and SUPPORTED.issuperset(commands)
    return text if is_whole and len(_RELATION.findall(text)) <= 1 else None


def split_unit(answer: str) -> tuple[str, str]:
    r"""Value and unit (which may be empty), for example of `\(3\sqrt{2}\text{ cm}\).`.

    Both without surrounding `$`, `\(` and `\)`, or a full stop. Bare words are a unit if they are
    in the table of units.
    """
    text = _DELIMITER.sub("", answer).strip(" $.,;:")
    unit = _UNIT.search(text)
    if unit is not None:
        is_unit = unit_scale(f" {unit[1]}") == 1 and unit[1].strip() not in ("i", "e")
    else:
        unit = _BARE_UNIT.search(text)
        words = re.split("[ /]", unit[1]) if unit is not None else []
        is_unit = all(word in _UNIT_WORDS or unit_name(word) for word in words)
        if unit is not None and not re.match(_GAP, unit[0]):  # `\frac{x}{2}ml` is a product
            is_unit = is_unit and not _LETTER.search(text[: unit.start()])
    value = _GAPS.sub("", text[: unit.start()]) if unit is not None and is_unit else ""
    if unit is None or not value or value.rstrip()[-1:] in "+-*/^=":
        return text, ""
    return value.strip(" $"), unit[0]


def split_unit_letter(answer: str, gold: str) -> tuple[str, str]:
    r"""As `split_unit`, also for `3\sqrt{2} m`, if the gold answer has no letters."""
    unit = _UNIT_LETTER.search(answer)
    if unit is None or _LETTER.search(gold):
        return answer, ""
    return answer[: unit.start()], unit[0]


def has_parts(answer: str) -> bool:
    """Whether an answer is several quantities and no product: `1 kg 200 g`, `3 cm x 4 cm`."""
    words = _PART.findall(answer)
    return any(
        unit_name(word) or word in ("R", "r") or (len(word) > 1 and word not in _FUNCTIONS)
        for word in words
    )


def _read_expression(text: str, unit: str) -> Value | None:
    """Mathematical expression; None: only arithmetic on numbers, or prose."""
    algebra = to_algebra(text) if not text.isascii() else text
    if algebra is None or _FRAGMENT.search(algebra):
        return None
    bare = strip_markup(algebra)
    if _ARITHMETIC.fullmatch(bare) or _BY.search(bare) or not _STRUCTURE.search(bare):
        return None
    words = _WORD.findall(_COMMAND.sub(" ", bare))
    are_mathematical = all(word in _FUNCTIONS or _VARIABLES.fullmatch(word) for word in words)
    return Expression(text, read_unit(unit)) if are_mathematical else None


# --- words, choices and free variables

_WORDS = re.compile(r"([A-Za-z])\)?|\(([A-Za-z])\)|([A-Za-z]+(?:[ -][A-Za-z]+){0,3})")
_NO_WORDS = NUMBER_WORDS | {"nan", "inf"}
MAX_WORDS = 40
"""Largest number of characters of an answer in words."""


def _read_words(answer: str) -> Words | None:
    r"""`even` for `\text{Even}` and `even`, `C` for `\text{(C)}`; None: not a few words."""
    text = strip_markup(answer).rstrip(".").strip()
    match = _WORDS.fullmatch(text) if len(text) <= MAX_WORDS else None
    if match is None or extract_answer(text) is not None:
        return None
    is_number = not _NO_WORDS.isdisjoint(re.split("[ -]", text.lower()))
    return None if is_number else Words(match[1] or match[2] or match[3].lower())


_CHOICE = re.compile(
    r"([A-J])\)?|\(([A-J])\)(?:(?=[ :.\d\\$-])(.*))?|([A-J])[.):][ ](.*)|\[([A-J])\]"
    r"|(?:option|choice) \(?([A-J])\)?(?:[.:) ](.*))?",
    re.IGNORECASE | re.DOTALL,
)
_SECOND_CHOICE = re.compile(r"\s*(?:[,/&]|or\b|and\b)\s*\(?[A-J]\b")
_SPACE = re.compile(r"(?<!\\)\\(?:[,;: ]|q?quad(?![A-Za-z]))")
_CHOICES = re.compile(r"(?:\([A-H]\)|[A-H])(?:(?:,? *and +|[,; ]*)(?:\([A-H]\)|[A-H]))+")


def _read_choice(answer: str) -> Choice | None:
    r"""A choice: `C`, `(C)`, `C)`, `C.`, `\text{C}`, `(C) 12`, `C: 12`; or several: `A, B and D`.

    In lower case only with brackets, since `c` may be a variable.
    """
    text = strip_markup(_SPACE.sub(" ", answer) if "\\" in answer else answer).strip(". ")
    if _CHOICES.fullmatch(text):
        letters = re.findall("[A-H]", text)
        return Choice("".join(letters)) if letters == sorted(set(letters)) else None
    match = _CHOICE.fullmatch(text)
    if match is None:
        return None
    letter, *rest = (group for group in match.groups() if group)
    if (rest and _SECOND_CHOICE.match(rest[0])) or not (letter.isupper() or text.startswith("(")):
        return None
    value = read_value(rest[0].strip()) if rest else None
    return Choice(letter.upper(), value if write_value(value) is not None else None)


_DOMAIN = r"(?:\\math(?:bb|bf|rm) ?\{?)?([ZNQRℤℕℚℝ])\}?((?:[\^_](?:\{[^{}]*\}|\\?\w+|[+*]))?|[+*])"
_FREE = tuple(
    re.compile(rf"(.+?)[,;]? *\(?{clause}\)?\.?")
    for clause in (
        rf"(?:(?:where|with|for|for all) )?(?<![A-Za-z\\])([a-zA-Z]) ?(?:\\in\b|∈) ?{_DOMAIN}",
        r"(?:(?:where|with|for) )?([a-zA-Z]) is an integer()()",
        r"for (?:any |all |every )?integers? ([a-zA-Z])()()",
    )
)


def _read_family(answer: str) -> Family | Named | None:
    r"""A value with a free variable declared at its end, which is renamed `\nu`.

    Earlier repetitions of the declaration, as after each of several values, are dropped.
    """
    if not any(sign in answer for sign in ("\\in", "∈", "integer")):
        return None
    text = " ".join(strip_markup(_SPACE.sub(" ", answer)).split())
    match = next((match for pattern in _FREE if (match := pattern.fullmatch(text))), None)
    if match is None or not has_matched_brackets(text):
        return None
    value, name, letter, rest = match.groups()
    repeated = rf"[,;]? *\(?(?<![A-Za-z\\]){name} ?(?:\\in\b|∈) ?{_DOMAIN}\)?"
    value = re.sub(repeated, lambda each: "" if each.groups() == (letter, rest) else each[0], value)
    # keeps letters of commands and words
    pattern = rf"(\\[A-Za-z]+|\b(?:and|or|if|for|where|with)\b)|{name}"
    parts = OR.split(value.strip())
    renamed = [re.sub(pattern, lambda match: match[1] or r"\nu ", part) for part in parts]
    if len(parts) > 1 and any(map(str.__eq__, parts, renamed)):  # `7 or 3k`: only one part has k
        return None
    inner = read_value(" or ".join(renamed))
    domain = (letter or "Z").translate(_DOMAINS) + re.sub(r"[{}\s]", "", rest or "")
    if isinstance(inner, Named) and len(inner.names) == 1:
        return Named(inner.names, Family(inner.value, domain))
    return None if inner is None else Family(inner, domain)


_DOMAINS = str.maketrans("ℤℕℚℝ", "ZNQR")
_BRACKETS = re.compile(r"\\[{}]|[(\[{)\]},]")
_CLOSES = {")": ("(", "(,", "[,"), "]": ("[", "[,", "(,"), "}": ("{", "{,")}


def has_matched_brackets(text: str) -> bool:
    r"""Whether each bracket is closed by one of its kind, or, in an interval, of the other kind.

    `\{` and `\}` are not checked: cases have only one.
    """
    opened = [""]
    for bracket in _BRACKETS.findall(text):
        if bracket in ("(", "[", "{"):
            opened.append(bracket)
        elif bracket == ",":
            opened[-1] = f"{opened[-1][:1]},"
        elif bracket in _CLOSES and opened.pop() not in _CLOSES[bracket]:
            return False
    return len(opened) == 1


_MARK = re.compile(r"\\[A-Za-z]+|\d+|[A-Za-z]|[^\s$]")
_WORD_OR_SIGN = re.compile(r"\d+|[A-Za-z]+|[^\s,]")
_HAS_WORDS = re.compile(
    r"\d.*[ap]\.?m\b|\d.*(?<![\d\\A-Za-z])[A-Za-z]{3}|^[A-Za-z]{3}.*\d", re.IGNORECASE
)


@lru_cache(maxsize=65536)
def spell(text: str) -> str:
    """A text in one spelling: of spaces, and of words if it has numbers, too (times, dates)."""
    text = re.sub(r"^\\text\{([^{}]*)\}$", r"\1", text.strip(" $"))
    text = re.sub(r"\\(?:left|right|text|mathrm)(?![A-Za-z])", "", text).rstrip(". ")
    text = re.sub(r"(?<![\d.,])0(?=\d:)", "", text)
    if "\\" in text or not _HAS_WORDS.search(text):
        return " ".join(_MARK.findall(text))
    text = re.sub(r"(?<=[A-Za-z])\.|(?<=\d)(?:st|nd|rd|th)\b", "", text)
    return " ".join(
        unit_name(token) or (token.lower() if len(token) > 1 else token)
        for token in _WORD_OR_SIGN.findall(text)
        if token.lower() != "and"
    )
