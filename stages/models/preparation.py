"""A source of problems as prompts and demonstrations in a model's tokens, or why it is refused.

What prepare_data writes is what the doctor looks at before anything runs.
"""

from typing import NamedTuple

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models import prompting
from stages.models.prompting import EncodedProblems
from stages.models.row_policy import ModelConfig
from stages.records.problems import Demonstration
from stages.rewards import answer_checker
from stages.sources import catalogue, splitting
from stages.sources.catalogue import PreparationConfig, Screened


class PreparedProblems(NamedTuple):
    """All that a source comes to."""

    tokenizer: PreTrainedTokenizerBase
    screened: Screened
    encoded: EncodedProblems
    demonstrations: list[Demonstration]
    """Of the problems, then of the mixture's tasks."""
    extraction_rate: float | None
    """Share of the solutions that the answer checker reads; None: none has an answer."""


def prepare_problems(section: PreparationConfig, model: ModelConfig, seed: int) -> PreparedProblems:
    """A ValueError where too much is bad, a split is empty or solutions cannot be read."""
    source = section.source
    screened = catalogue.screen(source, catalogue.problems(source, seed))
    screened.check_share(section.max_bad_share)
    splits = splitting.split(screened.problems, section.shares)
    other = catalogue.exchanges(source, section.mixture, splits["train"], seed)
    texts = prompting.tokenizer_texts(splits["train"], section.prompt_template, other)
    tokenizer = model.tokenizer(texts)
    encoded = prompting.encode_problems(
        splits, tokenizer, template=section.prompt_template,
        max_prompt_tokens=section.max_prompt_tokens,
        max_completion_tokens=section.max_completion_tokens,
        readable=answer_checker.states_an_answer,
    )  # fmt: skip
    read = len(encoded.demonstrations), encoded.unreadable
    rate = None if source.kind == "messages" else answer_checker.check_rate(*read)
    screened.reject(encoded.rejected)
    screened.check_share(section.max_bad_share)
    learned = prompting.encode_exchanges(other, tokenizer, section.max_message_tokens)
    model.check_ids(max(max(one.prompt_ids) for own in encoded.prompts.values() for one in own))
    return PreparedProblems(tokenizer, screened, encoded, [*encoded.demonstrations, *learned], rate)
