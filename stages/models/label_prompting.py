"""Tokenization of preference pairs and step-labelled solutions from a source.

The prompt of a pair is rendered by the tokenizer's chat template if it has one, else it is the
source's plain form (a transcript, or the text itself) after `prompting.get_bos_text`; that of a
solution is rendered as in prepare_data. Prompt and answers are tokenised separately, as when a
model samples, and an answer ends with `model_tokenizer.end_id`. A solution is tokenised step by
step, each step with the separator after it, the last of a finished solution with that
end: in joined text the end of a step might be in the middle of a token. Before an answer and the
first step stands what the chat template puts there (`chat_template.begin_reply`).
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
    """Tokenised pairs or solutions, in their order, and those left out."""

    rows: list[RowT] = field(default_factory=list)
    rejected: list[tuple[RawT, str]] = field(default_factory=list)
    """Rows that no model can read, each with the reason."""
    over_long: list[tuple[RawT, str]] = field(default_factory=list)
    """Rows that are longer than allowed, whole, each with the reason."""


def encode_pairs(
    raws: Sequence[RawPreference], tokenizer: PreTrainedTokenizerBase, *, max_tokens: int
) -> EncodedLabels[RawPreference, tuple[RawPreference, Preference]]:
    """Tokenised pairs, each with its raw pair.

    A pair is over-long if its prompt and longer answer have more than `max_tokens` tokens together,
    and rejected if it spells a special token or the chat template refuses its turns.
    """
    return _encode_answers(
        raws, tokenizer, max_tokens, _encode_pair,
        lambda raw: [raw.chosen, raw.rejected],
        lambda pair: len(pair.prompt_ids) + max(len(pair.chosen_ids), len(pair.rejected_ids)),
    )  # fmt: skip


def encode_labelled(
    raws: Sequence[RawLabelled], tokenizer: PreTrainedTokenizerBase, *, max_tokens: int
) -> EncodedLabels[RawLabelled, tuple[RawLabelled, UnpairedExample]]:
    """Tokenised completions with their labels, each with its raw one; limits as of pairs."""
    return _encode_answers(
        raws, tokenizer, max_tokens, _encode_labelled,
        lambda raw: [raw.completion],
        lambda row: len(row.prompt_ids) + len(row.completion_ids),
    )  # fmt: skip


AnswersT = TypeVar("AnswersT", RawPreference, RawLabelled)


def _encode_answers(
    raws: Sequence[AnswersT], tokenizer: PreTrainedTokenizerBase, max_tokens: int,
    encode: Callable[[AnswersT, PreTrainedTokenizerBase], RowT],
    answers: Callable[[AnswersT], list[str]], length: Callable[[RowT], int],
) -> EncodedLabels[AnswersT, tuple[AnswersT, RowT]]:  # fmt: skip
    """Answers to prompts, tokenised; those that are rejected or over-long are set apart."""
    encoded = EncodedLabels[AnswersT, tuple[AnswersT, RowT]]()
    specials = prompting.special_token_texts(tokenizer)
    in_answers = prompting.answer_special_texts(tokenizer)
    for raw in raws:
        reason = prompting.find_special_token(specials, *(turn.content for turn in raw.turns))
        if reason := reason or prompting.find_special_token(in_answers, *answers(raw)):
            encoded.rejected.append((raw, reason))
            continue
        try:
            row = encode(raw, tokenizer)
        except TemplateError as error:
            encoded.rejected.append((raw, f"chat template: it refuses these turns: {error}"))
            continue
        if (number := length(row)) > max_tokens:
            reason = f"over-long pair: {number} tokens with its longer answer, at most {max_tokens}"
            encoded.over_long.append((raw, reason))
        else:
            encoded.rows.append((raw, row))
    return encoded


def _prompt_id(prompt: str) -> str:
    """Problem id of a prompt's text: pairs of one prompt are one problem."""
    return f"prompt-{blake2b(prompt.encode(), digest_size=8).hexdigest()}"


