"""Problems of reasoning-gym in one turn, scored by the package.

Options: `families: {chain_sum: {min_terms: 2}}`; `partial_credit: true` pays the package's score as
it is, where else only a full score is paid, since many families pay a part for any text that
contains the answer.
"""

import re
from collections.abc import Mapping
from typing import Any

from stages.environments.environment import Message, Reply
from stages.rewards.final_answer import extract_answer, strip_thinking
from stages.sources.reasoning_gym import Families, check_scored_families, open_items

SEED = 0
"""Of all items: rows have different ones by their index."""
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class ReasoningGym:
    """A question, and the score of the answer: `<answer>..</answer>`, `#### ..`, or all text."""

    def __init__(self, families: Families, *, partial_credit: bool = False) -> None:
        self.families = check_scored_families(families)
        self.partial_credit = partial_credit

    def start(self, row: Mapping[str, Any], seed: int) -> tuple[list[Message], None]:  # noqa: ARG002
        """The question of the row's `index`; nothing in it is random."""
        if "index" not in row:
            raise ValueError(
                "expected rows with an index, found problems: set `starts: {train: .., dev: .., "
                "test: ..}` in the preset"
            )
        self.items, index = open_items(self.families, row["index"], SEED)
        self.item = self.items[index]
        return [{"role": "user", "content": self.item["question"]}], None

    def step(self, message: Message) -> Reply:
        """The score of the last answer in the message."""
        text = strip_thinking(message["content"] or "")
        tagged = _TAGGED.findall(text)
        answer = tagged[-1] if tagged else extract_answer(text) or text
        score = self.items.score(answer.strip(), self.item)
        return Reply(reward=score if self.partial_credit else float(score == 1), done=True)

    def demonstrate(self, row: Mapping[str, Any], seed: int) -> list[Message]:
        """The stored answer alone; a ValueError where there is none."""
        self.start(row, seed)
        if not (answer := self.item["answer"]):
            raise ValueError(f"family '{self.items.name}' has no answers to demonstrate")
        text = f"<answer>{answer}</answer>" if "\n" in answer else f"#### {answer}"
        return [{"role": "assistant", "content": text}]
