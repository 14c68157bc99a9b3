r"""Is the final answer that a completion states the gold answer, and is it in the format?

The cheap rule reads both answers as exact numbers (`number_parsing`) and compares them. Lists
(`1, 2`) and sets have no order, tuples and intervals have, and each element is an answer. Words
(`\text{even}`) are compared as words. Only where there is mathematics that is no number
(`\sqrt{2}`, `x^2 + 1`) is math-verify asked, in a process of its own with hard limits
(`symbolic_equality`). Nothing that a model wrote is evaluated here. Against a gold number,
unevaluated arithmetic (`48 + 24`) is wrong: the working is not the answer. Between a name and its
value it is left out (`x = 2 + 5 = 7`). Roots and powers (`\sqrt{16}`, `10^3`) go to math-verify.
Nothing is rounded: 3.14 equals pi in no problem, since one that asks for two decimals has the gold
answer 3.14.

A policy that only learned to write `#### n` gains much under the `strict` reading and nothing under
the `lenient` one: side by side they tell a gain in format from a gain in skill. After the strict
and flexible readings of GSM8K in the Language Model Evaluation Harness (Gao et al. 2024,
https://doi.org/10.5281/zenodo.12608602), of which each can be right where the other is wrong;
departure: what is right by our strict one is right by the lenient one, too.
"""

import re
import unicodedata
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, islice

from stages.records.problems import Prompt
from stages.rewards import symbolic_equality
from stages.rewards.answer_value import (
    INTERVALS,
    PRODUCT,
    PRODUCT_LETTER,
    Elements,
    answer_words,
    canonical_value,
    choice_value,
    find_free_variable,
    has_matched_brackets,
    has_parts,
    name_of,
    read_choice,
    read_inequality,
    read_letters,
    split_elements,
    split_unit,
    split_unit_letter,
    strip_name,
    to_algebra,
    to_interval,
    to_union,
    unused_letter,
)
from stages.rewards.final_answer import (
    MAX_INSPECTED,
    answer_statements,
    extract_answer,
    strip_thinking,
)
from stages.rewards.number_parsing import (
    MAX_CHARACTERS,
    PRODUCT_IN_ORDER,
    has_ambiguous_commas,
    parse_number,
    strip_markup,
)
from stages.rewards.units import read_unit, unit_name, units_differ

Forms = Sequence[str] | None
"""Forms of statements that are read (`answer_forms`); None: all that have a name."""
_DRESSED = re.compile(r"\\(?:text|mbox|mathrm|textbf|textit)\b")


def is_correct(completion: str, gold: str, forms: Forms = None) -> bool:
    """Whether the last final answer that `completion` states equals the gold answer."""
    answer = extract_answer(completion, forms)
    return answer is not None and answers_match(answer, gold)


def solves_problem(prompt: Prompt, completion: str) -> bool:
    """As `is_correct`, of a completion of `prompt`; a ValueError where that has no gold answer."""
    return is_correct(prompt.whole(completion), prompt.gold, prompt.answer_forms)


def answers_match(answer: str, gold: str) -> bool:
    r"""Whether two final answers are the same value.

    A gold answer `a or b` is matched by either, but `x<1 or x>2` is a union, and of `x=1 or x=2`
    both are needed. `(B) 24` is matched by the letter and by the value. Numbers whose known units
    differ are different. Of `2k\pi, k \in Z` the name of the variable does not count.
    """
    if _PLAIN.fullmatch(gold) and _PLAIN.fullmatch(answer):
        return int(gold) == int(answer)
    if (free := find_free_variable(gold)) is not None:
        other = find_free_variable(answer)
        return (
            other is not None
            and other.domain == free.domain
            and (name := unused_letter(other, free)) is not None
            and answers_match(other.rename(name), free.rename(name))
        )
    golds, answers = _OR.split(gold), _OR.split(answer)
    answer = to_union(answers) or answer
    if len(golds) > 1:
        return _match_alternatives(answer, answers, golds)
    choice = read_choice(gold)
    if choice is not None:
        stated, value = read_choice(answer), choice_value(gold)
        is_value = stated is None and value is not None and answers_match(answer, value)
        return is_value or stated == choice
    letters = read_letters(gold)
    if letters is not None and letters == read_letters(answer):
        return True
    answer = choice_value(answer) or answer
    tidied = tidy_gold(gold)
    elements = split_elements(tidied)
    if elements is not None and not elements.is_ordered:
        answer = _OR.sub(", ", answer) if _OR.search(answer) else _space_pair(answer)
    names = name_of(answer), name_of(tidied)
    may_match = None in names or names[0] == names[1]
    return may_match and (
        _values_match(answer, tidied) or (tidied != gold and _is_same_text(answer, gold))
    )


