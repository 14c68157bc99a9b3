"""What counting the completions of prefixes took."""

from collections.abc import Sequence
from typing import Any

from stages.loops import work
from stages.loops.step_labels import Parts
from stages.models.size import Size
from stages.records.steps import PrefixCount


def summary(parts: Parts, counts: Sequence[PrefixCount], size: Size) -> dict[str, Any]:
    """`work` of a metrics.json: a prompt with its prefix is read once; empty where none was.

    Args:
        parts: the prefixes that were completed.
        counts: what became of them.
        size: of the policy that completed them.
    """
    if not counts:
        return {}
    read = sum(len(prompt.prompt_ids) + len(ids) for part in parts for prompt, ids in part)
    generated = sum(row.generated_tokens for row in counts)
    drawn = sum(row.num_completions for row in counts)
    positions = read + generated - drawn
    passes = work.passed("policy", "sampled", positions=positions, outputs=generated)
    return work.summary([passes], {"policy": size})
