r"""Final answers of a completion, in the forms of `answer_forms`.

The last statement of a completion counts, whatever its form and whether or not its content can be
parsed: a policy gains nothing by listing several answers. Text in a thinking block does not count.
A statement that is empty, not closed or longer than `MAX_ANSWER` does not count, nor does a line of
prose below a label. Boxes with only `,`, `and` or `or` between them are one list. A sentence whose
answer is only words counts only if there is no other statement: `\boxed{7}. I am sure that this
answer is correct` states 7.
"""

import re
from collections.abc import Iterator, Sequence

from stages.records.problems import THOUGHTS
from stages.rewards.answer_forms import FORMS, compile_openings

MAX_INSPECTED = 20_000
"""Number of characters at the end of a completion that are searched."""
MAX_ANSWER = 300
"""Largest number of characters of a final answer."""
MAX_STATEMENTS = 20
"""Number of openings that are tried, from the end: bounds the work on adversarial text."""

_BOX = rf"\\boxed *\{{((?:[^{{}}]|\{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}}){{1,{MAX_ANSWER}}})\}}"
_MATH = r"(?:\\[()\[\]]|[$\s])*"
_JOINT = rf"{_MATH}(?:,|(?:, ?)?(?:\\text\{{ ?)?(?:and|or)\b(?: ?\}})?){_MATH}"
_BOXES = re.compile(rf"{_BOX}(?:{_JOINT}{_BOX})+")
"""Boxes that are one statement: `\\boxed{5} and \\boxed{6}`."""
_MARKS = ("####", "\\boxed", "\\fbox", "<answer>")
"""Beginnings of statements that are not words."""
_DRESSING = re.compile(r"[\s$*_:(\[\\]*")
_CLOSING = "</answer>"
# A line also ends at a tag; `7 < 8` has none.
_TAG = r"<[/|]?[A-Za-z_]+\|?>"
_END = rf"\s*(?:\n|$|<<|{_TAG})"
_LINE = re.compile(rf"[ \t:]*(?!{_TAG})([^\n]{{1,{MAX_ANSWER}}}?)(?={_END})")
_NEXT_LINE = re.compile(rf"\s*(?:(?:\\\[|\$\$)\s*)?(?!{_TAG})([^\n]{{1,{MAX_ANSWER}}}?)(?={_END})")
# Up to the end of the sentence, or to its reason; the points in `3.5` and `Rs. 5` are no end.
_SENTENCE = re.compile(
    rf"[ \t:]*(?:(?:therefore|thus|hence|then|indeed|simply|just|exactly|equal to),? )?"
    rf"(?=[^\s:*]|\*\*?[^\s*])([^\n]{{1,{MAX_ANSWER}}}?)"
    rf"(?=[.!]?{_END}|(?<!\\)(?<!\bRs)[.!?]\s|(?<!\\);\s(?![-\d($]|[a-z] ?=)"
    rf"|,?\s(?:because|since|as|which)\s)"
)
_COLON_ENDS = re.compile(r"[ \t*_]*[:：][ \t*_]*\n")
_UNBRACED = re.compile(r" *(\d+)", re.ASCII)
_THOUGHT_BEGIN, _THOUGHT_END = (
    re.compile("|".join(map(re.escape, dict.fromkeys(markers))))
    for markers in (THOUGHTS, THOUGHTS.values())
)
_WORDS_ALONE = re.compile(r"[A-Za-z][A-Za-z ,'-]+")
_WORD = re.compile(r"(?<![\\A-Za-z])[^\W\d_]{2,}")
MAX_WORDS_BELOW = 3
"""Largest number of words of an answer in a line below a label: more are prose."""


def extract_answer(completion: str, forms: Sequence[str] | None = None) -> str | None:
    """Content of the last final-answer statement; None: there is none.

    `forms`: the forms to read (`answer_forms`); None: all named ones.
    """
    return next(answer_statements(completion, forms), None)


def strip_thinking(completion: str) -> str:
    """Text after the thinking, such as `<think> ... </think>`; empty if it has no end.

    A template may have begun it in the prompt, so an end without a beginning counts too.
    """
    *_, tail = _THOUGHT_END.split(completion)
    answer, *thoughts = _THOUGHT_BEGIN.split(tail, maxsplit=1)
    return "" if thoughts and tail == completion else answer


def answer_statements(completion: str, forms: Sequence[str] | None = None) -> Iterator[str]:
    """Contents of the final-answer statements, last first."""
    text, sentences = strip_thinking(completion)[-MAX_INSPECTED:], list[str]()
    if text.count("boxed{") > 1:
        text = _BOXES.sub(_join_boxes, text)
    pattern = compile_openings(FORMS if forms is None else tuple(forms))
    openings, has_values, inner = list(pattern.finditer(text)), False, len(text)
    for opening in reversed(openings[-MAX_STATEMENTS:]):
        is_form = opening[0] in _MARKS
        if not is_form and _DRESSING.fullmatch(text, opening.end(), inner):
            continue  # `The answer is $\\boxed{7}$` is one statement
        content = _content(text, opening)
        if content and opening[0].endswith("is") and _WORDS_ALONE.fullmatch(content):
            sentences.append(content)
        elif content:
            has_values, inner = True, opening.start()
            yield content
    if not has_values:
        yield from sentences


def _join_boxes(boxes: re.Match[str]) -> str:
    r"""`\boxed{5, 6}` for `\boxed{5} and \boxed{6}`; repeated boxes are left out."""
    contents = dict.fromkeys(match[1].strip() for match in re.finditer(_BOX, boxes[0]))
    return rf"\boxed{{{', '.join(contents)}}}"


def _content(text: str, opening: re.Match[str]) -> str | None:
    start = opening.end()
    if opening[0] in ("\\boxed", "\\fbox"):
        return _boxed(text, start)
    if opening[0] == "<answer>":
        end = text.find(_CLOSING, start, start + MAX_ANSWER + len(_CLOSING))
        return text[start:end].strip() if end >= 0 else None
    if opening[0].endswith("is") and not _COLON_ENDS.match(text, start):
        match = _SENTENCE.match(text, start)
    elif opening[0].endswith("is"):
        match = _match_below(text, text.index("\n", start))
    else:
        match = None if opening[0].endswith("\n") else _LINE.match(text, start)
        if match is None and opening[0] not in _MARKS:
            match = _match_below(text, start)
    if match is None:
        return None
    content = match[1].strip()
    # `\boxed{\text{The answer is } 5}`: the braces belong to the outer forms.
    content = content.lstrip("} ")
    while content.endswith("}") and content.count("}") > content.count("{"):
        content = content[:-1].rstrip()
    return content


def _match_below(text: str, start: int) -> re.Match[str] | None:
    """The line below a label, unless it is prose."""
    match = _NEXT_LINE.match(text, start)
    is_prose = match is not None and len(_WORD.findall(match[1])) > MAX_WORDS_BELOW
    return None if is_prose else match


def _boxed(text: str, start: int) -> str | None:
    r"""Content of `\boxed{...}`, whose braces may nest, or the bare number after `\boxed`."""
    while text.startswith(" {", start) or text.startswith("  ", start):
        start += 1
    if text[start] != "{":
        match = _UNBRACED.match(text, start)
        return match[1] if match else None
    depth = 0
    for position in range(start, min(start + MAX_ANSWER, len(text))):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start + 1 : position].strip()
    return None
