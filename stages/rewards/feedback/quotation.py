"""Text that others wrote, set into a prompt so that it cannot leave its place.

Every line of it starts with the same mark, and a line is whatever any reader may take for one
(line feed, carriage return, form feed, Unicode's separators). So a text that imitates the
prompt's own lines ("Answer 2:") is still seen as quoted. Text that spells one of a tokenizer's
special tokens is a matter for whoever tokenises it (`models/prompting`).
"""


def quote(text: str, mark: str) -> str:
    """`text` with `mark` and a space before each of its lines; an empty text is one empty line."""
    return "\n".join(f"{mark} {line}".rstrip() for line in text.splitlines() or [""])
