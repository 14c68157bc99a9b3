"""The token game of `tiny_rollouts` in several turns: messages are numbers, one token each."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tiny_checkpoints import EOS
from tiny_rollouts import decode, even_share, make_prompts

from stages.environments.environment import Message, Reply
from stages.environments.limits import EpisodeLimits
from stages.loops.episodes import Player
from stages.models.turn_rendering import TurnRenderer

NEWLINE, CALL = 2, 3
"""What stands after a turn; a token that makes a message a call of a tool."""
ENDS = frozenset(range(EOS, 16))
"""Tokens that end a turn, so many that a random policy's turns end."""


def make_rows(number: int) -> list[dict[str, Any]]:
    """Rows whose episodes start from the prompts of the game."""
    return [
        {"id": prompt.id, "numbers": decode(prompt.prompt_ids)} for prompt in make_prompts(number)
    ]


class NumberRenderer(TurnRenderer):
    """A message is its numbers; after a finished turn stands `NEWLINE`, before each new message.

    A message that begins with 31 cannot be read; each `CALL` in it calls a tool.
    """

    def __init__(self) -> None:
        """It needs no tokenizer."""

    def render_start(self, messages: Sequence[Message], tools: Any) -> list[int]:
        return _read_numbers(messages)

    def render_new(
        self, messages: Sequence[Message], new: Sequence[Message], tools: Any
    ) -> list[int]:
        assert messages[-1]["role"] == "assistant"
        return [token for message in new for token in (NEWLINE, *_read_numbers([message]))]

    def complete_turn(self, token_ids: Sequence[int]) -> list[int]:
        return []

    def read_reply(self, token_ids: Sequence[int], tools: Any) -> Message:
        assert token_ids[-1] in ENDS
        if tools is not None and token_ids[0] == 31:
            raise ValueError("31")
        calls = [{"function": {"name": "count"}} for token in token_ids if token == CALL]
        message = {"role": "assistant", "content": decode(token_ids)}
        return message | ({"tool_calls": calls} if tools is not None and calls else {})

    def check(self, tools: Any) -> None:
        pass


def _read_numbers(messages: Sequence[Message]) -> list[int]:
    texts = [message["content"].removeprefix("error: ") for message in messages]
    return [int(number) for text in texts for number in text.split()]


class EvenGame:
    """Each turn pays its share of even tokens; the answer is a number that no other turn has."""

    def __init__(self, num_turns: int = 3) -> None:
        self.num_turns = num_turns
        self.turn = 0

    def start(self, row: Mapping[str, Any], seed: int) -> tuple[list[Message], None]:
        self.seed = seed
        return [{"role": "user", "content": row["numbers"]}], None

    def step(self, message: Message) -> Reply:
        self.turn += 1
        (share,) = even_share([message["content"]])
        if self.turn == self.num_turns:
            return Reply(reward=share, done=True)
        content = f"{8 + (self.seed + self.turn) % 16} {10 + self.turn}"
        return Reply(messages=[{"role": "user", "content": content}], reward=share / self.turn)


class ToolGame(EvenGame):
    """The game with a tool."""

    def start(self, row: Mapping[str, Any], seed: int) -> tuple[list[Message], Any]:
        messages, _ = super().start(row, seed)
        return messages, [{"type": "function", "function": {"name": "count"}}]


def make_player(factory: Callable[[], Any] = EvenGame, **limits: Any) -> Player:
    sizes = {"max_turns": 3, "max_turn_tokens": 4, "max_tokens": 60, "success_reward": 1.5}
    return Player(
        factory=factory, renderer=NumberRenderer(), limits=EpisodeLimits(**(sizes | limits))
    )
