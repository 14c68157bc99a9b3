"""The largest micro-batch and the fullest decoding that lengths and limits lead to."""

from stages.algorithms.memory.activations import MicroBatch
from stages.algorithms.memory.generation import Decoding


def micro_batch(
    prompt: int,
    completion: int,
    *,
    per_prompt: int,
    num_prompts: int,
    max_tokens: int,
    row_tokens: int,
    pack_tokens: int = 0,
) -> MicroBatch:
    """The most that `models/batch.micro_batches` puts together, everything as long as it may be.

    Args:
        prompt, completion: tokens of the longest.
        per_prompt: completions of a prompt that are in a batch together.
        num_prompts: in an optimizer step: not more are there to be put together.
        max_tokens, row_tokens, pack_tokens: see `ComputeConfig`.
    """
    together = max(1, min(per_prompt, (row_tokens - prompt) // completion))
    group = prompt + together * completion
    packed = max(1, min(pack_tokens, max_tokens) // group)
    rows = max(1, max_tokens // (packed * group))
    rows = min(rows, -(-num_prompts * per_prompt // (together * packed)))
    return MicroBatch(
        positions=rows * packed * group,
        row=packed * group,
        outputs=rows * packed * together * completion,
        shared=together * packed > 1,
    )


def decoding(
    prompt: int, completion: int, *, samples: int, num_prompts: int, max_batch: int
) -> Decoding:
    """The most that the transformers engine decodes at once: whole groups, one at least."""
    at_once = min(num_prompts, max(1, max_batch // samples))
    return Decoding(rows=at_once * samples, samples=samples, prompt=prompt, new=completion)
