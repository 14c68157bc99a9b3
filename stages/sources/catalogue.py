"""Sources of problems, generated or the user's, and the screening of their rows.

Besides malformed rows, `screen_rows` rejects problems that spoil a data set though each row is well
formed: a second problem with the same id, a row with the same text as an earlier one, a gold answer
that the answer checker cannot read, the problems of a question with gold answers that differ, and a
training problem whose question, or opening of a conversation, is also one of the test, or a near
copy of one (`near_copies`). All solutions of a training question are learned from; a question of
the dev or test split counts once.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from stages.config import Params
from stages.records.problems import BadRow, Exchange, Problem
from stages.rewards import answer_checker
from stages.rewards.answer_forms import FORMS, check_form
from stages.sources import feedback_tasks, quarantine, reasoning_gym, word_problems
from stages.sources.feedback_tasks import MixtureConfig
from stages.sources.near_copies import find_near_copies
from stages.sources.own_rows import OwnSource, draw_rows
from stages.sources.problem_files import FileSource, SourceReport, parse_splits, read_problems
from stages.sources.reasoning_gym import ReasoningGymConfig
from stages.sources.splitting import Shares, normalise_question, split_key
from stages.sources.word_problems import WordProblemsConfig

MIN_AGREEMENT = 0.9
"""Smallest share of solutions that agree with their gold answers; good data have more than 0.99."""


OWN = "own/<file>"


def _kind_of_source(value: Any) -> str:
    if isinstance(value, list):
        return "list"
    kind = value.get("kind", "files") if isinstance(value, dict) else getattr(value, "kind", None)
    return OWN if str(kind).startswith("own/") else str(kind)


ProblemsBySplit = dict[str, list[Problem]]
SourceConfig = Annotated[
    Annotated[WordProblemsConfig, Tag("word_problems")]
    | Annotated[ReasoningGymConfig, Tag("reasoning_gym")]
    | Annotated[FileSource, Tag("files")]
    | Annotated[OwnSource, Tag(OWN)]
    | Annotated[list[FileSource], Tag("list"), Field(min_length=1)],
    Discriminator(_kind_of_source),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScreenedSource:
    """Rows of a source, sorted into usable and not."""

    num_rows: int
    problems: list[Problem] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    reports: list[SourceReport] = field(default_factory=list)
    """Report on the reading of each file source."""
    has_test: bool = False
    """Whether the source has a test split, even without usable rows."""
    agreement: float | None = None
    """Share of the solutions that state the gold answer; None: generated problems, or none."""

    def reject(self, problem: Problem, why: str) -> None:
        """Record a problem that turned out to be unusable, with the reason."""
        self.bad.append(quarantine.bad_row(problem.file, problem.line, why, problem.question))

    def check_share(self, max_share: float) -> None:
        """Raise a ValueError if more than `max_share` of the rows is bad, wholly or in a turn.

        Rows that spoil nothing else (`quarantine.HARMLESS`) do not count.
        """
        limit, bad = "data.max_bad_share", {(row.file, row.line): row for row in self.bad}
        rows = [row for row in bad.values() if not quarantine.is_harmless(row)]
        quarantine.check_share(rows, self.num_rows, max_share=max_share, limit=limit)
        if len(bad) >= self.num_rows and not self.problems:
            quarantine.refuse_all([*bad.values()], self.num_rows)

    def warn_of_left_out(self, max_share: float) -> Iterator[str]:
        """Warning of left-out rows that `check_share` does not count, if above `max_share`."""
        rows = [row for row in self.bad if quarantine.is_harmless(row)]
        if len(rows) > max_share * self.num_rows:
            counts, kinds = f"{len(rows)} of {self.num_rows}", quarantine.describe_kinds(rows)
            yield f"{counts} rows are left out ({kinds}): see quarantine.jsonl"

    def describe(self) -> dict[str, Any]:
        """For the data card: rows read, well-formed problems by the source's split, rejections."""
        problems = dict(Counter(problem.split or "unsplit" for problem in self.problems))
        kinds = quarantine.count_by_kind(self.bad)
        card = {"rows_read": self.num_rows, "source_problems": problems, "quarantined": kinds}
        if self.reports:
            card["files"] = [asdict(report) for report in self.reports]
            card["solutions_that_state_the_answer"] = self.agreement
        return card


