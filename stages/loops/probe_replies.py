"""A policy's greedy replies to problems that are asked otherwise."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from stages.loops import candidates
from stages.loops.candidates import CandidatesConfig
from stages.loops.step import Step
from stages.records import pools
from stages.records.completion import Completion
from stages.records.prompt import Prompt
from stages.rewards.probes.asked import Asked
from stages.sampler import Sampler

# Questions handed to the engine at once: enough to fill its batches.
CHUNK = 1024

Reply = tuple[Asked, str]
"""What was asked, and what the policy said."""


def longest(
    prompts: Sequence[Sequence[int]],
    dev: Sequence[Prompt],
    max_new_tokens: int,
    drawing: CandidatesConfig,
) -> int:
    """Tokens of the longest prompt of either kind with its longest reply."""
    asked = max((len(ids) for ids in prompts), default=0) + max_new_tokens
    drawn = max((len(prompt.prompt_ids) for prompt in dev), default=0) + drawing.max_new_tokens
    return max(asked, drawn)


def replies(
    sampler: Sampler,
    decode: Callable[[Sequence[int]], str],
    asked: Sequence[Asked],
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
) -> Iterator[Step]:
    """The replies, part by part, in order, as the rows of a step.

    Args:
        sampler: the policy.
        decode: tokens to text without special tokens.
        asked: the questions.
        prompts: the tokens of each one's prompt.
        max_new_tokens: longest reply.
    """
    for index, start in enumerate(range(0, len(asked), CHUNK)):
        part = asked[start : start + CHUNK]
        part_ids = prompts[start : start + CHUNK]
        drawn = sampler.sample(
            part_ids,
            [0] * len(part),
            num_samples=1,
            temperature=0.0,
            max_new_tokens=max_new_tokens,
        )
        rows = [(one, decode(sample.token_ids)) for one, (sample,) in zip(part, drawn, strict=True)]
        generated = sum(len(sample.token_ids) for (sample,) in drawn)
        yield Step(index=index, metrics={"tokens/generated": generated}, rows=rows)


def by_kind(rows: Sequence[Reply]) -> dict[str, list[Reply]]:
    """The replies of each wording, in order."""
    found: dict[str, list[Reply]] = defaultdict(list)
    for asked, reply in rows:
        found[asked.kind].append((asked, reply))
    return dict(found)


def draw_dev(
    sampler: Sampler,
    decode: Callable[[Sequence[int]], str],
    prompts: Sequence[Prompt],
    drawing: CandidatesConfig,
    seed: int,
) -> list[tuple[Prompt, list[Completion]]]:
    """Samples of each dev problem: the very draws that sample_candidates would make of them."""
    rows = [
        row
        for part in candidates.chunks(prompts)
        for row in candidates.draw(
            sampler,
            decode,
            part,
            drawing,
            seed,
            "dev",
            num_samples=drawing.num_samples,
            temperature=drawing.temperature,
        )
    ]
    return pools.by_problem(prompts, rows)


def num_tokens(problems: Sequence[tuple[Prompt, Sequence[Completion]]]) -> int:
    """Tokens generated."""
    return sum(candidates.num_tokens(rows) for _, rows in problems)
