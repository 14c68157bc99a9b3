"""Problems of reasoning-gym in one turn, scored by the package.

Options:

families        such as `{chain_sum: {min_terms: 2}}`
template        the user's message, such as "{question} Write <answer>the answer</answer>."
last_number     true: scores the last number of the answer instead of its text: for models that keep
                to no form (`1 + 6 = 7 apples.`), and for families with numbers as answers
partial_credit  true: the package's score as it is. Else only a full score is paid, since many
                families pay a part for any text that contains the answer
"""

import re
from collections.abc import Mapping
from typing import Any

from stages.environments.environment import Message, Reply, write_message
from stages.models.prompting import PLACEHOLDER, fill_template
from stages.rewards.answer_checker import read_last_number
from stages.rewards.final_answer import extract_answer, strip_thinking
from stages.rewards.number_parsing import parse_number
from stages.sources.reasoning_gym import Families, check_scored_families, open_items

SEED = 0
"""Seed of all items; each row has another item by its index."""
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class ReasoningGym:
    """A question, and the score of the answer: `<answer>..</answer>`, `#### ..`, or all text."""

    def __init__(
        self, families: Families, *, template: str = PLACEHOLDER, last_number: bool = False,
        partial_credit: bool = False,
    ) -> None:  # fmt: skip
        self.families = check_scored_families(families)
        self.template = template
        self.last_number = last_number
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
        if self.last_number:
            answer = str(self.item["answer"])
            value, number = parse_number(answer), read_last_number(answer)
            if value is None or number is None or parse_number(number) != value:
                raise ValueError(
                    f"last_number: expected families whose answers are numbers, none of them a "
                    f"fraction, found {answer!r:.60} in '{self.items.name}': leave out the family "
                    f"or the option"
                )
        return [write_message("user", fill_template(self.template, self.item["question"]))], None

    def step(self, message: Message) -> Reply:
        """The score of the last answer in the message."""
        text = strip_thinking(message["content"] or "")
        tagged = _TAGGED.findall(text)
        answer = (tagged[-1] if tagged else extract_answer(text) or text).strip()
        if self.last_number and (number := read_last_number(answer)) is not None:
            answer = number.replace(",", "") if parse_number(number) is not None else number
        score = self.items.score(answer, self.item)
        return Reply(reward=score if self.partial_credit else float(score == 1), done=True)

    def demonstrate(self, row: Mapping[str, Any], seed: int) -> list[Message]:
        """The stored answer; a ValueError if there is none."""
        self.start(row, seed)
        if not (answer := self.item["answer"]):
            raise ValueError(f"family '{self.items.name}' has no answers to demonstrate")
        text = f"<answer>{answer}</answer>" if "\n" in answer else f"#### {answer}"
        return [{"role": "assistant", "content": text}]
