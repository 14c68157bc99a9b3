"""An example of a reward of one's own: the shorter the answer, the better."""

from stages.records.problems import Prompt


def reward(prompt: Prompt, completion: str) -> float:
    """1 for an empty completion, 0 for one that is as long as its problem or longer."""
    return max(0.0, 1.0 - len(completion) / len(prompt.question))