def _render_answers(
    raw: RawPreference | RawLabelled, answers: Sequence[str], tokenizer: PreTrainedTokenizerBase
) -> tuple[str, list[str]]:
    """Prompt and answers; without a chat template, `plain_lead` stands before each of them."""
    if tokenizer.chat_template is None:
        prompt = prompting.get_bos_text(tokenizer) + raw.plain_prompt
        return prompt, [raw.plain_lead + answer for answer in answers]
    prompt = chat_template.render_chat(raw.turns, tokenizer)
    begin = chat_template.begin_reply
    return prompt, [begin(prompt, answer, tokenizer) + answer for answer in answers]


def _encode_pair(raw: RawPreference, tokenizer: PreTrainedTokenizerBase) -> Preference:
    prompt, (chosen, rejected) = _render_answers(raw, [raw.chosen, raw.rejected], tokenizer)
    (prompt_ids,) = prompting.tokenize([prompt], tokenizer)
    chosen_ids, rejected_ids = prompting.tokenize_behind([chosen, rejected], tokenizer)
    end = model_tokenizer.end_id(tokenizer)
    return Preference(
        id=_prompt_id(prompt),
        prompt=prompt,
        prompt_ids=prompt_ids,
        chosen=chosen,
        chosen_ids=[*chosen_ids, end],
        rejected=rejected,
        rejected_ids=[*rejected_ids, end],
        probability=raw.probability,
        source=SOURCE,
    )


def _encode_labelled(raw: RawLabelled, tokenizer: PreTrainedTokenizerBase) -> UnpairedExample:
    prompt, answers = _render_answers(raw, [raw.completion], tokenizer)
    (prompt_ids,) = prompting.tokenize([prompt], tokenizer)
    (completion_ids,) = prompting.tokenize_behind(answers, tokenizer)
    return UnpairedExample(
        id=_prompt_id(prompt),
        prompt_ids=prompt_ids,
        completion_ids=[*completion_ids, model_tokenizer.end_id(tokenizer)],
        desirable=raw.desirable,
    )


def _add_lead(
    raw: RawSteps, prompt: str, tokenizer: PreTrainedTokenizerBase, separator: str
) -> RawSteps:
    """The solution as a policy writes it; of the lead, a part up to a separator is a step."""
    first, *others = raw.steps
    lead = chat_template.begin_reply(prompt, first, tokenizer)
    return step_files.cut_steps(replace(raw, steps=[lead + first, *others]), separator)


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
    of one problem share its id and are numbered: if the source has no id, it is of the prompt.
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
        row = _encode_solution(raw, prompt, tokenizer, separator)
        length = len(row.prompt_ids) + sum(len(ids) + 1 for ids in row.step_ids)
        if length > max_tokens:
            reason = f"over-long solution: {length} tokens with step tokens, at most {max_tokens}"
            encoded.over_long.append((raw, reason))
            continue
        encoded.rows.append(replace(row, index=numbers[row.id]))
        numbers[row.id] += 1
    return encoded


def _encode_solution(
    raw: RawSteps, prompt: str, tokenizer: PreTrainedTokenizerBase, separator: str
) -> StepLabels:
    """The tokenised steps of a solution with their labels, as the first one of its problem."""
    text = _add_lead(raw, prompt, tokenizer, separator)
    *steps, last = text.steps
    steps = [*(step + separator for step in steps), last + separator * (not raw.finished)]
    (prompt_ids,) = prompting.tokenize([prompt], tokenizer)
    step_ids = prompting.tokenize_behind(steps, tokenizer)
    if raw.finished:
        step_ids[-1].append(model_tokenizer.end_id(tokenizer))
    return StepLabels(
        id=raw.id or _prompt_id(prompt),
        index=0,
        prompt=prompt,
        prompt_ids=prompt_ids,
        steps=steps,
        step_ids=step_ids,
        labels=text.labels,
        num_completions=text.num_completions,
        true_labels=text.true_labels,
        correct=raw.correct,
        source=raw.source,
    )
