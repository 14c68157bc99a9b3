r"""Read an answer as a value: a number, an expression, a list, tuple or interval of these, words.

Texts of the same value are grouped by `canonical`, which decides no equality that needs algebra.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from math import factorial
from typing import NamedTuple

from stages.rewards.final_answer import extract_answer
from stages.rewards.number_parsing import (
    MAX_CHARACTERS,
    NAME,
    NUMBER_WORDS,
    PRODUCT_IN_ORDER,
    WORKING,
    mark_powers,
    parse_number,
    strip_markup,
    unit_scale,
)
from stages.rewards.units import unit_name

_COMMAND = re.compile(r"\\(?:begin|end)\{[a-z]*\}|\\[A-Za-z]+")
_WORD = re.compile(r"(?![A-Z]e\^)[A-Za-z]{2,}")  # `Ce^{2x}` is a product
_FUNCTIONS = frozenset(
    ("sqrt", "pi", "sin", "cos", "tan", "log", "ln", "exp", "oo", "abs", "inf", "infinity")
)
PRODUCT_LETTER = "[abcdkmnpqrstvwxyz]"
PRODUCT = rf"(?!as|at|am|an|by|my){PRODUCT_LETTER}{{2}}"
"""Two letters that are no word."""
_VARIABLES = re.compile(
    rf"{PRODUCT}|{PRODUCT_IN_ORDER}|(?!(?:th|st|nd|rd|ft|lb|ml|gal)$)(?i:(?![aeiou])[a-z]){{2,4}}"
)
"""Several letters that are a product: two that are no word, `abc`, `mgh`."""
_STRUCTURE = re.compile(
    r"[-+*/^=()\[\]|!]|\w ?[<>] ?[-\w\\]|\\[A-Za-z]|sqrt|pi|infinity|\d ?[A-Za-z]{1,2}\b"
    r"|\d ?[a-z]{3}\b|\d_"
)
_FRAGMENT = re.compile(
    r"^\W*$|^[$ ]*[*/^!]|^[^|]*\|[$ ]*$|^[$ ]*\|[^|]*$|(?<!\^)[-+*/^][$ ]*$|(?<!frac )\b\d+ +\d"
    r"|\\(?:[cdt]?frac|sqrt)(?: *\{[^{}]*\})? *\{ *\}",
    re.ASCII,
)
"""Signs alone, an operator or bar without its other side, `69 4`, an empty fraction or root."""
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
"""The word of `10 by 12`, and no product as in `ax + by`."""
_PART = re.compile(r"(?<![\w^{\\])\d[\d.,]* ?([A-Za-z]+)\.?,? ?(?:and|by|x|×)? ?\d", re.ASCII)
_UNIT_LETTER = re.compile(rf"(?<=[\w)}}])(?: +[mgshlLNJWV]|(?<=[)}}])[mgshlL]){_POWER}$")
_LETTER = re.compile(r"(?<![\\A-Za-z])(?![ie](?![A-Za-z]))[A-Za-z]")
_DELIMITER = re.compile(r"(?<!\\)\\[()\[\]]")
_GROUP = re.compile(r"(\\\{|[(\[])(.*)(\\\}|[)\]])", re.DOTALL)
_PLUS_MINUS = re.compile(r"\\pm(?![A-Za-z])")
_AND = re.compile(r",?\s+and\s+")
_NAMED = re.compile(
    rf"^(\({NAME}(?:, ?{NAME})+\)|{NAME}(?: ?: ?{NAME})*) *(?:= ?{WORKING}|\\in\b) ?(?=[^=]*$)"
)
_WORDS = re.compile(r"([A-Za-z])\)?|\(([A-Za-z])\)|([A-Za-z]+(?:[ -][A-Za-z]+){0,3})")
_NO_WORDS = NUMBER_WORDS | {"nan", "inf"}
_AMBIGUOUS = re.compile(r"\d+,\d+", re.ASCII)
_TEXT = re.compile(r"\\(?:text|mbox|textrm|mathrm) *\{([^{}]{2,})\}")
MAX_WORDS = 40
"""Characters of an answer in words."""


@lru_cache(maxsize=65536)
def canonical_value(answer: str) -> str | None:
    r"""One text for all ways to write a value, for grouping answers in a vote.

    `1,000.0`, `$1000` and `2000/2` are all `1000`; `0.75` is `3/4`; `2, 1` is `{1,2}`. An
    expression that is no number is its own tidied text without spaces. None: the checker cannot
    read it.
    """
    value = parse_number(answer)
    if value is not None:
        return str(value)
    if not has_matched_brackets(answer):
        return None
    if (free := find_free_variable(answer)) is not None:
        letter = unused_letter(free)
        text = None if letter is None else canonical_value(free.rename(letter))
        return None if text is None else f"{text}, {free.domain}"
    group = split_elements(answer)
    if group is None:
        answer, _ = split_unit(answer)
        if not _is_expression(answer):
            return None
        compact = re.sub(r"([_^])\{(\w)\}", r"\1\2", strip_name(answer)).replace(" ", "")
        return re.sub(r"\\sqrt(\w)", r"\\sqrt{\1}", compact)
    texts, is_read = list[str](), True
    for element in group.elements:
        text = canonical_value(element)
        # a single letter is a variable, or a choice of several
        texts.append(text or answer_words(element) or "")
        is_read = is_read and (text or len(texts[-1]) == 1)
    return group.text(texts) if is_read else None


def answer_words(answer: str) -> str | None:
    r"""`\text{Even}` and `even` as `even`, `\text{(C)}` as `C`; None: it is not a few words."""
    text = strip_markup(answer).rstrip(".").strip()
    match = (
        _WORDS.fullmatch(text) if len(text) <= MAX_WORDS and extract_answer(text) is None else None
    )
    if match is None or not _NO_WORDS.isdisjoint(re.split("[ -]", text.lower())):
        return None
    return match[1] or match[2] or match[3].lower()


_BRACKETS = re.compile(r"\\[{}]|[(\[{)\]},]")
_CLOSES = {")": ("(", "(,", "[,"), "]": ("[", "[,", "(,"), "}": ("{", "{,")}


def has_matched_brackets(text: str) -> bool:
    r"""Whether each bracket is closed by its like, or that of an interval by the other kind.

    Those of `\{` and `\}` are not looked at: cases have only one.
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