def _match_alternatives(answer: str, answers: Sequence[str], golds: Sequence[str]) -> bool:
    """Whether an answer is right where the gold answer is `a or b`.

    Inequalities are a union, and values of one name the solutions, of which all are needed. Else
    either is right, and so is the list of both. `answers`: the answer, likewise split at `or`.
    """
    union = to_union(golds)
    names = [name_of(gold) for gold in golds]
    # In several units, as `d = 5 km or 5000 m` and `p = 1/4 or 25%`, they may be one value.
    are_solutions = (
        names[0] is not None
        and {*names} <= {names[0], None}
        and len({read_unit(strip_name(gold)).name for gold in golds}) == 1
        and not any(answers_match(*pair) for pair in combinations(golds, 2))
    )
    either = [union] if union else [] if are_solutions else golds
    if any(answers_match(answer, gold) for gold in either):
        return True
    elements = split_elements(_space_pair(answer)) if len(answers) == 1 else None
    if elements is not None and not elements.is_ordered:
        answers = elements.elements
    return (
        len(answers) == len(golds)
        and all(any(answers_match(answer, gold) for gold in golds) for answer in answers)
        and all(any(answers_match(answer, gold) for answer in answers) for gold in golds)
    )


def _values_match(answer: str, gold: str) -> bool:
    """Whether two answers, apart from their names, are the same value."""
    gold_number, answer_number = parse_number(gold), parse_number(answer)
    if gold_number is not None and answer_number is not None:
        return gold_number == answer_number and not units_differ(answer, gold)
    if _is_same_text(answer, gold):
        return not units_differ(answer, gold)
    of_gold, of_answer = canonical_value(gold), canonical_value(answer)
    if of_gold is None or of_answer is None:
        in_words = None if of_gold is not None else answer_words(gold)
        return in_words is not None and in_words == answer_words(answer)
    if of_gold == of_answer:
        is_single = split_elements(gold) is None
        return not units_differ(answer, gold) if is_single else _is_equal(answer, gold)
    is_working = _is_working(answer, gold, gold_is_number=gold_number is not None)
    return not is_working and _is_equal(answer, gold)


def _is_same_text(answer: str, gold: str) -> bool:
    """Whether they are equal but for spaces and spellings, and the gold answer is one."""
    is_same = _spell(answer) == _spell(gold)
    if not is_same and ":" in gold:  # `S_1 : S_2 = 4 : 9`
        is_same = _spell(strip_name(answer)) == _spell(strip_name(gold))
    return is_same and read_gold(gold) is not None


_SPELLINGS = (
    (re.compile(r"^\\text\{([^{}]*)\}$"), r"\1"),
    (re.compile(r"\\leq(?:slant)?(?![A-Za-z])|≤"), r"\\le"),
    (re.compile(r"\\geq(?:slant)?(?![A-Za-z])|≥"), r"\\ge"),
    (re.compile(r"\\neq(?![A-Za-z])|≠"), r"\\ne"),
    (re.compile(r"\\mid(?![A-Za-z])"), "|"),
    (re.compile(r"\\varnothing|∅|\\\{ *\\\}"), r"\\emptyset"),
    (re.compile(r"(?<!\d)[\s$]|[\s$](?!\d)|\\(?:left|right)(?![A-Za-z])"), ""),
    (re.compile(r"(?<=\d)(?:\\text\{)?([ap])\.?m\.?\}?(?=[A-Z]{0,4}$)", re.IGNORECASE), r"\1m"),
    (re.compile(r"^0(?=\d:\d\d)"), ""),
    (re.compile(r"^([A-Za-z]+\.?\d\d?)(?:st|nd|rd|th)?,? ?(?=\d{4}(?!\d))"), r"\1,"),
    (re.compile(r"(?<=[a-z])and(?=\d)"), ""),
)  # fmt: skip


