"""Uninformative reward, for a control: a coin whose toss depends only on problem and completion."""

import hashlib

from stages.records.problems import Prompt


def reward(prompt: Prompt, completion: str) -> float:
    """0 or 1: the first bit of a digest of the problem's id and the text.

    The same for the same text, and unrelated to its answer, format and length.
    """
    return float(hashlib.sha256(f"{prompt.id}\n{completion}".encode()).digest()[0] >> 7)
