"""Example of a reward and of a labeller of pairs: the shorter the answer, the better."""

from stages.records.problems import Prompt


def reward(prompt: Prompt, completion: str) -> float:
    """1 for an empty completion, 0 for a completion at least as long as its problem."""
    return max(0.0, 1.0 - len(completion) / len(prompt.question))


def prefer(prompt: Prompt, first: str, second: str) -> float:
    """Probability that the first completion is better: 1 if its reward is higher, 1/2 if equal."""
    difference = reward(prompt, first) - reward(prompt, second)
    return 0.5 + 0.5 * ((difference > 0) - (difference < 0))