_IN_WORDS = re.compile(
    r"(?P<emptyset>nosolution|(?:the)?emptyset)s?|(?P<dne>dne|(?:thelimit)?doesnotexist)"
    r"|(?P<reals>(?:all)?realnumbers|\\mathbb\{?R\}?|\(-\\infty,\+?\\infty\))|(?P<plural>.*solution)s",
    re.IGNORECASE,
)


@lru_cache(maxsize=65536)
def _spell(text: str) -> str:
    """A text without spaces, in one spelling of comparisons, well-known sets, times and months."""
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    if match := _IN_WORDS.fullmatch(text):
        return match["plural"] or f"\\{match.lastgroup}"
    return text.lower() if _TIME.fullmatch(text) else text


_MONTH = r"(?:Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_ZONE = r"(?:(?: |)(?:UTC|GMT|Z|[A-Z]{1,3}T)(?:[-+]\d\d?(?::?\d\d)?)?)?"
_CLOCK = r"\d\d?:\d\d(?::\d\d)?(?:(?: |)[ap]\.?m\.?)?" + _ZONE
_DATE = re.compile(
    rf"(?:\d{{4}}[-/]\d\d?[-/]\d\d?|\d\d?/\d\d?/\d{{4}}"
    rf"|{_MONTH}\.? \d\d?(?:st|nd|rd|th)?(?:,? \d{{4}})?|(?:\d\d? )?{_MONTH} \d{{4}}"
    rf"|\d\d? {_MONTH})(?:(?:,|T|) (?:at )?{_CLOCK})?{_ZONE}",
    re.IGNORECASE | re.ASCII,
)
_TIME = re.compile(rf"{_CLOCK}|{_DATE.pattern.replace(' ', ' ?')}", re.IGNORECASE | re.ASCII)


_PLAIN = re.compile(r"-?\d{1,18}", re.ASCII)
_OR = re.compile(r" or | \\text\{ ?or ?\} |\\text\{ or \}")
_BRACKETED = re.compile(r"\[([^\[\],]+)\]|\\\{([^{},]+)\\\}")
_COMMENT = re.compile(r"(.*\d[^()]*?) ?\([ A-Za-z/²³]+\)", re.DOTALL)
_RATIO = re.compile(r"(\d+) ?: ?(\d+)", re.ASCII)
_PAIR = re.compile(r"\d+,\d+", re.ASCII)
_LOST_UNIT = re.compile(r"(?<=\d)(?:/?\\(?:mathrm|text) ?\{[~ ]*\}(?:\^\{?\d\}?)?)+(?=$|[,;])")
"""What Numina has in place of a unit: `24\\mathrm{~}^2`, `4\\mathrm{~}/\\mathrm{}`."""


def tidy_gold(gold: str) -> str:
    r"""A gold answer in the one form that its notation is read as.

    `[x]` and `\{x\}` are x; a unit or remark in brackets after a number is left out; `4,5` are two
    numbers where it is not one with a thousands separator; digits of other scripts are numbers.
    """
    text = gold.strip()
    if not text.isascii():
        text = "".join(
            str(unicodedata.decimal(character)) if character.isdecimal() else character
            for character in text
        )
    if ";" in text:
        parts = [tidy_gold(part) for part in text.split(";")]
        if all(parse_number(part) is not None for part in parts):
            return ", ".join(parts)
    if match := _BRACKETED.fullmatch(text):
        text = (match[1] or match[2]).strip()
    if match := _COMMENT.fullmatch(text):
        text = match[1].strip()
    return _LOST_UNIT.sub("", _space_pair(text))


def _space_pair(text: str) -> str:
    """`x = 4, 5` of `x = 4,5`, unless `4,5` has a thousands separator and is one number."""
    pair = strip_markup(strip_name(text))
    is_pair = _PAIR.fullmatch(pair) is not None and parse_number(pair) is None
    return text.replace(",", ", ") if is_pair else text


