"""Pools of completions: the greedy one and N samples of each problem, by one policy."""

from collections.abc import Callable, Iterator, Sequence

from pydantic import Field

from stages.loops import work
from stages.loops.step import Step
from stages.params import Params
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.sampler import Sampler
from stages.seeding import derive

# Problems handed to the engine at once: large enough to fill its batches, small enough
# for progress to be seen.
CHUNK = 128


class CandidatesConfig(Params):
    """How a split is sampled."""

    num_samples: int = Field(gt=0)
    """N, completions of each problem."""
    temperature: float = Field(gt=0)
    """Of sampling; the greedy completion is always drawn besides."""
    max_new_tokens: int = Field(gt=0)
    """Longest completion."""


def chunks(prompts: Sequence[Prompt]) -> list[Sequence[Prompt]]:
    """The problems, as many at once as the engine is given."""
    return [prompts[start : start + CHUNK] for start in range(0, len(prompts), CHUNK)]


def sample(
    sampler: Sampler,
    decode: Callable[[Sequence[int]], str],
    parts: Sequence[Sequence[Prompt]],
    config: CandidatesConfig,
    seed: int,
    split: str,
) -> Iterator[tuple[Step, Step]]:
    """For each part, its greedy completions and its samples, as the rows of two steps.

    A problem's stream depends on `seed`, `split` and its id: not on the part it is in.
    """
    for index, prompts in enumerate(parts):
        greedy = draw(sampler, decode, prompts, config, seed, split, num_samples=1, temperature=0.0)
        pool = draw(
            sampler,
            decode,
            prompts,
            config,
            seed,
            split,
            num_samples=config.num_samples,
            temperature=config.temperature,
        )
        yield (
            _step(index, "greedy", prompts, greedy),
            _step(index, "generated", prompts, pool),
        )


def _step(index: int, kind: str, prompts: Sequence[Prompt], rows: list[Completion]) -> Step:
    passes = work.sampled(
        [prompt.prompt_ids for prompt in prompts], [row.completion_ids for row in rows]
    )
    return Step(index=index, metrics={f"tokens/{kind}": num_tokens(rows), **passes}, rows=rows)


def draw(
    sampler: Sampler,
    decode: Callable[[Sequence[int]], str],
    prompts: Sequence[Prompt],
    config: CandidatesConfig,
    seed: int,
    split: str,
    *,
    num_samples: int,
    temperature: float,
) -> list[Completion]:
    """`num_samples` completions of each prompt, prompt-major."""
    seeds = [derive(seed, "sample", split, prompt.id) for prompt in prompts]
    drawn = sampler.sample(
        [prompt.prompt_ids for prompt in prompts],
        seeds,
        num_samples=num_samples,
        temperature=temperature,
        max_new_tokens=config.max_new_tokens,
    )
    return [
        Completion(
            id=prompt.id,
            index=number,
            completion=decode(sample.token_ids),
            completion_ids=sample.token_ids,
            logprob_sum=round(sum(sample.logprobs), 6),
            finish_reason=sample.ending,
            seed=seed,
        )
        for prompt, seed, samples in zip(prompts, seeds, drawn, strict=True)
        for number, sample in enumerate(samples)
    ]


def num_tokens(rows: Sequence[Completion]) -> int:
    """Tokens generated."""
    return sum(len(row.completion_ids) for row in rows)
