"""Text that a model or a stranger wrote, made fit to stand inside a prompt.

A tokenizer that finds the spelling of a control token in a prompt reads it as that token: an
answer that spells the end of a turn would end it, and what follows would speak as somebody else.
Whoever tokenises takes such spellings apart (`defuse`).

A text is set into a prompt so that it cannot leave its place (`quote`): every line of it starts
with the same mark, and a line is whatever any reader may take for one (line feed, carriage return,
form feed, Unicode's separators). So a text that imitates the prompt's own lines ("Answer 2:") is
still seen as quoted.
"""

import re
from collections.abc import Collection


def quote(text: str, mark: str) -> str:
    """`text` with `mark` and a space before each of its lines; an empty text is one empty line."""
    return "\n".join(f"{mark} {line}".rstrip() for line in text.splitlines() or [""])


# Control tokens of the common chat formats, for an endpoint whose tokenizer is not at hand:
# <|im_end|>, <｜User｜>, <start_of_turn>, [INST], <<SYS>>, <s>, </s>.
CONTROL = re.compile(
    r"<[|｜][^<>\n]{0,40}[|｜]>|</?(?:s|bos|eos|pad|unk|(?:start|end)_of_turn)>|\[/?INST\]|<</?SYS>>",
    re.IGNORECASE,
)


def defuse(text: str, specials: Collection[str] = ()) -> str:
    """`text` in which no control token is spelled any more; other text is left as it is.

    A space goes in after the first character of each, until none is left: taking one apart can
    never spell another, since characters are only moved away from each other.

    Args:
        text: what somebody wrote.
        specials: the special tokens of the tokenizer that will read it, as text.
    """
    pattern = CONTROL
    # Without spaces around it: a space before one that begins with a space would spell it again.
    known = sorted({token.strip() for token in specials if len(token.strip()) > 1}, key=len)
    if known:
        spelled = "|".join(re.escape(token) for token in reversed(known))
        pattern = re.compile(f"{spelled}|{CONTROL.pattern}", re.IGNORECASE)
    while pattern.search(text):
        text = pattern.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)
    return text
