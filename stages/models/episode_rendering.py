"""Tokens of an episode that no policy sampled: those that its messages would be sampled as."""

from collections.abc import Sequence
from dataclasses import replace

from stages.models.turn_rendering import Message, Tools, TurnRenderer
from stages.records.episodes import Episode


def render_episode(renderer: TurnRenderer, episode: Episode) -> Episode:
    """The episode with tokens; a ValueError where a reply is not read as it was written."""
    messages, tools = list(episode.messages), episode.tools
    first = episode.num_start_messages
    ends = [i for i in range(first, len(messages)) if messages[i]["role"] == "assistant"]
    token_ids: list[int] = []
    sampled: list[tuple[int, int]] = []
    for end, following in zip(ends, [*ends[1:], None], strict=True):
        reply_ids = render_reply(renderer, messages[:end], messages[end], tools)
        sampled.append((len(token_ids), len(token_ids) + len(reply_ids)))
        token_ids += reply_ids
        if following is not None:
            new = messages[end + 1 : following]
            token_ids += renderer.render_new(messages[: end + 1], new, tools)
    prompt_ids = renderer.render_start(messages[:first], tools)
    return replace(episode, prompt_ids=prompt_ids, token_ids=token_ids, sampled=sampled)


def render_reply(
    renderer: TurnRenderer, messages: Sequence[Message], reply: Message, tools: Tools
) -> list[int]:
    """Tokens of a reply, of which the same calls of tools are read."""
    reply_ids = renderer.render_reply(messages, reply, tools)
    calls = [call["function"] for call in reply.get("tool_calls") or ()]
    read = renderer.read_reply(reply_ids, tools).get("tool_calls") or ()
    if [call["function"] for call in read] != calls:
        raise ValueError(
            f"expected a message whose calls are read as they were written, found {reply!r:.200}: "
            f"name the tools that `start` returns, and write arguments as an object"
        )
    return reply_ids
