"""Environments registered in SkyRL-gym: `init(prompt)`, `step(text)`, `close()`.

Options: `name: gsm8k_multi_turn`; `extras: {max_turns: 3}` go to the environment beside
`reward_spec.ground_truth`, the answer of the row's problem (`starts: prompts`).
"""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from stages.environments.environment import Message, Reply
from stages.environments.isolated_calls import IsolatedCalls

skyrl_gym: Any = importlib.import_module("skyrl_gym")

EXECUTE = ("lcb", "searchcode", "rlm", "text2sql")
"""Environments that execute a model's code: Python, or SQL."""


class SkyRLGym:
    """Environment of SkyRL-gym, which parses tool calls in the text itself."""

    def __init__(self, name: str, extras: Mapping[str, Any] | None = None) -> None:
        if name in EXECUTE:
            raise ValueError(
                f"environment '{name}' is refused: it runs code that a model wrote. Take another."
            )
        self.name, self.extras = name, extras or {}

    def start(self, row: Mapping[str, Any], seed: int) -> tuple[Sequence[Message], None]:
        """The problem as the environment formulates it."""
        if row.get("answer") is None:
            raise ValueError("expected rows of problems with answers: set starts: prompts")
        self.call = IsolatedCalls(seed)
        extras = {**self.extras, "reward_spec": {"ground_truth": row["answer"]}}
        self.environment = self.call(skyrl_gym.make, self.name, env_config=None, extras=extras)
        prompt = [{"role": "user", "content": row["message"]}]
        messages, _ = self.call(self.environment.init, prompt)
        return messages, None

    def step(self, message: Message) -> Reply:
        """Observations, reward and end, as the environment gives them."""
        output = self.call(self.environment.step, message["content"] or "")
        messages = () if output["done"] else output["observations"]
        return Reply(messages=messages, reward=float(output["reward"]), done=output["done"])

    def close(self) -> None:
        """Close the package's environment, if it was made."""
        if hasattr(self, "environment"):
            self.call(self.environment.close)
