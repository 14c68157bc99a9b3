"""Preparation of a source: prompts and demonstrations in a model's tokens.

Shared by prepare_data, which writes them, and the doctor, which checks them before anything runs.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models import prompting
from stages.models.prompting import EncodedProblems
from stages.models.row_policy import ModelConfig
from stages.records.problems import Demonstration
from stages.rewards import answer_checker, answer_forms
from stages.sources import catalogue, splitting
from stages.sources.catalogue import PreparationConfig, ScreenedSource


class PreparedProblems(NamedTuple):
    """Prompts and demonstrations of a source, with its rejected rows and its tokenizer."""

    tokenizer: PreTrainedTokenizerBase
    screened: ScreenedSource
    encoded: EncodedProblems
    demonstrations: list[Demonstration]
    """Those of the problems, then those of the mixture's tasks."""
    extraction_rate: float | None
    """Share of the solutions that the answer checker reads; None: no problem has one."""
    warnings: list[str]
    """Forms of answers that prompts ask for and the answer checker does not read."""


def prepare_problems(section: PreparationConfig, model: ModelConfig, seed: int) -> PreparedProblems:
    """Screen, split and tokenize a source.

    A ValueError for too many bad rows, an empty split or solutions that cannot be read.
    """
    source = section.source
    screened = catalogue.read_source(source, seed)
    screened.check_share(section.max_bad_share)
    splits = splitting.split_problems(screened.problems, section.shares)
    if screened.reports:
        splits = catalogue.exclude_near_copies(splits, screened)
    exchanges = catalogue.make_exchanges(source, section.mixture, splits["train"], seed)
    texts = prompting.tokenizer_texts(splits["train"], section.prompt_template, exchanges)
    tokenizer = model.tokenizer(texts)
    encoded = prompting.encode_problems(
        splits, tokenizer, template=section.prompt_template,
        max_prompt_tokens=section.max_prompt_tokens,
        max_completion_tokens=section.max_completion_tokens,
        readable=partial(answer_checker.states_an_answer, forms=section.checked_forms),
    )  # fmt: skip
    if (forms := section.checked_forms) is not None:
        for split, prompts in encoded.prompts.items():
            encoded.prompts[split] = [replace(prompt, answer_forms=forms) for prompt in prompts]
    solved = sum(row.task == prompting.TASK for row in encoded.demonstrations)
    rate = answer_checker.check_readable_share(solved, encoded.unreadable)
    screened.reject(encoded.rejected)
    screened.check_share(section.max_bad_share)
    mixed_in = prompting.encode_exchanges(exchanges, tokenizer, section.max_message_tokens)
    demonstrations = [*encoded.demonstrations, *mixed_in]
    prompts = [row for rows in encoded.prompts.values() for row in rows]
    model.check_ids((row.prompt_ids for row in (*prompts, *demonstrations)), tokenizer)
    model.check_ids((row.completion_ids for row in demonstrations), tokenizer)
    asked = (row.prompt for rows in encoded.prompts.values() for row in rows if row.answer)
    warnings = answer_forms.describe_unlisted(asked, section.answer_forms)
    return PreparedProblems(tokenizer, screened, encoded, demonstrations, rate, warnings)
