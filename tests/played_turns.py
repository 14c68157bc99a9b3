"""Messages of an episode with tools, and their tokens as an episode has them."""

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerFast

from stages.models.turn_rendering import Message, Tools, TurnRenderer, render_episode
from stages.records.episodes import Episode

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


def call(*numbers: int, content: str = "", **more: Any) -> dict[str, Any]:
    calls = [
        {"type": "function", "id": f"call{index:05d}",
         "function": {"name": "add", "arguments": {"a": number, "b": [{"c": "}"}]}}}
        for index, number in enumerate(numbers)
    ]  # fmt: skip
    return {"role": "assistant", "content": content, **more, "tool_calls": calls}


def result(text: str, index: int = 0) -> dict[str, Any]:
    return {"role": "tool", "name": "add", "tool_call_id": f"call{index:05d}", "content": text}


def make_episode(messages: Sequence[Message], tools: Tools, num_start: int) -> Episode:
    return Episode(
        id="e", index=0, env_seed=0, messages=messages, num_start_messages=num_start, tools=tools,
        prompt_ids=[], token_ids=[], sampled=[], rewards=[1.0], reward=1.0, success=True,
        ending="done", error=None,
    )  # fmt: skip


def play(
    tokenizer: PreTrainedTokenizerFast, messages: Sequence[Message], tools: Tools
) -> tuple[list[int], list[Message]]:
    """Tokens of a conversation as an episode has them, and the assistant's messages read back."""
    renderer = TurnRenderer(tokenizer)
    places = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
    ids, read, sampled = renderer.render_start(messages[: places[0]], tools), list[Message](), []
    start = len(ids)
    for place, until in zip(places, [*places[1:], len(messages)], strict=True):
        reply = renderer.render_reply(messages[:place], messages[place], tools)
        read.append(renderer.read_reply(reply, tools))
        sampled.append((len(ids) - start, len(ids) - start + len(reply)))
        ids += reply
        if until == len(messages):  # the same tokens, of an episode that ends with this turn
            episode = make_episode(messages[: place + 1], tools, places[0])
            rendered = render_episode(renderer, episode)
            assert [*rendered.prompt_ids, *rendered.token_ids] == ids
            assert rendered.sampled == sampled
        ids += renderer.render_new(messages[: place + 1], messages[place + 1 : until], tools)
    return ids, read
