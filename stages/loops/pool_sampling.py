"""Pools of completions: N samples of each problem, or the greedy completion, by one policy."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import Field

from stages import rows
from stages.loops import work
from stages.loops.rollouts import Decode, RolloutConfig
from stages.loops.run import Run
from stages.loops.work import Step
from stages.models.size import Size
from stages.records import lines
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.sampler import Sampler
from stages.seeding import derive_seed

logger = logging.getLogger(__name__)

SHOWN = "POSTTRAIN_SHOW_COMPLETIONS"
"""Environment variable: number of completions of each part of a pool that are logged."""
# Problems per call of the engine: enough to fill its batches, few enough to show progress.
CHUNK = 128


class PoolSamplingConfig(RolloutConfig):
    """Sampling of a pool."""

    num_samples: int = Field(gt=0)
    """N, completions of each problem."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolRequest:
    """Completions to draw for a file."""

    prompts: Sequence[Prompt]
    config: PoolSamplingConfig
    stream: str
    """Name of the random streams: policies with the same name and seed have the same streams."""
    greedy: bool = False
    """Whether to draw the greedy completion of each problem instead of samples."""

    def count(self) -> int:
        """Number of completions of each problem."""
        return 1 if self.greedy else self.config.num_samples


def read_request(
    split: str, config: PoolSamplingConfig, stream: str, *, greedy: bool = False
) -> PoolRequest:
    """A request for a pool of the problems of a split."""
    prompts = list(lines.read_lines(rows.PROMPTS / f"{split}.jsonl", Prompt))
    return PoolRequest(prompts=prompts, config=config, stream=stream, greedy=greedy)


def max_length(pools: Iterable[PoolRequest]) -> int:
    """Tokens of the longest prompt with its longest possible completion."""
    return max(
        len(prompt.prompt_ids) + pool.config.max_new_tokens
        for pool in pools
        for prompt in pool.prompts
    )


def write_pools(
    pools: Mapping[str, PoolRequest],
    sampler: Sampler,
    decode: Decode,
    size: Size,
    run: Run,
) -> dict[str, Any]:
    """Draw each pool and write it to `<name>.jsonl`; returns the content of metrics.json."""
    metrics: dict[str, Any] = {}
    done: list[dict[str, int | float]] = []
    after = sum(pool.count() * len(pool.prompts) for pool in pools.values())
    for name, pool in pools.items():
        draw_from = partial(sample, sampler, decode, pool, run.seed, name)
        after -= pool.count() * len(pool.prompts)
        starts = range(0, len(pool.prompts), CHUNK)
        sizes = [pool.count() * len(pool.prompts[start : start + CHUNK]) for start in starts]
        steps, finished = run.parts(name, draw_from, Completion), list[Step]()
        for step in run.track(steps, label=name, unit="completions", sizes=sizes, after=after):
            cut, number = sum(row.finish_reason == "length" for row in step.rows), len(step.rows)
            run.progress.watch(
                {"length": num_tokens(step.rows) / number, "truncated": cut / number}
            )
            show_completions(f"seed {run.seed}, {name}", pool, step.rows)
            finished.append(step)
        completions = [row for step in finished for row in step.rows]
        run.write(f"{name}.jsonl", completions)
        cut = sum(row.finish_reason == "length" for row in completions)
        metrics[name] = {
            "problems": len({row.id for row in completions}),
            "completions": len(completions),
            "tokens": num_tokens(completions),
            "mean_tokens": num_tokens(completions) / len(completions),
            "truncated": cut / len(completions),
        }
        done += [step.metrics for step in finished]
    metrics["generated_tokens"] = sum(metrics[name]["tokens"] for name in pools)
    metrics["work"] = work.sum_work(done, {"policy": size})
    return metrics


def sample(
    sampler: Sampler, decode: Decode, pool: PoolRequest, seed: int, name: str, first: int = 0
) -> Iterator[Step]:
    """Steps with the completions of `CHUNK` of the pool's problems as rows.

    Begins with step `first`; no step depends on earlier ones.
    """
    for index, start in list(enumerate(range(0, len(pool.prompts), CHUNK)))[first:]:
        prompts = pool.prompts[start : start + CHUNK]
        completions = draw(sampler, decode, prompts, pool, seed)
        passes = work.count_sampling(
            [prompt.prompt_ids for prompt in prompts], [row.completion_ids for row in completions]
        )
        metrics: dict[str, int | float] = {f"tokens/{name}": num_tokens(completions), **passes}
        yield Step(index=index, metrics=metrics, rows=completions)


def draw(
    sampler: Sampler, decode: Decode, prompts: Sequence[Prompt], pool: PoolRequest, seed: int
) -> list[Completion]:
    """`num_samples` completions of each prompt, or the greedy one, in order of prompts.

    A problem's random stream depends on `seed`, the pool's `stream` and its id.
    """
    config = pool.config
    seeds = [derive_seed(seed, "sample", pool.stream, prompt.id) for prompt in prompts]
    samples_by_prompt = sampler.sample(
        [prompt.prompt_ids for prompt in prompts],
        seeds,
        num_samples=pool.count(),
        temperature=0.0 if pool.greedy else config.temperature,
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
        for prompt, seed, samples in zip(prompts, seeds, samples_by_prompt, strict=True)
        for number, sample in enumerate(samples)
    ]


def show_completions(where: str, pool: PoolRequest, completions: Sequence[Completion]) -> None:
    """Log the first completion of as many problems of a part of a pool as `SHOWN` says."""
    prompts = {prompt.id: prompt for prompt in pool.prompts}
    first = [row for row in completions if row.index == 0]
    for row in first[: int(os.environ.get(SHOWN) or 0)]:
        prompt = prompts[row.id]
        gold = prompt.answer or "none"
        text = f"{prompt.question} (gold answer: {gold})\n{row.completion}"
        logger.info("%s, %s: %s", where, row.id, text)


def num_tokens(completions: Sequence[Completion]) -> int:
    """Number of generated tokens."""
    return sum(len(row.completion_ids) for row in completions)