_OPERATION = re.compile(
    r"(?:[+*/]|(?<!\{)-|\d ?[A-Za-z]|\^(?!\{?-1)|\\(?:cdot|times)(?![A-Za-z])"
    rf"|(?<![A-Za-z\\])(?:{PRODUCT}|{PRODUCT_IN_ORDER}|{PRODUCT_LETTER} {PRODUCT_LETTER})"
    r"(?![A-Za-z]))[^=<>]*="
)
"""On the left side of an equation: `x+y=3` and `xy=3` are not 3, `\\cos A=3` may be."""
_EQUALS = re.compile("(?<![<>])=")
"""That of an equation, not of `x >= 2`."""


def _is_equation(answer: str) -> bool:
    """Whether it has an equation that is no name of a value: `2x=6`, and not `x=3, y=2`."""
    if _EQUALS.search(strip_name(answer)) is None:
        return False
    elements = split_elements(answer)
    if elements is None or elements.has_names:
        return elements is None
    return any(map(_is_equation, elements.elements))


def _is_working(answer: str, gold: str, *, gold_is_number: bool) -> bool:
    """Whether it is no answer to a question with such a gold answer, whatever its value.

    Against a number `7 = 7` or `(7)`: nothing that math-verify should make a number of. `8 = 7^1`,
    where `x = 7` is one. What has a base (`52_8`) equals its own text alone.
    """
    return (
        (gold_is_number and not re.search(r"\\|\^|\*\*|sqrt|pi", answer))
        or ("=" not in gold and "=" in answer and _is_equation(answer))
        or ("=" in gold and "=" not in answer and _OPERATION.search(strip_name(gold)) is not None)
        or re.search(r"\d_", gold + answer) is not None
    )


def _is_equal(answer: str, gold: str) -> bool:
    """By algebra, element by element."""
    group, of_gold = split_elements(answer), split_elements(gold)
    if group is None or of_gold is None:
        if (several := group or of_gold) is not None:  # an interval, and the same as an inequality
            bounds = [to_interval(text) for text in (answer, gold)]
            is_one = len(several.elements) == 2 and several.kind in INTERVALS
            texts = [bound or text for bound, text in zip(bounds, (answer, gold), strict=True)]
            return is_one and bounds.count(None) == 1 and _is_equal(*map(strip_name, texts))
        (letter, bounds), (of, gold_bounds) = read_inequality(answer), read_inequality(gold)
        if bounds is not None and gold_bounds is not None:
            return letter == of and _is_equal(bounds, gold_bounds)
        return _is_equal_algebra(answer, gold)
    # words that both have, after other numbers: `5 boys, 3 girls`, the other way
    numbers, gold_numbers = _numbers_by_words(group), _numbers_by_words(of_gold)
    if any(
        numbers[words].isdisjoint(gold_numbers[words])
        for words in numbers.keys() & gold_numbers.keys()
    ):
        return False
    unmatched = list(of_gold.elements)
    for element in group.elements:
        candidates = unmatched[:1] if of_gold.is_ordered else unmatched
        same = [candidate for candidate in candidates if answers_match(element, candidate)]
        if not same:
            return False
        unmatched.remove(same[0])
    return _is_same_kind(group, of_gold) and not unmatched


def _numbers_by_words(elements: Elements) -> dict[str, set[Fraction]]:
    """Words after a number of a list -> such numbers."""
    numbers: dict[str, set[Fraction]] = {}
    for element in elements.elements:
        number, words = parse_number(element), read_unit(element).words
        if number is not None and words:
            numbers.setdefault(" ".join(words).lower().removesuffix("s"), set()).add(number)
    return numbers


_SERIES = frozenset(("x,y", "x,y,z", "a,b", "a,b,c", "m,n", "p,q", "r,s", "u,v"))
_NUMBERED = re.compile(r"([a-z])_\{?1\}?(?:,\1_\{?[2-9]\}?)+")


