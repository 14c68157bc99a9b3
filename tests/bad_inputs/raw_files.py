"""Files of problems as they come: broken, empty, huge, in other encodings."""

import gzip
import json
from pathlib import Path

from bad_inputs.case import Case, lines, whole

FILE = "data/raw/mine.jsonl"
GOOD = [
    {
        "question": f"What is {n} plus 3?",
        "answer": str(n + 3),
        "solution": f"{n} + 3 = {n + 3}\n#### {n + 3}",
    }
    for n in range(40)
]


def one(text, good=GOOD):
    """Forty good rows, and this one in the middle."""
    return whole(
        FILE,
        lines(*good[:20], *([text] if not isinstance(text, bytes) else []))
        + (text + b"\n" if isinstance(text, bytes) else b"")
        + lines(*good[20:]),
    )


def row(**changes):
    return one(
        GOOD[0]
        | {"question": "What is 1 plus 1?", "answer": "2", "solution": "1 + 1 = 2\n#### 2"}
        | changes
    )


def many(**changes):
    return whole(
        FILE, lines(*({k: v for k, v in (good | changes).items() if v is not ...} for good in GOOD))
    )


CASES = [
    Case("no file", lambda: None),
    Case("a folder", lambda: Path(FILE).mkdir(parents=True)),
    Case("an empty file", whole(FILE, b"")),
    Case("white space alone", whole(FILE, b"\n \n\t\n")),
    Case("zeros", whole(FILE, bytes(10000))),
    Case("a PNG", whole(FILE, b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 10)),
    Case(
        "HTML (a login page)", whole(FILE, b"<!DOCTYPE html>\n<html><body>Log in</body></html>\n")
    ),
    Case(
        "a Git LFS pointer",
        whole(FILE, b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"),
    ),
    Case("CSV", whole(FILE, b"question,answer,solution\nWhat is 1+1?,2,#### 2\n")),
    Case("one JSON array", whole(FILE, json.dumps(GOOD).encode())),
    Case("an indented JSON array", whole(FILE, json.dumps(GOOD, indent=1).encode())),
    Case("CRLF", whole(FILE, lines(*GOOD).replace(b"\n", b"\r\n"))),
    Case("a byte order mark", whole(FILE, b"\xef\xbb\xbf" + lines(*GOOD))),
    Case("no newline at the end", whole(FILE, lines(*GOOD).rstrip())),
    Case("old Mac line ends", whole(FILE, lines(*GOOD).replace(b"\n", b"\r"))),
    Case("UTF-16", whole(FILE, lines(*GOOD).decode().encode("utf-16"))),
    Case("UTF-16 without mark", whole(FILE, lines(*GOOD).decode().encode("utf-16-le"))),
    Case("Latin-1", one('{"question": "Für was?", "answer": "2"}'.encode("latin-1"))),
    Case("gzip named .jsonl", whole(FILE, gzip.compress(lines(*GOOD)))),
    Case("a line that is cut", one('{"question": "What is')),
    Case("a list", one("[1, 2]")),
    Case("a number", one("7")),
    Case("null", one("null")),
    Case("deep nesting", one("[" * 100000)),
    Case(
        "a key twice",
        one(
            '{"question": "What is 1 plus 1?", "answer": "3", "answer": "2", "solution": "#### 2"}'
        ),
    ),
    Case("NaN", one('{"question": "What is 1 plus 1?", "answer": NaN, "solution": "#### 2"}')),
    Case(
        "Infinity",
        one('{"question": "What is 1 plus 1?", "answer": Infinity, "solution": "#### 2"}'),
    ),
    Case(
        "NaN in a column nobody reads",
        one('{"question": "What is 1 plus 1?", "answer": "2", "solution": "#### 2", "score": NaN}'),
    ),
    Case("1e999", one('{"question": "What is 1 plus 1?", "answer": 1e999, "solution": "#### 2"}')),
    Case(
        "a number of 5000 digits",
        one(
            '{"question": "What is 1 plus 1?", "answer": ' + "9" * 5000 + ', "solution": "#### 2"}'
        ),
    ),
    Case("a line of 10 MB", row(question="x" * 10**7)),
    Case(
        "half a surrogate",
        one('{"question": "What is \\ud83d plus 1?", "answer": "2", "solution": "#### 2"}'),
    ),
    Case("a NUL in the text", row(question="What is 1\0 plus 1?")),
    Case("no column question", many(question=..., prompt="What?")),
    Case("null for the answers", many(answer=None)),
    Case("empty questions", many(question=" ")),
    Case("lists for the answers", many(answer=["2"])),
    Case("true for the answers", many(answer=True)),
    Case("answers that are words", many(answer="many")),
    Case("one id for all", many(id="7")),
    Case("one question for all", many(question="What is 1 plus 1?")),
    Case("no solutions", many(solution=...)),
    Case("solutions without an answer", many(solution="who knows")),
    Case("a split that is none", many(split="validation")),
    Case("all rows of the test", many(split="test")),
    Case("a special token in a question", row(question="What is <|end|> plus 1?")),
    Case("three rows", whole(FILE, lines(*GOOD[:3]))),
]
