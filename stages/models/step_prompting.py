"""Labelled solutions as a source has them, in tokens.

The prompt is rendered as prepare_data renders one. A solution is tokenised step by step, each
step with the separator behind it and the last of a finished solution with the end-of-sequence
token: joined text might put a step's end into the middle of a token.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models import model_tokenizer, preference_prompting, prompting
from stages.records.steps import RawSteps, StepLabels


@dataclass(kw_only=True, slots=True)
class Encoded:
    """All solutions in tokens, in their order."""

    rows: list[StepLabels] = field(default_factory=list)
    rejected: list[tuple[RawSteps, str]] = field(default_factory=list)
    """Solutions that no model can read, with the reason."""
    over_long: list[tuple[RawSteps, str]] = field(default_factory=list)
    """Solutions longer than allowed: nothing is wrong with them, and nothing is cut."""


def encode(
    raws: Sequence[RawSteps],
    tokenizer: PreTrainedTokenizerBase,
    *,
    template: str,
    separator: str,
    max_tokens: int,
) -> Encoded:
    """The solutions of at most `max_tokens` tokens: prompt, steps, and one more for each step.

    The one more is the step token, at which a process model scores. A solution is rejected when
    a text spells one of the tokenizer's special tokens: it would be read as that token. Rows of
    one problem share its id and are numbered: where the source has none, the id is of the prompt.
    """
    encoded = Encoded()
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
        name = raw.id or preference_prompting.prompt_id(prompt)
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