_DOMAIN = r"(?:\\math(?:bb|bf|rm) ?\{?)?([ZNQRℤℕℚℝ])\}?((?:[\^_](?:\{[^{}]*\}|\\?\w+|[+*]))?|[+*])"
_FREE = tuple(
    re.compile(rf"(.+?)[,;]? *\(?{clause}\)?\.?")
    for clause in (
        rf"(?:(?:where|with|for|for all) )?([a-zA-Z]) ?(?:\\in\b|∈) ?{_DOMAIN}",
        r"(?:(?:where|with|for) )?([a-zA-Z]) is an integer()()",
        r"for (?:any |all |every )?integers? ([a-zA-Z])()()",
    )
)
_LETTERS = str.maketrans("ℤℕℚℝ", "ZNQR")


class FreeVariable(NamedTuple):
    r"""An answer for every number of a domain: `2k\pi` for every `k \in \mathbb{Z}`."""

    value: str
    name: str
    domain: str

    def rename(self, name: str) -> str:
        """The value with another name of the variable; letters of commands and words stay."""
        pattern = rf"(\\[A-Za-z]+|\b(?:and|or|if|for|where|with)\b)|{self.name}"
        return re.sub(pattern, lambda match: match[1] or name, self.value)


def find_free_variable(answer: str) -> FreeVariable | None:
    """The free variable at the end of an answer; None: there is none."""
    is_short = len(answer) <= MAX_CHARACTERS
    if not is_short or not any(sign in answer for sign in ("\\in", "∈", "integer")):
        return None
    text = re.sub(r"\$|\\[,;:! ]|\\q?quad\b|~", " ", _TEXT.sub(r" \1 ", answer))
    text = " ".join(text.split())
    match = next((match for pattern in _FREE if (match := pattern.fullmatch(text))), None)
    if match is None or not has_matched_brackets(text):
        return None
    value, name, letter, rest = match.groups()
    domain = (letter or "Z").translate(_LETTERS) + re.sub(r"[{}\s]", "", rest or "")
    return FreeVariable(value.strip(), name, domain)


def unused_letter(*answers: FreeVariable) -> str | None:
    """A letter that is in none of the values, for the variables of all; None: they have all."""
    text = "".join(re.sub(r"\\[A-Za-z]+", "", free.rename("")) for free in answers)
    return next((letter for letter in "kmnpqrstuvwabcfghjlxyz" if letter not in text), None)