def _is_same_kind(answer: Elements, gold: Elements) -> bool:
    """Whether both are lists, tuples, ...; `x=1, y=2` is a pair, and `x_1=1, x_2=2` a list, too."""
    if answer.kind == gold.kind:
        return True
    named = [elements.kind for elements in (answer, gold) if elements.has_names]
    if len(named) != 1:
        return False
    if "()" in (answer.kind, gold.kind):
        return named[0] in _SERIES
    return "set" in (answer.kind, gold.kind) and _NUMBERED.fullmatch(named[0]) is not None


def _is_equal_algebra(answer: str, gold: str) -> bool:
    r"""Of two single values or equations.

    Against the equation `xy=6`, `x=6` is an equation, too, and not 6; `total=6` is none in its
    letters. Of infinite values the same name is left out: math-verify would take `x+\infty` for a
    multiple of `x-\infty`, and `1 kg 200 g` for a product.
    """
    if has_parts(answer) or has_parts(gold):
        return False
    name, is_equation = name_of(answer), "=" in gold and "=" in strip_name(gold)
    if is_equation and name is not None and name not in re.sub(r"[ {}]", "", gold):
        return False
    if name is not None and all(_INFINITE.search(text) for text in (answer, gold)):
        answer, gold = strip_name(answer), strip_name(gold)
    of_answer, of_gold = _algebra(answer, keeps_name=is_equation), _algebra(gold)
    if of_answer is None or of_gold is None:
        return False
    if _CONSTANT.search(of_gold):
        of_answer = _CONSTANT.sub(of_gold[-1], of_answer)
    of_answer, letter = split_unit_letter(of_answer, of_gold)
    if units_differ(split_unit(answer)[1] or letter, split_unit(gold)[1]):
        return False
    return symbolic_equality.are_equal(of_answer, of_gold)


_CONSTANT = re.compile(r"(?<=\+) ?[Cc]$")
"""Of integration, in either case."""
_INFINITE = re.compile(r"\\infty|∞|infinity|(?<![A-Za-z])(?:oo|inf)(?![A-Za-z])")


def _algebra(text: str, *, keeps_name: bool = False) -> str | None:
    """As `to_algebra`; numbers as exact fractions, since `1e8` has a variable in LaTeX."""
    number = parse_number(text)
    if number is None:
        return to_algebra(split_unit(text)[0])
    name = name_of(text) if keeps_name else None
    return to_algebra(str(number) if name is None else f"{name} = {number}")


def read_gold(text: str) -> str | None:
    r"""The final answer that a source's answer field gives: itself, or the one it states last.

    `1,234` is itself; of `half of 8 is 4 #### 4` it is `4`; None: neither can be read. A field that
    consists of a few words or of a letter is the answer (`yes`, `C`); so are `2:3`, which only
    `2:3` equals, other notation (`\overline{AB}`), and `a or b`, either of which is right. Where
    a comma may divide one number or several (`1,23,456`), nothing is read.
    """
    text = text.strip()
    stated = extract_answer(text)
    if has_ambiguous_commas(text if stated is None else stated):
        return None
    if stated is not None:
        return stated if read_answer(stated) is not None or read_choice(stated) else None
    is_read = all(
        read_choice(part) is not None
        or read_answer(tidy_gold(part)) is not None
        or answer_words(tidy_gold(part)) is not None
        or _RATIO.fullmatch(part)
        or _DATE.fullmatch(part)
        or _is_notation(part)
        for part in _OR.split(text)
    )
    return text if is_read else None


_NOTATION = re.compile(r"\\[A-Za-z]|[\^'_≠]|\d:\d|\d ?[a-z]+ \d", re.ASCII)
_COMMAND = re.compile(r"\\[A-Za-z]+(?:\{[a-z]+\})?")
_LONG_WORD = re.compile(r"[A-Za-z]{2,}")


def _is_notation(gold: str) -> bool:
    r"""Whether it is an answer that only its own text equals: `\overline{AB}`, `10:30 AM`.

    It has a mark of mathematics, or several quantities, and no words but units and points.
    """
    if len(gold) > MAX_CHARACTERS or _NOTATION.search(gold) is None:
        return False
    if not has_matched_brackets(gold):
        return False
    words = _LONG_WORD.findall(_COMMAND.sub(" ", gold))
    return all(unit_name(word) or word in {"am", "pm"} or word.isupper() for word in words)


