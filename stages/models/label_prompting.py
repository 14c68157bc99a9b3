"""Pairs of answers and labelled solutions, as a source has them, in tokens.

The prompt of a pair is rendered by the tokenizer's chat template when it has one, else it is the
source's plain form (a transcript, or the text itself) after `prompting.get_bos_text`; that of a
solution is
rendered as prepare_data does it. Prompt and answers are tokenised apart, as when a model samples,
and an answer ends with the end-of-sequence token. A solution is tokenised step by step, each with
the separator behind it, the last of a finished one with the end-of-sequence token: joined text
might put a step's end into the middle of a token.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Generic, TypeVar

from jinja2 import TemplateError
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models import model_tokenizer, prompting
from stages.records.preferences import Preference, RawPreference
from stages.records.steps import RawSteps, StepLabels

SOURCE = "human"
RawT = TypeVar("RawT")
RowT = TypeVar("RowT")


@dataclass(kw_only=True, slots=True)
class EncodedLabels(Generic[RawT, RowT]):
    """All pairs, or all solutions, in tokens, in their order."""

    rows: list[RowT] = field(default_factory=list)
    rejected: list[tuple[RawT, str]] = field(default_factory=list)
    """Those that no model can read, with the reason."""
    over_long: list[tuple[RawT, str]] = field(default_factory=list)
    """Those longer than allowed: nothing is wrong with them, and nothing is cut."""


def encode_pairs(
    raws: Sequence[RawPreference], tokenizer: PreTrainedTokenizerBase, *, max_tokens: int
) -> EncodedLabels[RawPreference, tuple[RawPreference, Preference]]:
    """The pairs whose prompt and longer answer have at most `max_tokens` tokens together.

    Each with the raw one that it was made of. A pair is rejected when it is
    `prompting.find_special_token`
    with a special token, or when the chat template refuses its turns.
    """
    encoded = EncodedLabels[RawPreference, tuple[RawPreference, Preference]]()
    specials = prompting.special_token_texts(tokenizer)
    for raw in raws:
        texts = [*(turn.content for turn in raw.turns), raw.chosen, raw.rejected]
        if reason := prompting.find_special_token(specials, *texts):
            encoded.rejected.append((raw, reason))
            continue
        try:
            pair = _encode_pair(raw, tokenizer)
        except TemplateError as error:
            encoded.rejected.append((raw, f"chat template: it refuses these turns: {error}"))
            continue
        length = len(pair.prompt_ids) + max(len(pair.chosen_ids), len(pair.rejected_ids))
        if length > max_tokens:
            reason = f"over-long pair: {length} tokens with its longer answer, at most {max_tokens}"
            encoded.over_long.append((raw, reason))
        else:
            encoded.rows.append((raw, pair))
    return encoded


def _prompt_id(prompt: str) -> str:
    """A name for a prompt's text: pairs of one prompt share it, and so are one problem."""
    return f"prompt-{blake2b(prompt.encode(), digest_size=8).hexdigest()}"


def _encode_pair(raw: RawPreference, tokenizer: PreTrainedTokenizerBase) -> Preference:
    """An answer follows the prompt directly, after `plain_lead` without a chat template."""
    prompt, lead = prompting.get_bos_text(tokenizer) + raw.plain_prompt, raw.plain_lead
    if tokenizer.chat_template is not None:
        prompt = prompting.render_chat(raw.turns, tokenizer)
        lead = prompting.close_thinking(prompt)
    chosen, rejected = lead + raw.chosen, lead + raw.rejected
    prompt_ids, chosen_ids, rejected_ids = prompting.tokenize([prompt, chosen, rejected], tokenizer)
    end = model_tokenizer.eos_id(tokenizer)
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


def encode_steps(
    raws: Sequence[RawSteps],
    tokenizer: PreTrainedTokenizerBase,
    *,
    template: str,
    separator: str,
    max_tokens: int,
) -> EncodedLabels[RawSteps, StepLabels]:
    """The solutions of at most `max_tokens` tokens: prompt, steps, and one more for each step.

    The one more is the step token, at which a process model scores. A solution is rejected when it
    is `prompting.find_special_token` with a special token. Rows of one problem share its id and
    are numbered: where the source has none, the id is of the prompt.
    """
    encoded = EncodedLabels[RawSteps, StepLabels]()
    specials = prompting.special_token_texts(tokenizer)
    numbers = Counter[str]()
    prompts = prompting.render_prompts([raw.question for raw in raws], tokenizer, template)
    for raw, prompt in zip(raws, prompts, strict=True):
        if reason := prompting.find_special_token(specials, raw.question, *raw.steps):
            encoded.rejected.append((raw, reason))
            continue
        *steps, last = raw.steps
        steps = [*(step + separator for step in steps), last + separator * (not raw.finished)]
        prompt_ids, *step_ids = prompting.tokenize([prompt, *steps], tokenizer)
        if raw.finished:
            step_ids[-1].append(model_tokenizer.eos_id(tokenizer))
        length = len(prompt_ids) + sum(len(ids) + 1 for ids in step_ids)
        if length > max_tokens:
            reason = f"over-long solution: {length} tokens with step tokens, at most {max_tokens}"
            encoded.over_long.append((raw, reason))
            continue
        name = raw.id or _prompt_id(prompt)
        encoded.rows.append(
            StepLabels(
                id=name,
                index=numbers[name],
                prompt=prompt,
                prompt_ids=prompt_ids,
                steps=steps,
                step_ids=step_ids,
                labels=raw.labels,
                num_completions=raw.num_completions,
                true_labels=raw.true_labels,
                correct=raw.correct,
                source=raw.source,
            )
        )
        numbers[name] += 1
    return encoded
