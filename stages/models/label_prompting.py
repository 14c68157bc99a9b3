"""Pairs of answers and labelled solutions, as a source has them, in tokens.

The prompt of a pair is rendered by the tokenizer's chat template when it has one, else it is the
source's plain form (a transcript, or the text itself) after the begin-of-sequence token where the
tokenizer starts a text with it. Prompt and answers are tokenised apart, as they are when a model
samples, and an answer ends with the end-of-sequence token.

The prompt of a solution is rendered as prepare_data renders one. A solution is tokenised step by
step, each step with the separator behind it and the last of a finished solution with the
end-of-sequence token: joined text might put a step's end into the middle of a token.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from jinja2 import TemplateError
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models import model_tokenizer, prompting
from stages.records.preferences import Preference, RawPreference
from stages.records.steps import RawSteps, StepLabels

SOURCE = "human"


@dataclass(kw_only=True, slots=True)
class EncodedPairs:
    """All pairs in tokens, in their order, each with the raw one that it was made of."""

    pairs: list[tuple[RawPreference, Preference]] = field(default_factory=list)
    rejected: list[tuple[RawPreference, str]] = field(default_factory=list)
    """Pairs that no model can read, with the reason."""
    over_long: list[tuple[RawPreference, str]] = field(default_factory=list)
    """Pairs longer than allowed: nothing is wrong with them, and nothing is cut."""


def encode_pairs(
    raws: Sequence[RawPreference], tokenizer: PreTrainedTokenizerBase, *, max_tokens: int
) -> EncodedPairs:
    """The pairs whose prompt and longer answer have at most `max_tokens` tokens together.

    A pair is rejected when a text spells one of the tokenizer's special tokens (it would be read
    as that token), or when the chat template refuses its turns.
    """
    encoded = EncodedPairs()
    specials = prompting.special_texts(tokenizer)
    for raw in raws:
        texts = [*(turn.content for turn in raw.turns), raw.chosen, raw.rejected]
        spelled = [token for token in specials if any(token in text for text in texts)]
        if spelled:
            encoded.rejected.append((raw, f"special token: the text contains {spelled[0]!r}"))
            continue
        try:
            prompt = render_pair(raw, tokenizer)
        except TemplateError as error:
            encoded.rejected.append((raw, f"chat template: it refuses these turns: {error}"))
            continue
        pair = _encode_pair(raw, prompt, tokenizer)
        length = len(pair.prompt_ids) + max(len(pair.chosen_ids), len(pair.rejected_ids))
        if length > max_tokens:
            reason = f"over-long pair: {length} tokens with its longer answer, at most {max_tokens}"
            encoded.over_long.append((raw, reason))
        else:
            encoded.pairs.append((raw, pair))
    return encoded


def render_pair(raw: RawPreference, tokenizer: PreTrainedTokenizerBase) -> str:
    """The prompt's text; an answer follows it directly, after `plain_lead` without a template."""
    if tokenizer.chat_template is None:
        return prompting.bos(tokenizer) + raw.plain_prompt
    messages = [{"role": turn.role, "content": turn.content} for turn in raw.turns]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return str(text)


def prompt_id(prompt: str) -> str:
    """A name for a prompt's text: pairs of one prompt share it, and so are one problem."""
    return f"prompt-{blake2b(prompt.encode(), digest_size=8).hexdigest()}"


def _encode_pair(raw: RawPreference, prompt: str, tokenizer: PreTrainedTokenizerBase) -> Preference:
    lead = raw.plain_lead if tokenizer.chat_template is None else ""
    chosen, rejected = lead + raw.chosen, lead + raw.rejected
    prompt_ids, chosen_ids, rejected_ids = prompting.ids([prompt, chosen, rejected], tokenizer)
    end = model_tokenizer.eos_id(tokenizer)
    return Preference(
        id=prompt_id(prompt),
        prompt=prompt,
        prompt_ids=prompt_ids,
        chosen=chosen,
        chosen_ids=[*chosen_ids, end],
        rejected=rejected,
        rejected_ids=[*rejected_ids, end],
        probability=raw.probability,
        source=SOURCE,
    )


@dataclass(kw_only=True, slots=True)
class EncodedSteps:
    """All solutions in tokens, in their order."""

    rows: list[StepLabels] = field(default_factory=list)
    rejected: list[tuple[RawSteps, str]] = field(default_factory=list)
    """Solutions that no model can read, with the reason."""
    over_long: list[tuple[RawSteps, str]] = field(default_factory=list)
    """Solutions longer than allowed: nothing is wrong with them, and nothing is cut."""


def encode_steps(
    raws: Sequence[RawSteps],
    tokenizer: PreTrainedTokenizerBase,
    *,
    template: str,
    separator: str,
    max_tokens: int,
) -> EncodedSteps:
    """The solutions of at most `max_tokens` tokens: prompt, steps, and one more for each step.

    The one more is the step token, at which a process model scores. A solution is rejected when
    a text spells one of the tokenizer's special tokens: it would be read as that token. Rows of
    one problem share its id and are numbered: where the source has none, the id is of the prompt.
    """
    encoded = EncodedSteps()
    specials = prompting.special_texts(tokenizer)
    numbers = Counter[str]()
    prompts = prompting.render([raw.question for raw in raws], tokenizer, template)
    for raw, prompt in zip(raws, prompts, strict=True):
        texts = [raw.question, *raw.steps]
        spelled = [token for token in specials if any(token in text for text in texts)]
        if spelled:
            encoded.rejected.append((raw, f"special token: the text contains {spelled[0]!r}"))
            continue
        steps = _separated(raw, separator)
        prompt_ids, *step_ids = prompting.ids([prompt, *steps], tokenizer)
        if raw.finished:
            step_ids[-1].append(model_tokenizer.eos_id(tokenizer))
        length = len(prompt_ids) + sum(len(ids) + 1 for ids in step_ids)
        if length > max_tokens:
            reason = f"over-long solution: {length} tokens with step tokens, at most {max_tokens}"
            encoded.over_long.append((raw, reason))
            continue
        name = raw.id or prompt_id(prompt)
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


def _separated(raw: RawSteps, separator: str) -> list[str]:
    *steps, last = raw.steps
    return [*(step + separator for step in steps), last if raw.finished else last + separator]
