"""Limits of an episode: turns, tokens, tool calls, unreadable calls, seconds and failures."""

from typing import Annotated, Literal

from pydantic import Field

from stages.config import Params

ROUNDING = 1e-6


class EpisodeLimits(Params):
    """Limits of the episodes in an environment, and the reward of a success."""

    success_reward: float = 1.0
    """Smallest sum of an episode's rewards that is a success."""
    max_turns: Annotated[int, Field(gt=0)] = 4
    """Turns of the assistant."""
    max_turn_tokens: Annotated[int, Field(gt=0)] = 64
    """Sampled tokens in a turn."""
    max_tokens: Annotated[int, Field(gt=0)] = 256
    """Tokens of the whole transcript, its prompt included."""
    max_tool_calls: Annotated[int, Field(ge=0)] = 8
    """Tool calls in an episode."""
    on_bad_call: Literal["reply", "end"] = "end"
    """Consequence of a call that cannot be parsed: an error as the tool's result, which the
    environment does not see, or the end of the episode."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 10.0
    """Seconds for one `start`, `step` or `demonstrate`."""
    max_failed_share: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Share of the episodes played together in which the environment may fail."""

    def is_success(self, reward: float) -> bool:
        """Whether an episode with this reward succeeds; ten rewards of 0.1 reach 1."""
        return reward >= self.success_reward - ROUNDING

    def max_sampled_tokens(self) -> int:
        """Most tokens that a policy can write in an episode."""
        return min(self.max_turns * self.max_turn_tokens, self.max_tokens - 1)
