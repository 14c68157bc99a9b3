"""Problems with pools for judges, and judges whose rule is written down."""

from collections.abc import Callable, Iterator, Sequence

from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards.feedback.judging import PairToJudge
from stages.sampler import Judgement


def prompt(name: str = "a", gold: str = "7") -> Prompt:
    question = "3 + 4?"
    return Prompt(id=name, task="solve", question=question, prompt=question, prompt_ids=[5],
                  answer=gold)  # fmt: skip


def completion(
    text: str, index: int = 0, name: str = "a", *, ids: list[int] | None = None, cut: bool = False
) -> Completion:
    ids = [len(word) for word in text.split()] if ids is None else ids
    return Completion(id=name, index=index, completion=text, completion_ids=ids, logprob_sum=-1.0,
                      finish_reason="length" if cut else "stop", seed=0)  # fmt: skip


def pair(a: str, b: str, name: str = "a", principle: int | None = None) -> PairToJudge:
    rows = {"a": completion(a, 0, name), "b": completion(b, 1, name)}
    return PairToJudge(prompt=prompt(name), principle=principle, **rows)


class RuleChooser:
    """Chooses by a function of the two quoted answers: P(the first is better), or None."""

    def __init__(
        self,
        rule: Callable[[str, str], float | None],
        mass: float = 0.9,
        first_token: str | None = None,
    ) -> None:
        self.rule, self.mass, self.first_token = rule, mass, first_token
        self.messages: list[str] = []

    def stream(self, messages: Sequence[str]) -> Iterator[tuple[int, Judgement | None]]:
        for number, message in enumerate(messages):
            self.messages.append(message)
            yield number, self.one(message)

    def one(self, message: str) -> Judgement | None:
        first, second = (
            "\n".join(line[3:] for line in message.splitlines() if line.startswith(mark))
            for mark in ("1:", "2:")
        )
        p = self.rule(first, second)
        return None if p is None else Judgement(
            probabilities=[p, 1 - p], mass=self.mass, num_prompt_tokens=10, num_generated_tokens=1,
            first_token=self.first_token,
        )  # fmt: skip
