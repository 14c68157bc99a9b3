"""What reinforcement learning is given: a policy that can sample, and a task that can judge."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transformers import PreTrainedModel

from stages.loops.rollouts import Rollouts
from stages.records.problems import Prompt
from stages.rewards.judged import Judged
from stages.sampler import Sampler


@dataclass(frozen=True, kw_only=True, slots=True)
class Actor:
    """The policy that is trained, and what sampling from it and measuring it takes."""

    policy: PreTrainedModel
    """Changed in place."""
    reference: PreTrainedModel | None
    """Frozen, usually the policy at its start; None: no divergence is measured or penalised."""
    sampler: Sampler
    """Samples from `policy` as its weights are at the time."""
    decode: Callable[[Sequence[int]], str]
    """Token ids to text."""
    pad_id: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Prompts, and what an answer is worth."""

    prompts: Sequence[Prompt]
    reward: Callable[[Rollouts], Judged]
    """What is maximised, for each completion."""
    correct: Callable[[Rollouts], list[bool]] | None
    """The true verdict: logged; learned from only where the preset says so. None: there is none."""

    def verdicts(self, rollouts: Rollouts) -> list[bool]:
        """The verdict on each completion; where there is none, it is never right."""
        return [False] * len(rollouts.samples) if self.correct is None else self.correct(rollouts)
