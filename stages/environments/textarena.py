"""Environment of TextArena's single-player games: `reset`, observations, `step`, `close`.

Options: `name: GuessTheNumber-v0`, any name that TextArena has registered; other keys go to the
game. The game is drawn from the episode's seed.
"""

import importlib
from collections.abc import Mapping
from typing import Any

from stages.environments.environment import Message, Reply
from stages.environments.isolated_calls import IsolatedCalls

textarena: Any = importlib.import_module("textarena")


class TextArena:
    """Game: its prompt, and after each move the new observations. The reward comes at the end."""

    def __init__(self, name: str, **options: Any) -> None:
        if name not in textarena.envs.registration.ENV_REGISTRY:
            raise ValueError(
                f"expected a game that TextArena has registered, found '{name}': set the preset's "
                f"option `name`"
            )
        self.name, self.options = name, options

    def start(self, row: Mapping[str, Any], seed: int) -> tuple[list[Message], None]:  # noqa: ARG002
        """The prompt of a game, drawn from the seed."""
        self.call = IsolatedCalls(seed)
        self.game = self.call(textarena.make, self.name, **self.options)
        try:
            self.call(self.game.reset, num_players=1, seed=seed)
        except AssertionError as error:
            raise ValueError(
                f"expected a game of one player, found '{self.name}': {error}"
            ) from error
        return [self._observe()], None

    def step(self, message: Message) -> Reply:
        """The game's answer to a move."""
        done, _ = self.call(self.game.step, message["content"] or "")
        if not done:
            return Reply(messages=[self._observe()])
        rewards, _ = self.call(self.game.close)
        return Reply(reward=float(rewards[0]), done=True)

    def _observe(self) -> Message:
        """Observations since the last call; TextArena's wrappers would repeat the whole game."""
        action = textarena.ObservationType.PLAYER_ACTION
        events = self.call(self.game.state.get_current_player_observation)
        text = "\n".join(event for _, event, kind in events if kind != action)
        return {"role": "user", "content": text.strip()}
