"""Limits of an episode: of turns, tokens, calls of tools, seconds and failures."""

from pydantic import Field

from stages.config import Params


class EpisodeLimits(Params):
    """Limits of the episodes that are played in an environment, and what a success is."""

    success_reward: float = 1.0
    """An episode succeeds if the sum of its rewards is at least this."""
    max_turns: int = Field(4, gt=0)
    """Turns of the assistant."""
    max_turn_tokens: int = Field(64, gt=0)
    """Sampled tokens of a turn."""
    max_tokens: int = Field(256, gt=0)
    """Tokens of the whole transcript, its prompt included."""
    max_tool_calls: int = Field(8, ge=0)
    """Calls of tools in an episode."""
    timeout_seconds: float = Field(10.0, gt=0)
    """For one `start` or `step`."""
    max_failed_share: float = Field(0.05, ge=0, lt=1)
    """Share of a step's episodes that may end as the environment fails."""

    def max_sampled_tokens(self) -> int:
        """Most tokens that a policy can write in an episode."""
        return min(self.max_turns * self.max_turn_tokens, self.max_tokens - 1)