def read_source(source: SourceConfig, seed: int) -> ScreenedSource:
    """Screened rows of a source; only generated ones and the user's function use the seed.

    Raises:
        ValueError: a source that cannot be read, or whose solutions contradict their answers.
    """
    if isinstance(source, WordProblemsConfig):
        return screen_rows(word_problems.generate_problems(source, seed))
    if isinstance(source, ReasoningGymConfig):
        return screen_rows(reasoning_gym.generate_problems(source, seed))
    sources = source if isinstance(source, list) else [source]
    rows, reports = list[Problem | BadRow](), list[SourceReport]()
    for number, files in enumerate(sources, start=1):
        reports.append(SourceReport(path=name_of(files)))
        prefix = f"{number}-" if len(sources) > 1 else ""
        rows += (
            replace(row, id=prefix + row.id) if prefix and isinstance(row, Problem) else row
            for row in _read_rows(files, reports[-1], seed)
        )
    screened = screen_rows(rows)
    has_test = screened.has_test or any("test" in report.rows for report in reports)
    agreement = check_agreement(screened.problems)
    return replace(screened, reports=reports, agreement=agreement, has_test=has_test)


def _read_rows(
    source: FileSource | OwnSource, report: SourceReport, seed: int
) -> Iterator[Problem | BadRow]:
    if isinstance(source, OwnSource):
        return parse_splits({None: draw_rows(source, seed)}, source, report)
    return read_problems(source, report)


def exclude_near_copies(splits: ProblemsBySplit, screened: ScreenedSource) -> ProblemsBySplit:
    """Splits without problems that are near copies of a test question; the copies are recorded.

    Compares questions, the user's turns of conversations, and solutions.
    """
    tests = splits["test"]
    questions = [said_by_user(problem) for problem in tests]
    clean: ProblemsBySplit = {"test": tests}
    for split in (name for name in splits if name != "test"):
        texts = (f"{said_by_user(problem)}\n{problem.solution or ''}" for problem in splits[split])
        clean[split] = []
        places = find_near_copies(texts, questions)
        for problem, place in zip(splits[split], places, strict=True):
            if place is None:
                clean[split].append(problem)
            else:
                original = f"test question '{tests[place].id}'"
                screened.reject(problem, f"{quarantine.NEAR_COPY}: of {original}")
    if empty := [split for split, members in clean.items() if not members]:
        raise ValueError(
            f"every problem of {', '.join(empty)} is a near copy of a test question. Use another "
            f"test set, or more different problems."
        )
    return {split: clean[split] for split in splits}


def exclude_repeated_questions(
    splits: ProblemsBySplit, screened: ScreenedSource
) -> ProblemsBySplit:
    """Splits in which each question of dev and test occurs once; repetitions are recorded.

    Intervals assume that the problems of these splits are independent. Questions are the same if
    they are equal after `normalise_question`, as when problems are split, and have the same tools.
    """
    kept = dict(splits)
    for split in ("dev", "test"):
        by_question = dict[tuple[str, str | None], Problem]()
        for problem in splits[split]:
            key = normalise_question(problem.question), problem.tools
            first = by_question.setdefault(key, problem)
            if first is not problem:
                where = f"{_describe_place(first)}, in the {split} split"
                screened.reject(problem, f"{quarantine.REPEATED_QUESTION}: the same as of {where}")
        kept[split] = [*by_question.values()]
    return kept


def _describe_place(problem: Problem) -> str:
    return f"line {problem.line} of {problem.file}"


def said_by_user(problem: Problem) -> str:
    """The question, or all turns of the user."""
    turns = problem.turns
    if turns is None:
        return problem.question
    return "\n".join(turn.content for turn in turns if turn.role == "user")


