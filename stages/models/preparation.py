"""Preparation of a source: tokenized prompts and demonstrations.

Shared by prepare_data, which writes them, and the doctor, which checks them before anything runs.
Rows are generated lazily, so that a large source need not fit in memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.auto import Facts
from stages.models import prompting
from stages.models.chat_template import close_thinking
from stages.models.row_policy import ModelConfig
from stages.records.problems import Demonstration, Exchange, Problem, Prompt
from stages.rewards import answer_checker
from stages.rewards.answer_forms import UnlistedForms
from stages.sources import catalogue, splitting
from stages.sources.catalogue import PreparationConfig, ScreenedSource
from stages.sources.data_summary import DataSummary


@dataclass(kw_only=True, slots=True)
class PreparedProblems:
    """Tokenized source.

    After all `rows` are read, `screened` has all rejected rows, and the summary, the rate and the
    warnings are complete.
    """

    tokenizer: PreTrainedTokenizerBase
    screened: ScreenedSource
    rows: Iterator[tuple[str, Prompt | Demonstration]] = field(init=False)
    """Each with the name of its split, or `demonstrations`. After the last one, a ValueError if too
    many rows are bad, too few solutions can be parsed, or a token has no embedding."""
    summary: DataSummary = field(default_factory=DataSummary)
    extraction_rate: float | None = None
    """Share of solutions that the answer checker can parse; None: no problem has a solution."""
    warnings: list[str] = field(default_factory=list)
    """Warnings on forms of answers that prompts ask for and the answer checker cannot parse, and on
    valid rows that are left out."""


DEMONSTRATIONS = "demonstrations"


def prepare_problems(section: PreparationConfig, model: ModelConfig, seed: int) -> PreparedProblems:
    """Screen and split a source, and load its tokenizer.

    A ValueError for too many bad rows, or an empty split.
    """
    source = section.source
    screened = catalogue.read_source(source, seed)
    screened.check_share(section.max_bad_share)
    splits = splitting.split_problems(screened.problems, section.shares, has_test=screened.has_test)
    splits = catalogue.exclude_repeated_questions(splits, screened)
    if screened.reports:
        splits = catalogue.exclude_near_copies(splits, screened)
    exchanges = catalogue.make_exchanges(source, section.mixture, splits["train"], seed)
    texts = prompting.tokenizer_texts(splits["train"], section.prompt_template, exchanges)
    prepared = PreparedProblems(tokenizer=model.tokenizer(texts), screened=screened)
    if num_openings := splitting.count_split_openings(splits):
        prepared.warnings.append(
            f"{num_openings} openings of conversations are in several splits: those of the source, "
            f"or, if too many share one, those by all text before the reply, or else a split "
            f"would miss its share. Policies are tested on openings that they were trained on"
        )
    prepared.rows = _encode_rows(prepared, section, model, splits, exchanges)
    return prepared


def _encode_rows(
    prepared: PreparedProblems, section: PreparationConfig, model: ModelConfig,
    splits: Mapping[str, Sequence[Problem]], exchanges: Sequence[Exchange],
) -> Iterator[tuple[str, Prompt | Demonstration]]:  # fmt: skip
    """Prompts and demonstrations of the problems, then demonstrations of the mixture's tasks."""
    encoded = prompting.encode_problems(
        splits, prepared.tokenizer, template=section.prompt_template,
        max_prompt_tokens=section.max_prompt_tokens,
        max_completion_tokens=section.max_completion_tokens,
        readable=partial(answer_checker.states_an_answer, forms=section.checked_forms),
    )  # fmt: skip
    summary, screened, unreadable = prepared.summary, prepared.screened, list[str]()
    forms, unlisted = section.checked_forms, UnlistedForms(section.answer_forms)
    for row in encoded:
        if row.reason is not None:
            screened.reject(row.problem, row.reason)
            unreadable += [row.reason] if row.reason.startswith(prompting.UNREADABLE) else []
        if row.prompt is not None and row.split is not None:
            summary.add_prompt(row.split, row.prompt)
            if row.prompt.answer:
                unlisted.add(row.prompt.prompt)
            yield row.split, replace(row.prompt, answer_forms=forms)
        if row.demonstration is not None:
            summary.add_demonstration(row.demonstration)
            yield DEMONSTRATIONS, row.demonstration
    solved = len(summary.completion_tokens.get(prompting.TASK, ()))
    prepared.extraction_rate = answer_checker.check_readable_share(solved, unreadable)
    prepared.warnings += [*unlisted.describe(), *screened.warn_of_left_out(section.max_bad_share)]
    screened.check_share(section.max_bad_share)
    limit = section.max_message_tokens
    for row in prompting.encode_exchanges(exchanges, prepared.tokenizer, limit):
        summary.add_demonstration(row)
        yield DEMONSTRATIONS, row
    limits = "data.max_prompt_tokens or data.max_completion_tokens"
    model.check_rows([[summary.largest_id]], summary.longest_row, prepared.tokenizer, limits)


def measure_data(summary: DataSummary, facts: Facts) -> Facts:
    """`facts` with the lengths and counts of the data."""
    completions = summary.completion_tokens
    lengths = [
        length for task in (prompting.TASK, prompting.CHAT) for length in completions.get(task, ())
    ]
    num_prompts = len(summary.prompt_tokens["train"])
    # The lengths of a few solutions are no estimate for all.
    are_known = len(lengths) >= 0.01 * num_prompts
    return replace(
        facts,
        prompt_tokens=max(summary.all_prompt_tokens()),
        completion_tokens=max(lengths, default=0) if are_known else 0,
        train_prompts=num_prompts,
        demonstrations=len(lengths),
        thinks=facts.thinks or bool(close_thinking(summary.first_prompt)),
    )