class Elements(NamedTuple):
    """At least two answers that are one: a list, a set, a tuple, an interval, named values."""

    kind: str
    """`set`, also of a bare list; the brackets of a tuple or interval; the names of `x=1, y=2`."""
    elements: Sequence[str]

    @property
    def is_ordered(self) -> bool:
        """Whether the first of one can only equal the first of another."""
        return self.kind != "set"

    @property
    def has_names(self) -> bool:
        """Whether they are named values."""
        return self.kind != "set" and self.kind[0].isalpha()

    def text(self, texts: Sequence[str]) -> str:
        """One text for all ways to write it, where `texts` are such of its elements."""
        content = ",".join(texts if self.is_ordered else sorted(texts))
        if self.has_names:
            return f"({self.kind})=({content})"
        return self.kind[0] + content + self.kind[1] if self.is_ordered else "{" + content + "}"


def split_elements(answer: str) -> Elements | None:
    r"""The answers that an answer consists of, `a \pm b` as two; None: it is a single one."""
    text = strip_name(answer).rstrip(". ")
    if len(text) > MAX_CHARACTERS or parse_number(text) is not None or _AMBIGUOUS.fullmatch(text):
        return None  # `1,23` may be a decimal, or two numbers
    solutions = [part.strip() for part in text.split(";")] if ";" in text else []
    pairs = [split_elements(solution) for solution in solutions]
    if pairs and all(pair is not None and pair.has_names for pair in pairs):
        return Elements("set", solutions)  # `a=3, b=1; a=5, b=1`
    group, kind = _GROUP.fullmatch(text), "set"
    if group is not None and min(_depths(group[2]), default=0) >= 0:  # not `(1, 2) \cup (3, 4)`
        text, kind = group[2], "set" if group[1] == "\\{" else group[1] + group[3]
    else:
        text = _AND.sub(", ", text)
    parts = _split(text)
    if kind == "set":
        parts = [
            _PLUS_MINUS.sub(sign, element)
            for element in parts
            for sign in ("+-" if _PLUS_MINUS.search(element) else "+")
        ]
    if len(parts) < 2 or not all(parts):
        return None
    names = [match[1] for match in map(_NAMED.match, parts) if match]
    if len(set(names)) == len(parts):
        kind, parts = ",".join(sorted(names)), [parts[names.index(name)] for name in sorted(names)]
    return Elements(kind, parts)


NO_LOW, NO_HIGH = r"-\infty", r"\infty"
INTERVALS = ("()", "(]", "[)", "[]")
_COMPARISONS = (
    (re.compile(r"\\le(?:q(?:slant)?)?(?![A-Za-z])|<="), "≤"),
    (re.compile(r"\\ge(?:q(?:slant)?)?(?![A-Za-z])|>="), "≥"),
    (re.compile(r"\\lt(?![A-Za-z])"), "<"), (re.compile(r"\\gt(?![A-Za-z])"), ">"),
)  # fmt: skip
_BOUNDS = re.compile(
    r"(?:([^<>≤≥=,]+) ?([<>≤≥]))? ?([a-z](?:\([a-z]\))?) ?(?:([<>≤≥]) ?([^<>≤≥=,]+))?"
)


def to_interval(answer: str) -> str | None:
    r"""The interval of an inequality, `[2, \infty)` of `x \ge 2`; None: it is another text."""
    return read_inequality(answer)[1]


def to_union(answers: Sequence[str]) -> str | None:
    r"""`(-\infty, -1) \cup [1, \infty)` of `x < -1` and `x \ge 1`; None: of other texts."""
    if len(answers) < 2:
        return None
    letters, intervals = zip(*map(read_inequality, answers), strict=True)
    return None if None in intervals or len(set(letters)) > 1 else r" \cup ".join(intervals)


def read_inequality(answer: str) -> tuple[str, str] | tuple[None, None]:
    """Its letter and its interval."""
    text = strip_markup(answer)
    for comparison, sign in _COMPARISONS:
        text = comparison.sub(sign, text)
    match = _BOUNDS.fullmatch(text.rstrip(". ")) if len(text) <= MAX_CHARACTERS else None
    if match is None or not (match[2] or match[4]):
        return None, None
    low, first, letter, second, high = match.groups()
    is_rising = (first or second) in ("<", "≤")
    if first and second and (second in ("<", "≤")) != is_rising:
        return None, None
    if not is_rising:
        low, first, second, high = high, second, first, low
    left = "[" if first in ("≤", "≥") else "("
    right = "]" if second in ("≤", "≥") else ")"
    return letter, rf"{left}{low or NO_LOW}, {high or NO_HIGH}{right}"


def strip_name(answer: str) -> str:
    r"""The tidied value alone: of `x = 5`, `(x, y) = (1, 2)` and `x \in [0, 1]`."""
    return _NAMED.sub("", strip_markup(answer))


