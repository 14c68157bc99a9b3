"""What is said to a judge that may think before it chooses.

Lee et al. 2023, "RLAIF", section 3.2, https://arxiv.org/abs/2309.00267: a rationale is decoded
greedily, then the options are read after it. Bai et al. 2022, "Constitutional AI", section 4.1,
https://arxiv.org/abs/2212.08073: probabilities after reasoning are over-confident, so clamp them.
"""

REQUEST = (
    "\nBefore you choose, compare the two step by step in a few sentences. "
    "Do not write your choice yet."
)
"""Ends the message of a judge that reasons."""

CUE = "\nSo the better one is number:\n"
"""Continues the judge's own reasoning, up to the option. It ends a line, for after a word the next
token may be a space alone: many tokenizers (Qwen, Llama 3) split " 1" into " " and "1"."""

VERDICT = "So which one is better? Answer with the number alone."
"""The next message to a judge that can only be talked to in turns."""
