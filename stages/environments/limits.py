"""Limits of an episode: of turns, tokens, calls of tools and wrong ones, seconds and failures."""

from typing import Annotated, Literal

from pydantic import Field

from stages.config import Params

ROUNDING = 1e-6


class EpisodeLimits(Params):
    """Limits of the episodes that are played in an environment, and what a success is."""

    success_reward: float = 1.0
    """An episode succeeds if the sum of its rewards is at least this."""
    max_turns: Annotated[int, Field(gt=0)] = 4
    """Turns of the assistant."""
    max_turn_tokens: Annotated[int, Field(gt=0)] = 64
    """Sampled tokens of a turn."""
    max_tokens: Annotated[int, Field(gt=0)] = 256
    """Tokens of the whole transcript, its prompt included."""
    max_tool_calls: Annotated[int, Field(ge=0)] = 8
    """Calls of tools in an episode."""
    on_bad_call: Literal["reply", "end"] = "end"
    """What follows a call that cannot be read: an error as the tool's result, which the environment
    does not see, or the end of the episode."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 10.0
    """For one `start`, `step` or `demonstrate`."""
    max_failed_share: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Share of the episodes played together in which the environment may fail."""

    def is_success(self, reward: float) -> bool:
        """Whether an episode with this reward succeeds; ten rewards of 0.1 reach 1."""
        return reward >= self.success_reward - ROUNDING

    def max_sampled_tokens(self) -> int:
        """Most tokens that a policy can write in an episode."""
        return min(self.max_turns * self.max_turn_tokens, self.max_tokens - 1)
