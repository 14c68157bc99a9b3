"""Episodes: conversations of a policy with an environment, as they were sampled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, get_args

Ending = Literal["done", "turns", "tokens", "tool_calls", "parse_error", "environment_error"]
"""Reason for the end of an episode: the environment; the limit of turns, tokens or tool calls; a
message that could not be parsed; an environment that raised, hung or returned no number."""
FAILED = "environment_error"
LIMITED = ("turns", "tokens", "tool_calls", "parse_error")
"""Endings by a limit or an unparsable message, not by the environment."""
FINISHED = ("done", "turns")
"""Endings of episodes whose last turn is a complete message."""
ERROR = "error"
"""Key of a message with an error: of the tool, in a tool's result; of the parser, in a message of
the assistant, which then does not reach the environment: the next message reports it to the
policy."""
EPISODES = "episodes.jsonl"
"""File of a seed's episodes in data/episodes/<name>/<seed>/."""

STARTS = "starts.jsonl"
"""File beside it with the problem of each start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StartProblem:
    """A row of `starts.jsonl`, by which starts with the same problem are recognised."""

    id: str
    """Id of the row."""
    problem: str
    """Digest of the problem (`environments/problem_digest`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """A row of `episodes.jsonl`."""

    id: str
    """Id of the row that it started from."""
    index: int
    """Index among the episodes of the same start."""
    env_seed: int
    """Seed of the environment."""
    messages: Sequence[Mapping[str, Any]]
    """All messages in order; the first `num_start_messages` are those of `start`."""
    num_start_messages: int
    tools: Sequence[Mapping[str, Any]] | None
    prompt_ids: list[int]
    """Tokens of the start, up to the assistant's first turn."""
    token_ids: list[int]
    """Tokens after the prompt: sampled ones and, between turns, those of the environment."""
    sampled: Sequence[Sequence[int]]
    """Start and end (exclusive) in `token_ids` of each sampled turn."""
    rewards: list[float]
    """Reward of each turn of the assistant."""
    reward: float
    """Their sum."""
    success: bool
    """Whether `reward` reaches the environment's `success_reward`."""
    ending: Ending
    error: str | None
    """Message of an `environment_error` or `parse_error`; else None."""

    @property
    def num_sampled_tokens(self) -> int:
        """Tokens that the policy wrote."""
        return sum(end - start for start, end in self.sampled)

    @property
    def num_tool_calls(self) -> int:
        """Calls of tools by the assistant."""
        played = self.messages[self.num_start_messages :]
        return sum(len(message.get("tool_calls") or ()) for message in played)

    @property
    def num_tool_errors(self) -> int:
        """Calls that could not be parsed, or whose tool refused them or failed."""
        return sum(ERROR in message for message in self.messages[self.num_start_messages :])

    def split_tokens(self) -> tuple[list[int], list[tuple[int, list[int]]]]:
        """Sampled tokens, and insertions, as of the function `split_tokens`."""
        return split_tokens(self.token_ids, self.sampled)


def split_tokens(
    token_ids: Sequence[int], sampled: Sequence[Sequence[int]]
) -> tuple[list[int], list[tuple[int, list[int]]]]:
    """Sampled tokens, and insertions: (number of sampled tokens before them, their ids).

    `sampled`: start and end (exclusive) in `token_ids` of each sampled turn.
    """
    sampled_ids: list[int] = []
    insertions: list[tuple[int, list[int]]] = []
    last = 0
    for start, end in sampled:
        if start > last:
            insertions.append((len(sampled_ids), [*token_ids[last:start]]))
        sampled_ids += token_ids[start:end]
        last = end
    return sampled_ids, insertions


def summarise_episodes(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Means over episodes whose environment did not fail, and shares of endings over all.

    A ValueError if all of them failed.
    """
    endings = [episode.ending for episode in episodes]
    played = [episode for episode in episodes if episode.ending != FAILED]
    if not played:
        raise ValueError(f"the environment failed in all {len(episodes)} episodes")
    return {
        "success": fmean(episode.success for episode in played),
        "reward": fmean(episode.reward for episode in played),
        "turns": fmean(len(episode.sampled) for episode in played),
        "tool_calls": fmean(episode.num_tool_calls for episode in played),
        "tool_errors": fmean(episode.num_tool_errors for episode in played),
        "tokens": fmean(episode.num_sampled_tokens for episode in played),
        "failed": endings.count(FAILED) / len(endings),
        "endings": {
            ending: endings.count(ending) / len(endings)
            for ending in get_args(Ending)
            if ending in endings
        },
    }
