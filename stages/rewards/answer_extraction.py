r"""Find the final answer that a completion states.

A final answer is stated in one of four ways:

    #### 42        \boxed{42}        <answer>42</answer>        The answer is 42.

The last statement of a completion counts, whatever its form and whether or not its
content can be read: a policy gains nothing by listing several answers. A statement
that is empty or not closed does not count as one.
"""

import re
from collections.abc import Iterator

MAX_INSPECTED = 20_000
"""Characters at the end of a completion that are looked at."""
MAX_ANSWER = 300
"""A statement whose content is longer is not a final answer."""
MAX_STATEMENTS = 20
"""Openings looked at, from the end: keeps the work linear on text made to be slow."""

_OPENING = re.compile(r"(?<!#)####(?!#)|\\boxed(?=[ {\d])|<answer>|[Aa]nswer is\b")
_LINE = re.compile(rf"[ \t:]*([^\n<]{{1,{MAX_ANSWER}}})")
_TAGGED = re.compile(rf"([^<]{{1,{MAX_ANSWER}}})</answer>")
# Until the end of the line or sentence; the point in `3.5` ends neither.
_SENTENCE = re.compile(rf"[ \t:]*([^\n]{{1,{MAX_ANSWER}}}?)(?=\.?\s*(?:\n|$)|[.;!?]\s)")
_UNBRACED = re.compile(r" *(\d+)", re.ASCII)


def extract(completion: str) -> str | None:
    """The content of the last final-answer statement, None when there is none."""
    return next(statements(completion), None)


def statements(completion: str) -> Iterator[str]:
    """The contents of the final-answer statements, the last one first."""
    text = completion[-MAX_INSPECTED:]
    openings = list(_OPENING.finditer(text))
    for opening in reversed(openings[-MAX_STATEMENTS:]):
        content = _content(text, opening)
        if content:
            yield content


def _content(text: str, opening: re.Match[str]) -> str | None:
    match opening[0]:
        case "####":
            found = _LINE.match(text, opening.end())
        case "\\boxed":
            return _boxed(text, opening.end())
        case "<answer>":
            found = _TAGGED.match(text, opening.end())
        case _:
            found = _SENTENCE.match(text, opening.end())
    if found is None:
        return None
    content = found[1].strip()
    # `\boxed{The answer is 5}`: the brace belongs to the outer form.
    return content.rstrip("}").strip() if "{" not in content else content


def _boxed(text: str, start: int) -> str | None:
    r"""The content of `\boxed{...}`, whose braces may nest; a bare number after `\boxed`."""
    if text[start] != "{":
        found = _UNBRACED.match(text, start)
        return found[1] if found else None
    depth = 0
    for position in range(start, min(start + MAX_ANSWER, len(text))):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start + 1 : position].strip()
    return None
