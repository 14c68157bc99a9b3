"""How much of a completion it has said before."""

from typing import Literal

from pydantic import Field

from stages.algorithms.repetition import repeated_share
from stages.params import Params
from stages.rewards.answered import Answered
from stages.rewards.available import Available
from stages.rewards.judged import Judged


class NgramRepetition(Params):
    """value = - (1 - different n-grams / n-grams), from -1 to 0.

    Yeo et al., "Demystifying Long Chain-of-Thought Reasoning in LLMs" (2025), appendix,
    https://arxiv.org/abs/2502.03373, penalise each token of a repeated n-gram. Departure: one
    value for the completion, over tokens and not words, so that it works in every script.
    """

    kind: Literal["ngram_repetition"]
    n: int = Field(gt=0)
    """Tokens in an n-gram."""

    def __call__(self, answered: Answered, available: Available) -> Judged:  # noqa: ARG002
        """One value for each completion."""
        shares = [repeated_share(sample.token_ids, self.n) for sample in answered.samples]
        return Judged(totals=[-share for share in shares])
