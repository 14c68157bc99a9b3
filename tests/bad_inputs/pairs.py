"""Files of people's preferences that hold something else."""

from bad_inputs.case import Case, Put, lines, whole
from bad_inputs.raw_files import FILE

PRESET = {
    "ignore": [], "licence": "MIT", "heldout_share": 0.25, "max_tokens": 40,
    "columns": {"prompt": "prompt", "chosen": "chosen", "rejected": "rejected", "probability": "p"},
    "max_bad_share": 0.1, "max_long_share": 0.1,
}  # fmt: skip
GOOD = [{"prompt": f"{n}?", "chosen": f" {n}", "rejected": " no", "p": 0.9} for n in range(20)]


def all_of(**changes: object) -> Put:
    """Pairs with these fields."""
    return whole(FILE, lines(*(good | changes for good in GOOD)))


CASES = [
    Case("pairs as they should be", all_of()),
    Case(
        "pairs with CRLF and BOM",
        whole(FILE, b"\xef\xbb\xbf" + lines(*GOOD).replace(b"\n", b"\r\n")),
    ),
    Case("no file of pairs", lambda: None),
    Case("an empty file of pairs", whole(FILE, b"")),
    Case("probabilities that are NaN", all_of(p=float("nan"))),
    Case("infinite probabilities", all_of(p=float("-inf"))),
    Case("a probability above 1", all_of(p=1.5)),
    Case("probabilities as words", all_of(p="likely")),
    Case("probabilities of a half", all_of(p=0.5)),
    Case("answers that are equal", all_of(chosen=" no")),
    Case("answers that are empty", all_of(rejected=" ")),
    Case("answers that are lists", all_of(chosen=["4"])),
    Case("answers that are too long", all_of(chosen=" x" * 100)),
    Case("prompts that are null", all_of(prompt=None)),
    Case("a prompt that is one for all", all_of(prompt="What?")),
    Case("conversations in place of text", all_of(prompt=[{"role": "user", "content": "Hi"}])),
    Case("columns of another name", whole(FILE, lines(*({"x": 1} for _ in GOOD)))),
]
