"""Conversations of policies with an environment, from starts that fixed rules choose."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stages.records.conversations import Line, describe_outcome, list_lines, name_tools
from stages.records.episodes import Episode
from stages.report.episode_comparison import EnvironmentEpisodes, find_complete
from stages.report.transcripts import DRAWN, TITLE, choose_groups, draw_order, shorten


@dataclass(frozen=True, slots=True)
class Play:
    """Messages of a policy and the environment after the start."""

    policy: str
    success: bool
    outcome: str
    lines: list[Line]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Start of an environment, and the conversations of policies from it."""

    reason: str
    start: list[Line]
    plays: list[Play]


def choose_conversations(played: EnvironmentEpisodes) -> dict[str, list[Conversation]]:
    """Title -> conversations: where each policy and the first differ most, and at random.

    They begin at starts of the comparison: a failure of the environment is none of a policy.
    """
    names = list(played.policies)
    shown = [[seed.shown for seed in seeds] for seeds in played.policies.values()]
    ids = [episode.id for episode in shown[0][0]]
    success = np.array(
        [[[episode.success for episode in seed] for seed in seeds] for seeds in shown]
    )

    def show(start: int, seed: int, policies: Sequence[int], reason: str) -> Conversation:
        episodes = {names[policy]: shown[policy][seed][start] for policy in policies}
        first = next(iter(episodes.values()))
        lines = [Line("tools", ", ".join(tools))] if (tools := name_tools(first)) else []
        lines += list_lines(first)[: first.num_start_messages]
        return Conversation(
            f"{ids[start]}: {reason}seed {played.seeds[seed]}",
            shorten_lines(lines),
            [show_play(policy, episode) for policy, episode in episodes.items()],
        )

    is_complete = find_complete(played)
    order = [start for start in draw_order(ids, played.seeds[0]) if is_complete[start]]
    random = [show(start, 0, range(len(names)), "") for start in order[:DRAWN]]
    groups = choose_groups(names, success, order[DRAWN:], show, "successful")
    return {**dict(groups), TITLE: random}


def show_play(policy: str, episode: Episode) -> Play:
    """An episode from the policy's first turn on."""
    lines = list_lines(episode)[episode.num_start_messages :]
    outcome = describe_outcome(episode)
    return Play(policy, episode.success, outcome, shorten_lines(lines))


def shorten_lines(lines: Sequence[Line]) -> list[Line]:
    """Lines with shortened text."""
    return [Line(line.heading, shorten(line.text)) for line in lines]