def name_of(answer: str) -> str | None:
    r"""The name of a single named value, `x` of `x = 5` and `x \in [0, 1]`; None: it has none."""
    is_named = "=" in answer or "\\in" in answer
    match = _NAMED.match(strip_markup(answer)) if is_named else None
    name = re.sub(r"[ {}]", "", match[1]) if match is not None else None
    return name.lower() if name is not None and len(name) > 4 and name.isalpha() else name


_CHOICE = re.compile(
    r"([A-J])\)?|\(([A-J])\)(?:(?=[ :.\d\\$-])(.*))?|([A-J])[.):][ ](.*)|\[([A-J])\]"
    r"|(?:option|choice) \(?([A-J])\)?(?:[.:) ](.*))?",
    re.IGNORECASE | re.DOTALL,
)
_SECOND_CHOICE = re.compile(r"\s*(?:[,/&]|or\b|and\b)\s*\(?[A-J]\b")
_SPACE = re.compile(r"(?<!\\)\\(?:[,;: ]|q?quad(?![A-Za-z]))")
_MAY_BE_CHOICE = re.compile(r"[\s$*_]*(?:\\[a-z]+ *\{)?\(?[A-J][.):]")
_CHOICE_VALUE = re.compile(r"(?:\([A-J]\)|[A-J][.):])\s*(\S.*)", re.DOTALL)


def read_choice(answer: str) -> str | None:
    r"""The letter of a choice: of `C`, `(C)`, `C)`, `C.`, `\text{C}`, `(C) 12`, `C: 12`; else None.

    Lower case is a choice in brackets alone: `c` may be a variable.
    """
    text = _strip_spaced(answer).strip().rstrip(".").strip()
    match = _CHOICE.fullmatch(text) if len(text) <= MAX_CHARACTERS else None
    if match is None:
        return None
    letter, *rest = (group for group in match.groups() if group)
    is_one = not (rest and _SECOND_CHOICE.match(rest[0]))
    return letter.upper() if is_one and (letter.isupper() or text.startswith("(")) else None


_CHOICES = re.compile(r"(?:\([A-H]\)|[A-H])(?:(?:,? *and +|[,; ]*)(?:\([A-H]\)|[A-H]))+")


def read_letters(answer: str) -> str | None:
    """The letters of several choices in their order: `ABD` of `A, B and D` and of `(A)(B)(D)`."""
    text = strip_markup(answer).strip(". ") if len(answer) <= MAX_CHARACTERS else ""
    letters = re.findall("[A-H]", text) if _CHOICES.fullmatch(text) else []
    return "".join(letters) if letters and letters == sorted(set(letters)) else None


def _strip_spaced(text: str) -> str:
    r"""Without markup, of which spaces stay: `A.\ 5` is `A. 5`."""
    return strip_markup(_SPACE.sub(" ", text) if "\\" in text else text)


def choice_value(answer: str) -> str | None:
    r"""What a choice says beside its letter, `24` of `\textbf{(B)}\ 24`; None: no value."""
    if not _MAY_BE_CHOICE.match(answer) or read_choice(answer) is None:
        return None
    match = _CHOICE_VALUE.fullmatch(_strip_spaced(answer))
    return match[1] if match is not None and canonical_value(match[1]) is not None else None


_SYMBOLS = str.maketrans({
    "π": "\\pi ", "∞": "\\infty ", "×": "\\times ", "·": "\\cdot ", "÷": "/", "−": "-",
    "≤": "\\le ", "≥": "\\ge ", "²": "^2", "³": "^3", "∪": "\\cup ", "∩": "\\cap ",
    "θ": "\\theta ", "α": "\\alpha ", "β": "\\beta ",
})  # fmt: skip
_ROOT = re.compile(r"√ ?(?:\(([^()]*)\)|(\d+|[A-Za-z]))|\\sqrt ?\(([^()]*)\)")
_TOKEN = r" *(\d|[A-Za-z](?![A-Za-z])|\\(?:pi|alpha|beta|theta|lambda|mu|sigma)(?![A-Za-z]))"
_UNBRACED = (
    (re.compile(rf"(\\[cdt]?frac){_TOKEN}{_TOKEN}"), r"\1{\2}{\3}"),
    (re.compile(rf"(\\[cdt]?frac){_TOKEN}(?= *\{{)"), r"\1{\2}"),
    (re.compile(rf"(\\[cdt]?frac *\{{[^{{}}]*\}}){_TOKEN}"), r"\1{\2}"),
)
"""Fractions of which braces are left out, as `\\frac2\\pi`, and the same with them."""
_DERIVATIVE = re.compile(r"\\frac *\{ *d(?:[ ^}]|[A-Za-z] *\})")
"""math-verify would differentiate, and find 0 in `\\frac{dy}{dx} = 2x`."""
_NAMES = ((re.compile(r"\\([lg]e)qslant(?![A-Za-z])"), r"\\\1 "),
          (re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])"), r"\\pi "),
          (re.compile(r"(?<![A-Za-z\\])(?:infinity|inf|oo)(?![A-Za-z])"), r"\\infty "))  # fmt: skip
