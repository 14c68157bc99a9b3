"""Tokenization of preference pairs and step-labelled solutions from a source.

The tokenizer's chat template renders the prompt of a pair; without one it is the source's plain
form (a transcript, or the text itself) after `prompting.get_bos_text`. The prompt of a solution is
rendered as in prepare_data. Prompt and answers are tokenised separately, as when a model samples,
and an answer ends with `model_tokenizer.end_id`. A solution is tokenised step by step, each step
with its separator, the last of a finished solution with the end token, since in joined text a step
might end in the middle of a token. An answer or solution begins as `chat_template.begin_reply` has
it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Generic, TypeVar

from jinja2 import TemplateError
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models import chat_template, model_tokenizer, prompting
from stages.records.preferences import Preference, RawLabelled, RawPreference, UnpairedExample
from stages.records.steps import RawSteps, StepLabels
from stages.sources import step_files

SOURCE = "human"
RawT = TypeVar("RawT")
RowT = TypeVar("RowT")


@dataclass(kw_only=True, slots=True)
class EncodedLabels(Generic[RawT, RowT]):
    """Tokenised pairs or solutions, in order, and those left out."""

    rows: list[RowT] = field(default_factory=list)
    rejected: list[tuple[RawT, str]] = field(default_factory=list)
    """Rows that no model can read, each with the reason."""
    over_long: list[tuple[RawT, str]] = field(default_factory=list)
    """Rows that are longer than allowed, each with the reason."""


def encode_pairs(
    raws: Sequence[RawPreference], tokenizer: PreTrainedTokenizerBase, *, max_tokens: int
) -> EncodedLabels[RawPreference, tuple[RawPreference, Preference]]:
    """Tokenised pairs, each with its raw pair.

    A pair is over-long if its prompt and longer answer have more than `max_tokens` tokens together,
    and rejected if it spells a special token or the chat template refuses its turns.
    """
    return _encode_answers(
        raws, tokenizer, max_tokens, lambda raw: [raw.chosen, raw.rejected],
        lambda raw, prompt, texts, ids: Preference(
            id=_prompt_id(prompt), prompt=prompt, prompt_ids=ids[0],
            chosen=texts[0], chosen_ids=ids[1], rejected=texts[1], rejected_ids=ids[2],
            probability=raw.probability, source=SOURCE,
        ),
    )  # fmt: skip


def encode_labelled(
    raws: Sequence[RawLabelled], tokenizer: PreTrainedTokenizerBase, *, max_tokens: int
) -> EncodedLabels[RawLabelled, tuple[RawLabelled, UnpairedExample]]:
    """Tokenised completions with their labels, each with its raw row; limits as for pairs."""
    return _encode_answers(
        raws, tokenizer, max_tokens, lambda raw: [raw.completion],
        lambda raw, prompt, _, ids: UnpairedExample(
            id=_prompt_id(prompt), prompt_ids=ids[0], completion_ids=ids[1],
            desirable=raw.desirable,
        ),
    )  # fmt: skip


AnswersT = TypeVar("AnswersT", RawPreference, RawLabelled)


def _encode_answers(
    raws: Sequence[AnswersT], tokenizer: PreTrainedTokenizerBase, max_tokens: int,
    list_answers: Callable[[AnswersT], list[str]],
    make_row: Callable[[AnswersT, str, list[str], list[list[int]]], RowT],
) -> EncodedLabels[AnswersT, tuple[AnswersT, RowT]]:  # fmt: skip
    """Tokenised answers to prompts, and those that are rejected or over-long.

    `make_row` takes the raw row, the prompt, the answers with the text that a template or the
    source has before them (`plain_lead`), and the tokens of the prompt and of each answer.
    """
    encoded = EncodedLabels[AnswersT, tuple[AnswersT, RowT]]()
    specials = prompting.special_token_texts(tokenizer)
    in_answers = prompting.answer_special_texts(tokenizer)
    for raw in raws:
        answers = list_answers(raw)
        reason = prompting.find_special_token(specials, *(turn.content for turn in raw.turns))
        if reason := reason or prompting.find_special_token(in_answers, *answers):
            encoded.rejected.append((raw, reason))
            continue
        if tokenizer.chat_template is None:
            prompt = prompting.get_bos_text(tokenizer) + raw.plain_prompt
            texts = [raw.plain_lead + answer for answer in answers]
        else:
            try:
                prompt = chat_template.render_chat(raw.turns, tokenizer)
            except TemplateError as error:
                encoded.rejected.append((raw, f"chat template: it refuses these turns: {error}"))
                continue
            texts = [chat_template.begin_reply(prompt, answer, tokenizer) for answer in answers]
        (prompt_ids,) = prompting.tokenize([prompt], tokenizer)
        end = model_tokenizer.end_id(tokenizer)
        ids = [[*answer, end] for answer in prompting.tokenize_continuation(texts, tokenizer)]
        if (length := len(prompt_ids) + max(map(len, ids))) > max_tokens:
            reason = f"over-long pair: {length} tokens with its longer answer, at most {max_tokens}"
            encoded.over_long.append((raw, reason))
        else:
            encoded.rows.append((raw, make_row(raw, prompt, texts, [prompt_ids, *ids])))
    return encoded


def _prompt_id(prompt: str) -> str:
    """Problem id from a prompt's text: pairs with the same prompt are one problem."""
    return f"prompt-{blake2b(prompt.encode(), digest_size=8).hexdigest()}"


