"""All sources of problems, by the `kind` in params.yaml, and what of them is prepared.

Besides malformed rows, `screen_rows` rejects problems that spoil a data set though each row is well
formed: a second problem with the same id, a gold answer that the answer checker cannot read, and a
training problem whose question, or opening of a conversation, is also one of the test.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import Field, model_validator

from stages.config import Params
from stages.records.problems import BadRow, Exchange, Problem
from stages.rewards import answer_checker
from stages.sources import (
    conversations,
    feedback_tasks,
    problem_files,
    quarantine,
    splitting,
    word_problems,
)
from stages.sources.feedback_tasks import MixtureConfig
from stages.sources.splitting import split_key

SourceConfig = Annotated[
    word_problems.WordProblemsConfig
    | problem_files.Gsm8k
    | problem_files.JsonLines
    | problem_files.Hub
    | conversations.Messages,
    Field(discriminator="kind"),
]


def read_problems(source: SourceConfig, seed: int) -> Iterator[Problem | BadRow]:
    """The rows of the source; only a generated source uses the seed."""
    if isinstance(source, word_problems.WordProblemsConfig):
        return word_problems.generate_problems(source, seed)
    return source.problems()


def make_exchanges(
    source: SourceConfig, mixture: MixtureConfig | None, problems: Sequence[Problem], seed: int
) -> list[Exchange]:
    """Examples of the other tasks of the SFT mixture, made from the train split's problems."""
    if mixture is None or not isinstance(source, word_problems.WordProblemsConfig):
        return []
    return list(
        feedback_tasks.make_exchanges(problems, mixture, max_value=source.max_value, seed=seed)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ScreenedSource:
    """What a source yielded, sorted into usable and not."""

    source: SourceConfig
    num_rows: int
    problems: list[Problem] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)

    def reject(self, problems: Iterable[tuple[Problem, str]]) -> None:
        """Record problems that turned out to be unusable, with the reasons."""
        for problem, why in problems:
            file = self.source.file_name(problem.split)
            self.bad.append(quarantine.bad_row(file, problem.line, why, problem.question))

    def check_share(self, max_share: float) -> None:
        """Raise a ValueError if more than `max_share` of the rows is bad, wholly or in a turn."""
        limit, bad = "data.max_bad_share", {(row.file, row.line): row for row in self.bad}
        rows = list(bad.values())
        quarantine.check_share(rows, self.num_rows, max_share=max_share, limit=limit)

    def describe(self) -> dict[str, Any]:
        """For the data card: rows read, well-formed problems by the source's split, rejections."""
        problems = dict(Counter(problem.split or "unsplit" for problem in self.problems))
        kinds = quarantine.count_by_kind(self.bad)
        return {"rows_read": self.num_rows, "source_problems": problems, "quarantined": kinds}


def screen_rows(source: SourceConfig, rows: Iterable[Problem | BadRow]) -> ScreenedSource:
    """Sort the rows of the source, in their order; an answer becomes what the checker reads."""
    everything = list(rows)
    problems = [row for row in everything if isinstance(row, Problem)]
    tests = {split_key(problem) for problem in problems if problem.split == "test"}
    screened = ScreenedSource(source=source, num_rows=len(everything))
    lines_of_ids: dict[str, int] = {}
    for row in everything:
        if isinstance(row, BadRow):
            screened.bad.append(row)
            continue
        answer = None if row.answer is None else answer_checker.read_gold(row.answer)
        if row.id in lines_of_ids:
            reason = f"duplicate id: {row.id!r:.60} is also the id of line {lines_of_ids[row.id]}"
        elif answer is None and row.answer is not None:
            reason = f"answer does not parse: the checker reads no value in {row.answer!r:.60}"
        elif row.split != "test" and split_key(row) in tests:
            reason = "overlap: the question is also a test question"
        else:
            lines_of_ids[row.id] = row.line
            screened.problems.append(replace(row, answer=answer))
            continue
        screened.reject([(row, reason)])
    return screened


class PreparationConfig(Params):
    """Where problems come from and how they are asked."""

    source: SourceConfig
    prompt_template: str = Field(pattern=r"\{question\}")
    """The prompt, `{question}` being the question; with a chat template, the user's message.
    Nothing stands around a conversation: `{question}` alone."""
    mixture: MixtureConfig | None
    """Demonstrations of judging, criticising and revising besides; null: none."""
    shares: splitting.Shares
    """Shares of the problems in the splits other than train."""
    max_prompt_tokens: int = Field(gt=0)
    """Problems with a longer prompt are rejected."""
    max_completion_tokens: int = Field(gt=0)
    """Problems of the train split with a longer solution are rejected."""
    max_bad_share: float = Field(ge=0, lt=1)
    """Largest share of rejected rows; above it the source is refused."""

    @model_validator(mode="after")
    def _the_source_can_make_the_mixture(self) -> "PreparationConfig":
        mixture, generated = self.mixture, isinstance(self.source, word_problems.WordProblemsConfig)
        if mixture and not generated and max(mixture.judge, mixture.critique, mixture.revise) > 0:
            raise ValueError(
                f"data.mixture: expected null with the source '{self.source.kind}', found "
                f"{mixture!r}: the truth of mistakes is known of 'word_problems' alone. Set it to "
                f"null; a model that follows instructions needs none (style: full)."
            )
        return self

    @model_validator(mode="after")
    def _nothing_around_a_conversation(self) -> "PreparationConfig":
        if isinstance(self.source, conversations.Messages) and self.prompt_template != "{question}":
            raise ValueError(
                f"data.prompt_template: expected '{{question}}' with the source 'messages', whose "
                f"turns are rendered as they are, found {self.prompt_template!r}"
            )
        return self

    @property
    def max_message_tokens(self) -> int:
        """Longest prompt of the mixture's tasks, 0 where there are none."""
        return self.mixture.max_prompt_tokens if self.mixture else 0