def name_of(source: SourceConfig) -> str:
    """`word_problems`, `reasoning_gym` with its families, `own/..`, or the paths of the files."""
    if isinstance(source, WordProblemsConfig):
        return source.kind
    if isinstance(source, ReasoningGymConfig):
        return f"{source.kind}: {', '.join(source.families)}"
    sources = source if isinstance(source, list) else [source]
    paths = [[item.path] if isinstance(item.path, str) else item.path for item in sources]
    return ", ".join(path for of_source in paths for path in of_source)


def licence_of(source: SourceConfig) -> str | None:
    """Licence of a source; of several sources, each licence once."""
    sources = source if isinstance(source, list) else [source]
    licences = dict.fromkeys(item.licence for item in sources if item.licence is not None)
    return ", ".join(licences) or None


def make_exchanges(
    source: SourceConfig, mixture: MixtureConfig | None, problems: Sequence[Problem], seed: int
) -> list[Exchange]:
    """Examples of the other tasks of the SFT mixture, made from the train split's problems."""
    if mixture is None or not isinstance(source, WordProblemsConfig):
        return []
    return list(
        feedback_tasks.make_exchanges(problems, mixture, max_value=source.max_value, seed=seed)
    )


def screen_rows(rows: Iterable[Problem | BadRow]) -> ScreenedSource:
    """Sort the rows of a source, in their order; the checker's reading replaces each answer.

    If a question has different gold answers, the right one is unknown, so none of its problems is
    kept; those that overlap with the test do not count here.

    If ids begin anew in the test split, the later row's id gets its split as a prefix (`test-7`),
    so that no test question is lost as a duplicate of another question.

    A row is repeated if turns, tools, gold answer and solution are the same as those of another.
    """
    everything = list(rows)
    problems = [row for row in everything if isinstance(row, Problem)]
    tests, devs = ({split_key(problem) for problem in problems if problem.split == split}
                   for split in ("test", "dev"))  # fmt: skip
    screened = ScreenedSource(num_rows=len(everything), has_test=bool(tests))
    ids = {problem.id for problem in problems}
    rows_by_id = dict[tuple[str, bool], Problem]()
    rows_by_content = dict[Any, Problem]()
    for row in everything:
        if isinstance(row, BadRow):
            screened.bad.append(row)
            continue
        answer = None if row.answer is None else answer_checker.read_gold(row.answer)
        is_test = row.split == "test"
        content = (*_whole_text(row), row.turns, answer, row.solution, row.reply)
        if (first := rows_by_content.get((content, is_test))) is not None:
            reason = f"{quarantine.REPEATED}: the same row as {_describe_place(first)}"
        elif (first := rows_by_id.get((row.id, is_test))) is not None:
            reason = (
                f"duplicate id: {row.id!r:.60} is also the id of {_describe_place(first)}: give "
                f"each row an id of its own, or leave ids out: ignore: [id], and no `id` in columns"
            )
        elif answer is None and row.answer is not None:
            reason = (
                f"answer does not parse: the checker reads no value in {row.answer!r:.60}; a reply "
                f"to imitate is named as columns: {{user: .., assistant: ..}}"
            )
        elif tests and row.split != "test" and split_key(row) in tests:
            reason = "overlap: the question is also a test question"
        elif devs and row.split not in ("dev", "test") and split_key(row) in devs:
            reason = "overlap: the question is also a dev question"
        else:
            rows_by_id[row.id, is_test] = rows_by_content[content, is_test] = row
            name = row.id
            if (name, not is_test) in rows_by_id:
                while name in ids:
                    name = f"{row.split or 'train'}-{name}"
                ids.add(name)
            screened.problems.append(replace(row, id=name, answer=answer))
            continue
        screened.reject(row, reason)
    return _reject_contradictions(screened)