def encode_steps(
    raws: Sequence[RawSteps],
    tokenizer: PreTrainedTokenizerBase,
    *,
    template: str,
    separator: str,
    max_tokens: int,
) -> EncodedLabels[RawSteps, StepLabels]:
    """Tokenised solutions.

    A solution is over-long if it has more than `max_tokens` tokens: prompt, steps, and a step token
    after each, at which a process model scores. It is rejected if it spells a special token. Rows
    of one problem share its id and are numbered; without an id in the source, it comes from the
    prompt.
    """
    encoded = EncodedLabels[RawSteps, StepLabels]()
    specials = prompting.special_token_texts(tokenizer)
    in_answers = prompting.answer_special_texts(tokenizer)
    numbers = Counter[str]()
    prompts = prompting.render_prompts([raw.question for raw in raws], tokenizer, template)
    for raw, prompt in zip(raws, prompts, strict=True):
        reason = prompting.find_special_token(specials, raw.question)
        if reason := reason or prompting.find_special_token(in_answers, *raw.steps):
            encoded.rejected.append((raw, reason))
            continue
        # As a policy writes it: if the text before a reply has a separator, its part up to there is
        # a step; and if the prompt has all text of the first step, that is none.
        first, *others = raw.steps
        first = chat_template.begin_reply(prompt, first, tokenizer, separator.join(raw.steps))
        text = replace(raw, steps=[first, *others])
        if not first and others:
            text = step_files.drop_first_step(text)
        text = step_files.cut_steps(text, separator)
        *steps, last = text.steps
        steps = [*(step + separator for step in steps), last + separator * (not raw.finished)]
        (prompt_ids,) = prompting.tokenize([prompt], tokenizer)
        step_ids = prompting.tokenize_continuation(steps, tokenizer)
        if raw.finished:
            step_ids[-1].append(model_tokenizer.end_id(tokenizer))
        row = StepLabels(
            id=raw.id or _prompt_id(prompt), index=0, prompt=prompt, prompt_ids=prompt_ids,
            steps=steps, step_ids=step_ids, labels=text.labels,
            num_completions=text.num_completions,
            true_labels=text.true_labels,
            correct=raw.correct, source=raw.source,
        )  # fmt: skip
        length = len(row.prompt_ids) + sum(len(ids) + 1 for ids in row.step_ids)
        if length > max_tokens:
            reason = f"over-long solution: {length} tokens with step tokens, at most {max_tokens}"
            encoded.over_long.append((raw, reason))
            continue
        encoded.rows.append(replace(row, index=numbers[row.id]))
        numbers[row.id] += 1
    return encoded