def states_an_answer(completion: str, gold: str = "", forms: Forms = None) -> bool:
    """Whether `completion` states a final answer, the last of which can be read.

    Where the gold answer is a word or a choice, a word or a choice is read.
    """
    answer = extract_answer(completion, forms)
    if answer is None:
        return False
    if gold and read_choice(gold) is not None:
        return read_choice(answer) is not None
    return read_answer(answer, gold) is not None


def states_one_answer(completion: str, forms: Forms = None) -> bool:
    """Whether `completion` states exactly one final answer, which can be read."""
    stated = list(islice(answer_statements(completion, forms), 2))
    return len(stated) == 1 and read_answer(stated[0]) is not None


def read_answer(answer: str, gold: str = "") -> str | None:
    r"""Its `canonical` text, or its words where they are marked as an answer or asked for.

    `\text{even}` is marked; words are asked for where the gold answer consists of them. Elsewhere
    None: a policy that says `#### apples` has stated no number.
    """
    value = canonical_value(answer)
    if value is not None or not (
        _DRESSED.search(answer) or (gold and canonical_value(gold) is None)
    ):
        return value
    return answer_words(answer)


_ANSWER_LINE = re.compile(r"####[ \t]*[^\n<]+")
_WORKING = re.compile(r"[A-Za-z0-9]")
_NUMBER = re.compile(r"(?:(?<![\w)\]}])[-\u2212])?(?:\d[\d,]*(?:\.\d+)?|(?<![\w.])\.\d+)")
"""The sign of `12-5` is an operation."""


def has_format(completion: str, forms: Forms = None) -> bool:
    """Whether `completion` is working, then exactly one readable final answer `#### n`."""
    working, _, last_line = strip_thinking(completion).rstrip().rpartition("\n")
    if not _ANSWER_LINE.fullmatch(last_line) or not _WORKING.search(working):
        return False
    return "####" not in working and states_one_answer(completion, forms)


def is_strictly_correct(completion: str, gold: str, forms: Forms = None) -> bool:
    """Whether the last line is `#### n` and the checker finds it right."""
    last_line = strip_thinking(completion).rstrip().rpartition("\n")[2]
    return _ANSWER_LINE.fullmatch(last_line) is not None and is_correct(completion, gold, forms)


def is_leniently_correct(completion: str, gold: str, forms: Forms = None) -> bool:
    """Whether the checker finds it right, or the last number of the text, stated or not, is."""
    if is_correct(completion, gold, forms):
        return True
    number = read_last_number(completion)
    return number is not None and answers_match(number, gold)


def read_last_number(completion: str) -> str | None:
    """The last number of the text after the thinking, stated or not; None: it has none.

    As it is written: `-1,234.5`.
    """
    numbers = _NUMBER.findall(strip_thinking(completion)[-MAX_INSPECTED:])
    return numbers[-1].rstrip(",").replace("\u2212", "-") if numbers else None


MIN_RATE = 0.9


def check_readable_share(num_read: int, unreadable: Sequence[str]) -> float | None:
    """The share of known-good solutions of which the checker reads a final answer; None: of none.

    A format that it cannot read looks like a policy that is always wrong: every reward is 0 and
    nothing says why. So a share below 90 % is an error, found before any training. `unreadable`
    says of each of the others why it was rejected.
    """
    total = num_read + len(unreadable)
    if total == 0:
        return None
    rate = num_read / total
    if rate < MIN_RATE:
        raise ValueError(
            f"the answer checker reads a final answer in {rate:.1%} of {total} solutions; at "
            f"least {MIN_RATE:.0%} are needed, or rewards would be silently zero. One that it "
            f"cannot read: {unreadable[0]}. End solutions with `#### 42`, `\\boxed{{42}}`, "
            f"`<answer>42</answer>` or `The answer is 42.`, in a form that data.answer_forms lists"
        )
    return rate