def _reject_contradictions(screened: ScreenedSource) -> ScreenedSource:
    """Source without the problems whose whole text occurs with different gold answers.

    Texts are compared without white space, with choices, system message and earlier turns.
    """
    keys = [(_whole_text(problem), problem.answer is None) for problem in screened.problems]
    firsts, reasons = dict[Any, Problem](), dict[Any, str]()
    for key, problem in zip(keys, screened.problems, strict=True):
        first = firsts.setdefault(key, problem)
        gold, answer = str(first.answer), str(problem.answer)
        pairs = (answer, gold), (gold, answer)
        if key in reasons or answer == gold:
            continue
        if not any(answer_checker.answers_match(*pair) for pair in pairs):
            reasons[key] = (
                f"contradiction: the question has the gold answers {gold!r:.60} ({first.file}, "
                f"line {first.line}) and {answer!r:.60} ({problem.file}, line {problem.line}): "
                f"correct or delete the wrong row"
            )
    consistent = list[Problem]()
    for key, problem in zip(keys, screened.problems, strict=True):
        if key in reasons:
            screened.reject(problem, reasons[key])
        else:
            consistent.append(problem)
    return replace(screened, problems=consistent)


def _whole_text(problem: Problem) -> tuple[str, str | None]:
    return " ".join(problem.question.split()), problem.tools


def check_agreement(problems: Sequence[Problem]) -> float | None:
    """The share of solutions that state the gold answer; None: no problem has both.

    Raises:
        ValueError: it is below `MIN_AGREEMENT`: the answers are in another column.
    """
    stated = [
        (problem, answer) for problem in problems
        if problem.answer is not None and problem.solution is not None
        and (answer := answer_checker.extract_answer(problem.solution)) is not None
    ]  # fmt: skip
    if not stated:
        return None
    wrong = [(problem, answer) for problem, answer in stated
             if not answer_checker.answers_match(answer, str(problem.answer))]  # fmt: skip
    agreement = 1 - len(wrong) / len(stated)
    if agreement < MIN_AGREEMENT:
        examples = "\n".join(
            f"  {problem.file}, line {problem.line}: the answer is {problem.answer!r:.60}, the "
            f"solution states {answer!r:.60}"
            for problem, answer in wrong[:3]
        )
        raise ValueError(
            f"{len(wrong)} of {len(stated)} solutions state another answer than their gold answer; "
            f"at most {1 - MIN_AGREEMENT:.0%} may. Some of them:\n{examples}\n"
            f"Name the right column of the answers in data.source.columns."
        )
    return agreement


class PreparationConfig(Params):
    """Source of the problems, and the form of their prompts."""

    source: SourceConfig
    prompt_template: str = Field(pattern=r"\{question\}")
    """Prompt of a problem, with `{question}` in place of the question; with a chat template, the
    user's message. The turns of a conversation are rendered as they are."""
    answer_forms: list[Annotated[str, AfterValidator(check_form)]] = Field(
        default=[*FORMS], min_length=1
    )
    """Forms of statements in which the answer checker reads a final answer."""
    mixture: MixtureConfig | None
    """Further demonstrations, of judging, criticising and revising; null: none."""
    shares: Shares
    """Shares of the problems in the splits other than train."""
    max_prompt_tokens: int = Field(gt=0)
    """Problems with a longer prompt are rejected."""
    max_completion_tokens: int = Field(gt=0)
    """Problems of the train split with a longer solution are rejected."""
    max_bad_share: float = Field(ge=0, lt=1)
    """Largest share of rejected rows; above it the source is refused."""

    @model_validator(mode="after")
    def _the_source_can_make_the_mixture(self) -> "PreparationConfig":
        mixture, generated = self.mixture, isinstance(self.source, WordProblemsConfig)
        if mixture and not generated and max(mixture.judge, mixture.critique, mixture.revise) > 0:
            raise ValueError(
                f"data.mixture: expected null with problems of another source, found "
                f"{mixture!r}: the mistakes in solutions are known only for 'word_problems'. Set "
                f"it to null; a model that follows instructions needs none (style: full)."
            )
        return self

    @property
    def checked_forms(self) -> Sequence[str] | None:
        """Forms of statements, for prompts; None: all that have a name."""
        return None if {*self.answer_forms} == {*FORMS} else self.answer_forms

    @property
    def max_message_tokens(self) -> int:
        """Longest prompt of the mixture's tasks; 0 without a mixture."""
        return self.mixture.max_prompt_tokens if self.mixture else 0
