"""Episodes: conversations of a policy with an environment, as they were sampled."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Ending = Literal["done", "turns", "tokens", "tool_calls", "parse_error", "environment_error"]
"""Why an episode ended: by the environment; at the limit of turns, tokens or tool calls; a message
that could not be read; or an environment that raised, hung or paid no number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """A row of `episodes.jsonl`."""

    id: str
    """Of the row that it started from."""
    index: int
    """Among the episodes of the same start."""
    env_seed: int
    """The seed that the environment was started with."""
    messages: Sequence[Mapping[str, Any]]
    """All messages in order; the first `num_start_messages` are those of `start`."""
    num_start_messages: int
    tools: Sequence[Mapping[str, Any]] | None
    prompt_ids: list[int]
    """Tokens of the start, up to the assistant's first turn."""
    token_ids: list[int]
    """Tokens after the prompt: sampled ones and, between turns, those of the environment."""
    sampled: list[tuple[int, int]]
    """Start and end (exclusive) in `token_ids` of each sampled turn."""
    rewards: list[float]
    """Reward of each turn of the assistant."""
    reward: float
    """Their sum."""
    success: bool
    """Whether `reward` reaches the environment's `success_reward`."""
    ending: Ending
    error: str | None
    """What the environment raised or did, of `environment_error` and `parse_error`; else None."""


def split_exchanges(
    episode: Episode,
) -> Iterator[tuple[Mapping[str, Any] | None, list[Mapping[str, Any]]]]:
    """Each message of the assistant with the answer to it; first None with the start."""
    message, answer = None, list(episode.messages[: episode.num_start_messages])
    for later in episode.messages[episode.num_start_messages :]:
        if later["role"] == "assistant":
            yield message, answer
            message, answer = later, []
        else:
            answer.append(later)
    yield message, answer


def count_turns(episode: Episode) -> int:
    """Messages of the assistant after the start."""
    return sum(message is not None for message, _ in split_exchanges(episode))


def count_tool_calls(episode: Episode) -> int:
    """Calls in the messages of the assistant after the start."""
    messages = (message for message, _ in split_exchanges(episode) if message is not None)
    return sum(len(message.get("tool_calls") or ()) for message in messages)
