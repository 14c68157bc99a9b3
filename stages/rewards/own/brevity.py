"""An example of a reward and of a labeller of pairs: the shorter the answer, the better."""

from stages.records.problems import Prompt


def reward(prompt: Prompt, completion: str) -> float:
    """1 for an empty completion, 0 for one that is as long as its problem or longer."""
    return max(0.0, 1.0 - len(completion) / len(prompt.question))


def prefer(prompt: Prompt, first: str, second: str) -> float:
    """Probability that the first completion is better: 1 if it is paid more, 1/2 if as much."""
    difference = reward(prompt, first) - reward(prompt, second)
    return 0.5 + 0.5 * ((difference > 0) - (difference < 0))
