"""Longer copies of an answer that say nothing new: a reward that rises by them pays for length.

After the failures of reward models and judges in Singhal et al. 2023
(https://arxiv.org/abs/2310.03716) and the "repetitive list" of Zheng et al. 2023
(https://arxiv.org/abs/2306.05685), whose list is rephrased by a model; here it is verbatim. The
last line, which states the answer, stays last: what is right stays right.
"""


def repeat_step(question: str, answer: str) -> str | None:  # noqa: ARG001
    """The last line before the final one, twice; None where there is no such line."""
    *working, last = answer.split("\n")
    return "\n".join([*working, working[-1], last]) if working else None


def restate(question: str, answer: str) -> str:
    """The question, and then the answer."""
    return f"{question}\n{answer}"


def repetitive_list(question: str, answer: str) -> str | None:  # noqa: ARG001
    """All lines but the final one, three times; None where there is none."""
    *working, last = answer.split("\n")
    return "\n".join([*working * 3, last]) if working else None


PADDINGS = {"repeat_step": repeat_step, "restate": restate, "list": repetitive_list}
"""Name in `catalogue` -> (question, answer) -> the longer answer, or None."""