_FACTORIAL = re.compile(r"(?<![\d.])(\d{1,2})!(?!!)", re.ASCII)
_IMAGINARY = re.compile(r"\\(?:mathrm|text|operatorname) ?\{([ie])\}")
SUPPORTED = frozenset((
    "frac", "cfrac", "dfrac", "tfrac", "sqrt", "pi", "cdot", "times", "div", "sin", "cos", "tan",
    "cot", "sec", "csc", "arcsin", "arccos", "arctan", "log", "ln", "exp", "infty", "pm", "cup",
    "cap", "le", "leq", "ge", "geq", "lt", "gt", "left", "right", "theta", "alpha", "beta",
    "phi", "lambda", "mu", "sigma", "omega", "gamma", "delta", "begin", "end", "pmatrix", "matrix",
    "bmatrix", "displaystyle", "quad", "tbinom", "binom", "dbinom",
))  # fmt: skip
"""Commands of LaTeX that math-verify reads, and nothing of which it drops."""
_RELATION = re.compile(r"[=<>]|\\(?:leq?|geq?|lt|gt|neq?)(?![A-Za-z])")
_UNFINISHED = re.compile(
    rf"^[ $]*(?:{_RELATION.pattern})"
    rf"|(?:{_RELATION.pattern}|[-+*/^]|\\(?:times|cdot|div|pm|cup|cap))[ $.]*$"
)
"""A relation or an operator without its other side, which math-verify drops."""
_READABLE = re.compile(r"[\w\s+\-*/^(){}\[\],.=<>\\&]*", re.ASCII)


def to_algebra(text: str) -> str | None:
    r"""The text for math-verify; None: it would read only a part of it.

    Symbols become commands (`2√3` is `2\sqrt{3}`) and factorials numbers. What is left must consist
    of numbers, letters, brackets, operators and `SUPPORTED` commands, with one relation at most: of
    all else (`\mid`, `\overline`, `!`, a chain of inequalities) math-verify drops something.
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


def _depths(text: str) -> list[int]:
    """How many brackets are open after each character."""
    return list(accumulate((character in "([{") - (character in ")]}") for character in text))


def _split(text: str) -> list[str]:
    """At the commas outside of brackets; where a space follows some, `1,000` is one number."""
    comma, depths = ", " if ", " in text else ",", _depths(text)
    commas = [at for at, depth in enumerate(depths) if depth == 0 and text.startswith(comma, at)]
    ends = pairwise([-1, *commas, len(text)])
    return [text[start + 1 : end].strip() for start, end in ends]


def split_unit(answer: str) -> tuple[str, str]:
    r"""The value and the unit, which may be empty, as of `\(3\sqrt{2}\text{ cm}\).`.

    Neither has `$`, `\(` and `\)` around it, or a full stop. Bare words are a unit where they are
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
    r"""As `split_unit`, of `3\sqrt{2} m`, where the gold answer has no letters of its own."""
    unit = _UNIT_LETTER.search(answer)
    if unit is None or _LETTER.search(gold):
        return answer, ""
    return answer[: unit.start()], unit[0]


def has_parts(answer: str) -> bool:
    """Whether it is several quantities: `1 kg 200 g`, `3 cm x 4 cm`, `5 R 2`, and no product."""
    words = _PART.findall(answer)
    return any(
        unit_name(word) or word in ("R", "r") or (len(word) > 1 and word not in _FUNCTIONS)
        for word in words
    )


def _is_expression(text: str) -> bool:
    """Mathematics that is not mere arithmetic on numbers, and no prose."""
    algebra = to_algebra(text) if not text.isascii() else text
    if len(text) > MAX_CHARACTERS or algebra is None or _FRAGMENT.search(algebra):
        return False
    text = strip_markup(algebra)
    if _ARITHMETIC.fullmatch(text) or _BY.search(text):
        return False
    words = _WORD.findall(_COMMAND.sub(" ", strip_name(text)))
    are_mathematical = all(word in _FUNCTIONS or _VARIABLES.fullmatch(word) for word in words)
    return are_mathematical and bool(_STRUCTURE.search(text))
