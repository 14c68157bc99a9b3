r"""Answer checker: whether a completion's final answer is the gold answer, and has the format.

Gold answer and answer are parsed to values (`answer_value`), which `match_values` compares by kind:
numbers exactly, with their units; words as words; lists and sets (`1, 2`) without an order, tuples
and intervals in their order, element by element; `x = 1, y = 2` by names. Only mathematics other
than numbers (`\sqrt{2}`, `x^2 + 1`) goes to math-verify, in a separate process with hard limits
(`symbolic_equality`). No text of a model is evaluated here. Against a gold number, unevaluated
arithmetic (`48 + 24`) is wrong: the working is not the answer. Between a name and its value it is
left out (`x = 2 + 5 = 7`). Roots and powers (`\sqrt{16}`, `10^3`) go to math-verify. Nothing is
rounded: 3.14 never equals pi, since a problem that asks for two decimals has the gold answer 3.14.

A policy that only learned to write `#### n` gains much by the `strict` metric and nothing by the
`lenient` one: side by side they tell a gain in format from a gain in skill. They follow the strict
and flexible metrics of GSM8K in the Language Model Evaluation Harness (Gao et al. 2024,
https://doi.org/10.5281/zenodo.12608602), of which each can be right where the other is wrong;
departure: an answer that is right by our strict metric is also right by the lenient one.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice, product
from string import ascii_letters

from stages.records.problems import Prompt
from stages.rewards import symbolic_equality
from stages.rewards.answer_value import (
    OR,
    PAIR,
    Choice,
    Either,
    Elements,
    Expression,
    Family,
    Named,
    Notation,
    Number,
    Value,
    Words,
    compact,
    complete,
    has_parts,
    is_operation,
    read_value,
    spell,
    split_unit_letter,
    to_algebra,
    to_text,
    write_value,
)
from stages.rewards.final_answer import (
    MAX_INSPECTED,
    answer_statements,
    extract_answer,
    strip_thinking,
)
from stages.rewards.number_parsing import has_ambiguous_commas
from stages.rewards.units import read_unit, unit_name, units_differ

Forms = Sequence[str] | None
"""Forms of statements that count (`answer_forms`); None: all named forms."""


def is_correct(completion: str, gold: str, forms: Forms = None) -> bool:
    """Whether the last final answer that `completion` states equals the gold answer."""
    answer = extract_answer(completion, forms)
    return answer is not None and answers_match(answer, gold)


def solves_problem(prompt: Prompt, completion: str) -> bool:
    """`is_correct` for a completion of `prompt`; a ValueError if that has no gold answer."""
    return is_correct(prompt.whole(completion), prompt.gold, prompt.answer_forms)


def answers_match(answer: str, gold: str) -> bool:
    r"""Whether two final answers are the same value.

    A gold answer `a or b` is matched by either, but `x<1 or x>2` is a union, and `x=1 or x=2` needs
    both. `(B) 24` is matched by the letter and by the value. Numbers with different known units
    differ. In `2k\pi, k \in Z` the name of the variable does not count.
    """
    value = _read_gold_value(gold)
    if value is None:
        return False
    return spell(answer) == spell(gold) or match_values(read_value(answer), value)


def match_values(answer: Value | None, gold: Value | None) -> bool:
    """Whether the value of an answer equals that of a gold answer; None: no value."""
    match answer, gold:
        case Either(values), _:
            is_equal = match_values(Elements("", values), gold)
        case _, Either(golds):
            every = match_values(answer, Elements("", golds))
            is_equal = every or any(match_values(answer, each) for each in golds)
        case Choice(letters), Choice(gold_letters):
            is_equal = letters == gold_letters
        case Choice(_, value), _:
            is_equal = match_values(value, gold)
        case _, Choice(_, value):
            is_equal = match_values(answer, value)
        case Family(value, domain), Family(gold_value, gold_domain):
            is_equal = domain == gold_domain and match_values(value, gold_value)
        case _:
            is_equal = _match_single(answer, gold)
    return is_equal


def _match_single(answer: Value | None, gold: Value | None) -> bool:
    """Whether values match that are neither alternatives nor choices."""
    match answer, gold:
        case Named(), Named():
            is_equal = _match_named(answer, gold)
        case ((Number() | Named() | Expression()), (Number() | Named() | Expression())) if (
            _is_equation(answer, gold)
        ):
            is_equal = _match_equations(answer, gold)
        case Named(), _:
            pair = _leave_out_names(answer, gold, is_gold=False)
            is_equal = pair is not None and match_values(*pair)
        case _, Named():
            pair = _leave_out_names(gold, answer, is_gold=True)
            is_equal = pair is not None and match_values(*pair[::-1])
        case Elements(brackets), Elements(gold_brackets):
            is_equal = brackets == gold_brackets and _match_elements(answer, gold)
        case Number(number, unit), Number(gold_number, gold_unit):
            is_equal = number == gold_number and not units_differ(unit, gold_unit)
        case (Words(text), Words(gold_text)) | (Notation(text), Notation(gold_text)):
            is_equal = text == gold_text
        case ((Number() | Expression()), (Number() | Expression())):
            is_equal = _match_expressions(answer, gold)
        case _:
            is_equal = False
    return is_equal


def _match_named(answer: Named, gold: Named) -> bool:
    """Whether names and their values are the same, in any order."""
    if len(gold.names) == 1 or len(answer.names) == 1:
        return answer.names == gold.names and match_values(answer.value, gold.value)
    (names, values), (gold_names, golds) = answer.by_name(), gold.by_name()
    return names == gold_names and all(map(match_values, values, golds))


_NUMBERED = re.compile(r"[a-z]_\d(?:,[a-z]_\d)+")


def _leave_out_names(
    named: Named, other: Value | None, *, is_gold: bool
) -> tuple[Value, Value | None] | None:
    """A named value without its names, and another value, to compare; None: they differ.

    The other value has no names or the same: `x = 1 or x = 6` and `x = 1 or 6`, but not
    `x = 1 or w = 6`. `x = 1, y = 2` is the pair (1, 2), not a list. `x_1 = 1, x_2 = 2` is a list,
    in the order of the gold answer, and so is `AB = 1, CD = 2`, in the order as written.
    """
    if len(named.names) == 1 or not isinstance(named.value, Elements) or named.value.brackets:
        return (named.value, other) if _has_no_other_name(other, named.names) else None
    if not isinstance(other, Elements) or other.brackets not in ("", "()"):
        return None
    names, values = named.by_name()
    if all(len(name) == 1 for name in names):
        is_pair = other.brackets == "()" and "".join(names) in ascii_letters
        return (Elements("()", values), other) if is_pair else None
    if _NUMBERED.fullmatch(",".join(names)) and not is_gold and not other.brackets:
        return Elements("", values), other
    return named.value._replace(brackets="()"), other._replace(brackets="()")


def _has_no_other_name(value: Value | None, names: tuple[str, ...]) -> bool:
    """Whether no part of a list has other names."""
    parts = value.elements if isinstance(value, Elements) else ()
    return all(part.names == names for part in parts if isinstance(part, Named))


def _match_elements(answer: Elements, gold: Elements) -> bool:
    """Whether elements match: in their order, or for a list or set in any order."""
    if len(answer.elements) != len(gold.elements):
        return False
    if gold.brackets:
        return all(map(match_values, answer.elements, gold.elements))
    # words that both have, after other numbers: `5 boys, 3 girls`, the other way
    same_words = [
        (_words_of(element), match_values(element, each))
        for element, each in product(answer.elements, gold.elements)
        if "" != _words_of(element) == _words_of(each)
    ]
    if {words for words, _ in same_words} != {words for words, is_equal in same_words if is_equal}:
        return False
    unmatched = list(gold.elements)
    for element in answer.elements:
        matches = (at for at, each in enumerate(unmatched) if match_values(element, each))
        if (place := next(matches, None)) is None:
            return False
        del unmatched[place]
    return True


def _words_of(value: Value) -> str:
    """The words after a number of a list."""
    words = value.unit.words if isinstance(value, Number) else ()
    return " ".join(words).lower().removesuffix("s")


def _is_equation(*values: Value) -> bool:
    """Whether one of the values is an equation that does not name a value: `2x = 6`."""
    return any(isinstance(value, Expression) and "=" in value.text for value in values)


def _match_equations(answer: Value, gold: Value) -> bool:
    r"""Whether two values match, of which at least one is an equation.

    `x = 3` is the solution of the equation `2x = 6`, and does not match it. A gold answer
    `\cos A = 1/2`, without an operation on the left side, is matched by its right side.
    """
    match answer, gold:
        case Named((name,), _), Expression(text) if name not in compact(text):
            return False
        case Expression(), Number() | Named(_, Number() | Elements()):
            return False
        case _, Expression(equation) if not isinstance(answer, Named) and not _is_equation(answer):
            left, _, right = equation.partition("=")
            is_name = re.search(r"[A-Za-z]", left) is not None and not is_operation(left)
            return is_name and match_values(answer, read_value(right))
        case _, Expression(text) if "=" not in text:
            return False
    texts = complete((to_text(answer), to_text(gold)))
    return texts is not None and (len({*map(compact, texts)}) == 1 or _is_equal(*texts))


_COMPUTED = re.compile(r"\\|\^|\*\*|sqrt|pi|√|π")
"""Marks in an expression that may equal a number; without them it is working, not the answer."""
_ORDER = re.compile(r"[<>]|\\[lgn]e(?![A-Za-z])")
_BASE = re.compile(r"\d_")
_CONSTANT = re.compile(r"(?<=\+) ?[Cc]$")
"""Constant of integration, in either case."""


def _match_expressions(answer: Number | Expression, gold: Number | Expression) -> bool:
    """Whether values match as text or by algebra; a number with a base (`52_8`) only as text."""
    text, gold_text = str(to_text(answer)), str(to_text(gold))
    if isinstance(gold, Number) and not _COMPUTED.search(text):
        return False
    if compact(text) == compact(gold_text):
        return not units_differ(answer.unit, gold.unit)
    if _BASE.search(text + gold_text) or bool(_ORDER.search(text)) != bool(
        _ORDER.search(gold_text)
    ):
        return False
    text, letter = split_unit_letter(text, gold_text)
    unit = read_unit(f"1{letter}") if letter else answer.unit
    return not units_differ(unit, gold.unit) and _is_equal(text, gold_text)


def _is_equal(answer: str, gold: str) -> bool:
    """Whether two expressions are equal by algebra."""
    of_answer, of_gold = to_algebra(answer), to_algebra(gold)
    if of_answer is None or of_gold is None or has_parts(answer) or has_parts(gold):
        return False
    if _CONSTANT.search(of_gold):
        of_answer = _CONSTANT.sub(of_gold[-1], of_answer)
    return symbolic_equality.are_equal(of_answer, of_gold)


_BRACKETED = re.compile(r"\[([^\[\],]+)\]|\\\{((?!.*\\mid)[^{},|:]+)\\\}")
_COMMENT = re.compile(r"(.*\d[^()]*?)(?: |(?<=\d))\(([ A-Za-z/²³]+)\)", re.DOTALL)
_FUNCTION = re.compile(r"(?:sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt)(?:[_^]\S+)?$")
_LOST_UNIT = re.compile(r"(?<=\d)(?:/?\\(?:mathrm|text) ?\{[~ ]*\}(?:\^\{?\d\}?)?)+(?=$|[,;])")
"""Remains of a unit in Numina: `24\\mathrm{~}^2`, `4\\mathrm{~}/\\mathrm{}`."""


def tidy_gold(gold: str) -> str:
    r"""A gold answer in the form that is parsed.

    `[x]` and `\{x\}` become x; a unit or remark in brackets after a number is left out; digits of
    other scripts become ASCII.
    """
    text = gold.strip()
    if not text.isascii():
        text = "".join(
            str(unicodedata.decimal(character)) if character.isdecimal() else character
            for character in text
        )
    if ";" in text:
        return "; ".join(map(tidy_gold, text.split(";")))
    if match := _BRACKETED.fullmatch(text):
        text = (match[1] or match[2]).strip()
    if (match := _COMMENT.fullmatch(text)) and _is_remark(*match.groups()):
        text = match[1].strip()
    return _LOST_UNIT.sub("", text)


def _is_remark(text: str, bracket: str) -> bool:
    r"""Whether letters in a bracket are a unit or words, and no factor or argument: `2\sin (x)`."""
    words = re.findall("[A-Za-z]+", bracket)
    are_words = any(
        unit_name(word) or word in ("am", "pm") or (len(word) > 2 and not is_operation(word))
        for word in words
    )
    return are_words and _FUNCTION.search(text) is None


def read_gold(text: str) -> str | None:
    r"""The final answer in a source's answer field: its whole text, or the one it states last.

    `1,234` is the answer; in `half of 8 is 4 #### 4` it is `4`; None: neither can be parsed. A few
    words or a letter are an answer (`yes`, `C`); so are `2:3`, which only `2:3` equals, other
    notation (`\overline{AB}`), and `a or b`, either of which is right. If a comma may divide one
    number or several (`1,23,456`), there is no answer.
    """
    text = text.strip()
    stated = extract_answer(text)
    if has_ambiguous_commas(text if stated is None else stated):
        return None
    if stated is not None:
        value = read_value(stated)
        return stated if isinstance(value, Choice) or _write(value, stated) else None
    return text if _read_gold_value(text) is not None else None


@lru_cache(maxsize=65536)
def _read_gold_value(gold: str) -> Value | None:
    """The value of a gold answer; None: it is not an answer."""
    text = tidy_gold(gold)
    value = read_value(text)
    return value if _is_gold(value, text) else None


_NOTATION = re.compile(
    r"\\[A-Za-z]|[\^'_≠]|\d ?:|\d([-/])\d+\1\d|\d ?[a-z]+ \d|[A-Za-z]{3}\.? \d", re.ASCII
)
_COMMAND = re.compile(r"\\[A-Za-z]+(?:\{[a-z]+\})?")
_LONG_WORD = re.compile(r"[A-Za-z]{2,}")
_OTHER_WORD = re.compile(
    r"[ap]m|at|st|nd|rd|th|(?:jan|feb|mar|apr|may|june?|july?|aug|sep|oct|nov|dec)[a-z]*",
    re.IGNORECASE,
)
"""Word of a date or time."""


def _is_gold(value: Value | None, text: str) -> bool:
    r"""Whether a value is an answer, also one that only the same text equals: `\overline{AB}`.

    Such a text has a mark of mathematics, a date, a time or several quantities, and no words except
    units, months and points.
    """
    match value:
        case Either(values):
            return all(map(_is_gold, values, OR.split(text)))
        case Named(_, inner) if not isinstance(inner, Elements):
            return _is_gold(inner, text)
        case Choice() | Words():
            return True
        case None:
            return False
    if write_value(value) is not None:
        return True
    words = _LONG_WORD.findall(_COMMAND.sub(" ", text))
    return _NOTATION.search(text) is not None and all(
        unit_name(word) or word.isupper() or _OTHER_WORD.fullmatch(word) for word in words
    )


def states_an_answer(completion: str, gold: str = "", forms: Forms = None) -> bool:
    """Whether `completion` states final answers, of which the last can be parsed.

    If the gold answer is a word or a choice, so may the final answer be.
    """
    answer = extract_answer(completion, forms)
    return answer is not None and read_answer(answer, gold) is not None


def states_one_answer(completion: str, forms: Forms = None) -> bool:
    """Whether `completion` states exactly one final answer, which can be parsed."""
    stated = list(islice(answer_statements(completion, forms), 2))
    return len(stated) == 1 and read_answer(stated[0]) is not None


_DRESSED = re.compile(r"\\(?:text|mbox|mathrm|textbf|textit|emptyset|varnothing|mathbb)\b")


def read_answer(answer: str, gold: str = "") -> str | None:
    r"""Text of an answer's value (`write_value`), or its words if they are marked or expected.

    `\text{even}` is marked; words, or a choice, are expected if the gold answer has that form.
    If the gold answer is compared as text (`3:30`, `May 5`), so is an answer in notation: its own.
    Otherwise None: a policy that says `#### apples` has stated no number. Two ways to write a root
    (`\sqrt{8}`, `2\sqrt{2}`) are two texts.
    """
    value, of_gold = read_value(answer), read_value(tidy_gold(gold)) if gold else None
    if isinstance(of_gold, Choice):
        return value.letters if isinstance(value, Choice) else None
    text = _write(value, answer, has_words=of_gold is not None and write_value(of_gold) is None)
    if text or isinstance(value, Words) or not gold or _write(of_gold, gold, has_words=True):
        return text
    return spell(answer) if _is_gold(value, answer) else None


def _write(value: Value | None, answer: str, *, has_words: bool = False) -> str | None:
    match value:
        case Words(text) if has_words or _DRESSED.search(answer):
            return text
        case Choice(letters, None) if has_words or _DRESSED.search(answer):
            return letters
        case Choice(_, inner):
            return write_value(inner)
        case Elements() if PAIR.fullmatch(answer):
            return None
    return write_value(value)


_ANSWER_LINE = re.compile(r"####[ \t]*[^\n<]+")
_WORKING = re.compile(r"[A-Za-z0-9]")
_NUMBER = re.compile(r"(?:(?<![\w)\]}])[-\u2212])?(?:\d[\d,]*(?:\.\d+)?|(?<![\w.])\.\d+)")
"""The sign of `12-5` is an operation."""


def has_format(completion: str, forms: Forms = None) -> bool:
    """Whether `completion` is working followed by exactly one readable final answer `#### n`."""
    working, _, last_line = strip_thinking(completion).rstrip().rpartition("\n")
    if not _ANSWER_LINE.fullmatch(last_line) or not _WORKING.search(working):
        return False
    return "####" not in working and states_one_answer(completion, forms)


def is_strictly_correct(completion: str, gold: str, forms: Forms = None) -> bool:
    """Whether the last line is `#### n` and the answer is right."""
    last_line = strip_thinking(completion).rstrip().rpartition("\n")[2]
    return _ANSWER_LINE.fullmatch(last_line) is not None and is_correct(completion, gold, forms)


def is_right_at_first(completion: str, gold: str, forms: Forms = None) -> bool:
    """Whether the first of several final answers is right, and the last, which counts, is not."""
    stated = list(answer_statements(completion, forms))
    return bool(stated) and answers_match(stated[-1], gold) and not answers_match(stated[0], gold)


def is_leniently_correct(completion: str, gold: str, forms: Forms = None) -> bool:
    """Whether the final answer, or the last number of the text, stated or not, is right."""
    if is_correct(completion, gold, forms):
        return True
    number = read_last_number(completion)
    return number is not None and answers_match(number, gold)


def read_last_number(completion: str) -> str | None:
    """The last number in the text after the thinking, stated or not, as written (`-1,234.5`).

    None: there is no number.
    """
    numbers = _NUMBER.findall(strip_thinking(completion)[-MAX_INSPECTED:])
    return numbers[-1].rstrip(",").replace("\u2212", "-") if numbers else None


MIN_RATE = 0.9


def check_readable_share(num_read: int, unreadable: Sequence[str]) -> float | None:
    """The share of gold solutions with a final answer that can be parsed; None: no solutions.

    An unknown format looks like a policy that is always wrong: every reward is 0, without an error.
    So a share below 90 % raises a ValueError, before any training. `unreadable`: the reason of each
    rejected solution.
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
            f"`<answer>42</answer>` or `The answer is 42.`, in a form of data.answer_forms. Where "
            f"nothing imitates solutions, set data.source.ignore: [<their column>]"
        )
    return rate
