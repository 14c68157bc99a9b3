"""Monte Carlo estimates of step labels: how many completions of a solution's prefix are right.

The policy completes the prefix up to the end of each step K times: Wang et al., "Math-Shepherd"
(2024), eq. 3 and 4, https://arxiv.org/abs/2312.08935.

Prefixes of a problem with the same tokens are completed once, and share their count: their
completions have the same distribution. Prefixes of the same text in other tokens do not, since the
policy may continue them differently. The rest of the solution does not count as a completion:
solutions are selected by how they ended, so a label would depend on the solution that it judges.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from pydantic import Field

from stages.algorithms.statistics import intervals
from stages.config import Params
from stages.loops import work
from stages.loops.rollouts import Decode
from stages.loops.work import Step
from stages.models.size import Size
from stages.records.problems import Prompt
from stages.records.steps import PrefixCount
from stages.rewards import answer_checker
from stages.sampler import Sampler
from stages.seeding import derive_seed

CHUNK = 256
"""Prefixes sampled at a time: they fill an engine's batches, and a kill loses at most these."""
Prefix = tuple[Prompt, tuple[int, ...]]
"""Problem, and the tokens of the first steps of a solution."""
Parts = Sequence[Sequence[Prefix]]
"""Chunks of prefixes that the engine samples from at once, in order."""


class StepLabelsConfig(Params):
    """Labelling of the steps of a pool's solutions."""

    num_problems: int | None = Field(gt=0)
    num_heldout_problems: int | None = Field(gt=0)
    """Number of problems to learn from, and of held-out problems: the first ones; null: all."""
    max_solutions_per_problem: int = Field(ge=1)
    """Largest number of distinct solutions of a problem that are labelled."""
    num_completions: int = Field(ge=0)
    """K, completions per prefix; 0: nothing is sampled, and the labels are the known truth."""
    temperature: float = Field(gt=0)
    """Sampling temperature of the completions."""
    separator: str = Field(min_length=1)
    """Text that ends a step."""
    label: Literal["hard", "soft"]
    """Label of a step. `hard`: 1 if any completion is right, else 0 (eq. 3); `soft`: the share of
    right completions (eq. 4)."""


def chunk_prefixes(prefixes: Iterable[Prefix]) -> Parts:
    """Distinct prefixes, in chunks of `CHUNK`."""
    distinct = list({(prompt.id, ids): (prompt, ids) for prompt, ids in prefixes}.values())
    return [distinct[start : start + CHUNK] for start in range(0, len(distinct), CHUNK)]


def count_right(
    sampler: Sampler,
    decode: Decode,
    parts: Parts,
    config: StepLabelsConfig,
    limit: int,
    seed: int,
    start: int,
) -> Iterator[Step]:
    """Counts of right completions of each prefix: one step per part, from number `start` on.

    A prefix with its completion has at most `limit` tokens, as whole solutions have. A prefix's
    random stream depends only on `seed`, its problem's id and its tokens.
    """
    for index, prefixes in enumerate(parts[start:], start=start):
        samples_by_prefix = sampler.sample(
            [[*prompt.prompt_ids, *prefix] for prompt, prefix in prefixes],
            [
                derive_seed(seed, "steps_completions", prompt.id, *prefix)
                for prompt, prefix in prefixes
            ],
            num_samples=config.num_completions,
            temperature=config.temperature,
            max_new_tokens=[limit - len(prefix) for _, prefix in prefixes],
        )
        rows: list[PrefixCount] = []
        for (prompt, prefix_ids), samples in zip(prefixes, samples_by_prefix, strict=True):
            texts = [decode([*prefix_ids, *sample.token_ids]) for sample in samples]
            num_right = sum(answer_checker.solves_problem(prompt, text) for text in texts)
            low, high = intervals.wilson_interval(num_right, len(samples), confidence=0.95)
            rows.append(
                PrefixCount(
                    id=prompt.id, prefix_ids=[*prefix_ids], num_completions=len(samples),
                    num_right=num_right, low=round(low, 6), high=round(high, 6),
                    generated_tokens=sum(len(sample.token_ids) for sample in samples),
                )
            )  # fmt: skip
        num_drawn = sum(row.num_completions for row in rows)
        metrics = {
            "tokens/generated": sum(row.generated_tokens for row in rows),
            "completions/right": sum(row.num_right for row in rows) / num_drawn,
            "prefixes/none_right": sum(row.num_right == 0 for row in rows) / len(rows),
        }
        yield Step(index=index, metrics=metrics, rows=rows)


def max_length(parts: Parts, limit: int) -> int:
    """Number of tokens of the longest prompt with a solution of `limit` tokens."""
    return max((len(prompt.prompt_ids) for part in parts for prompt, _ in part), default=0) + limit


def summarise_passes(parts: Parts, counts: Sequence[PrefixCount], size: Size) -> dict[str, Any]:
    """Entries `generated_tokens`, `trained_tokens` and `work` of a metrics.json.

    A prompt with its prefix is prefilled once; `work` is empty if nothing was sampled.
    """
    generated = sum(row.generated_tokens for row in counts)
    num_read = sum(len(prompt.prompt_ids) + len(ids) for part in parts for prompt, ids in part)
    positions = num_read + generated - sum(row.num_completions for row in counts)
    passes = work.count_passes("policy", "sampled", positions=positions, outputs=generated)
    total = work.sum_work([passes], {"policy": size}) if counts else {}
    return {"generated_tokens": generated, "trained_tokens": 0, "work": total}
