"""What counting the completions of prefixes took."""

from collections.abc import Sequence
from typing import Any

from stages.loops import work
from stages.loops.step_labels import Parts
from stages.models import size
from stages.models.config import ModelConfig
from stages.records.steps import PrefixCount


def summary(
    parts: Parts, counts: Sequence[PrefixCount], start: str, config: ModelConfig
) -> dict[str, Any]:
    """`work` of a metrics.json: a prompt with its prefix is read once; empty where none was.

    Args:
        parts: the prefixes that were completed.
        counts: what became of them.
        start: the policy's folder under data/, or the base model.
        config: says what the base model is.
    """
    if not counts:
        return {}
    read = sum(len(prompt.prompt_ids) + len(ids) for part in parts for prompt, ids in part)
    generated = sum(row.generated_tokens for row in counts)
    drawn = sum(row.num_completions for row in counts)
    positions = read + generated - drawn
    passes = work.passed("policy", "sampled", positions=positions, outputs=generated)
    return work.summary([passes], {"policy": size.of_start(start, config)})
