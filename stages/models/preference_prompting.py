"""Pairs of answers as a source has them, in tokens.

The prompt is rendered by the tokenizer's chat template when it has one, else it is the source's
plain form (a transcript, or the text itself) after the begin-of-sequence token where the
tokenizer starts a text with it. Prompt and answers are tokenised apart, as they are when a model
samples, and an answer ends with the end-of-sequence token.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from jinja2 import TemplateError
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models import model_tokenizer, prompting
from stages.records.preferences import Preference, RawPreference

SOURCE = "human"


@dataclass(kw_only=True, slots=True)
class Encoded:
    """All pairs in tokens, in their order, each with the raw one that it was made of."""

    pairs: list[tuple[RawPreference, Preference]] = field(default_factory=list)
    rejected: list[tuple[RawPreference, str]] = field(default_factory=list)
    """Pairs that no model can read, with the reason."""
    over_long: list[tuple[RawPreference, str]] = field(default_factory=list)
    """Pairs longer than allowed: nothing is wrong with them, and nothing is cut."""


def encode(
    raws: Sequence[RawPreference], tokenizer: PreTrainedTokenizerBase, *, max_tokens: int
) -> Encoded:
    """The pairs whose prompt and longer answer have at most `max_tokens` tokens together.

    A pair is rejected when a text spells one of the tokenizer's special tokens (it would be read
    as that token), or when the chat template refuses its turns.
    """
    encoded = Encoded()
    specials = prompting.special_texts(tokenizer)
    for raw in raws:
        texts = [*(turn.content for turn in raw.turns), raw.chosen, raw.rejected]
        spelled = [token for token in specials if any(token in text for text in texts)]
        if spelled:
            encoded.rejected.append((raw, f"special token: the text contains {spelled[0]!r}"))
            continue
        try:
            prompt = render(raw, tokenizer)
        except TemplateError as error:
            encoded.rejected.append((raw, f"chat template: it refuses these turns: {error}"))
            continue
        pair = _encode(raw, prompt, tokenizer)
        length = len(pair.prompt_ids) + max(len(pair.chosen_ids), len(pair.rejected_ids))
        if length > max_tokens:
            reason = f"over-long pair: {length} tokens with its longer answer, at most {max_tokens}"
            encoded.over_long.append((raw, reason))
        else:
            encoded.pairs.append((raw, pair))
    return encoded


def render(raw: RawPreference, tokenizer: PreTrainedTokenizerBase) -> str:
    """The prompt's text; an answer follows it directly, after `plain_lead` without a template."""
    if tokenizer.chat_template is None:
        return prompting.bos(tokenizer) + raw.plain_prompt
    messages = [{"role": turn.role, "content": turn.content} for turn in raw.turns]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return str(text)


def prompt_id(prompt: str) -> str:
    """A name for a prompt's text: pairs of one prompt share it, and so are one problem."""
    return f"prompt-{blake2b(prompt.encode(), digest_size=8).hexdigest()}"


def _encode(raw: RawPreference, prompt: str, tokenizer: PreTrainedTokenizerBase) -> Preference:
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
