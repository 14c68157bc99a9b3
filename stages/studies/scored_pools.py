"""Large pools of completions, each distinct one judged and scored once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from pydantic import Field
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.loops import candidates
from stages.loops.candidates import CandidatesConfig, Pool
from stages.loops.step import Step
from stages.models import model_tokenizer, policy
from stages.models.batch import Group, micro_batches, split_group
from stages.models.device import ComputeConfig
from stages.records import pools
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import answer_checker
from stages.sampler import Sampler
from stages.studies.checkpoint_measures import Scorers


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredPool:
    """One row of `data/studies/overoptimization/rows/<seed>/pools.jsonl`, in drawing order."""

    id: str
    """The problem's id."""
    correct: list[bool]
    """Whether the final answer of each completion is right."""
    reward_model: list[float] | None
    """Scores by the single reward model; null where there is none."""
    ensemble: list[float] | None
    """Scores by the ensemble."""
    num_distinct: int
    """Different completions: only these were scored."""
    generated_tokens: int


DIGITS = 5
"""Decimals kept of a score: those below are rounding, and would break ties at random."""
CHUNK = 16
"""Problems sampled between two signs of progress: their pools are large."""


class BestOfNConfig(CandidatesConfig):
    """How large the pools are, and of how many problems."""

    num_problems: int | None = Field(ge=1)
    """The first so many of the split; null: all."""


def measure(
    sampler: Sampler,
    tokenizer: PreTrainedTokenizerBase,
    scorers: Scorers,
    prompts: Sequence[Prompt],
    config: BestOfNConfig,
    compute: ComputeConfig,
    device: torch.device,
    seed: int,
) -> Iterator[Step]:
    """For each part of the problems, their `ScoredPool`s.

    Args:
        sampler: of the policy.
        tokenizer: the policy's, which is the scorers' too.
        scorers: a reward model and an ensemble, in eval mode.
        prompts: the problems; `config.num_problems` of them are used.
        config: sizes.
        compute: sizes of micro-batches.
        device: where batches go.
        seed: a problem's stream depends on it and the problem's id alone, and is not that of
            any other pool.
    """
    used, decode = prompts[: config.num_problems], policy.decoder(tokenizer)
    pad_id = model_tokenizer.pad_id(tokenizer)
    for index, start in enumerate(range(0, len(used), CHUNK)):
        part = used[start : start + CHUNK]
        pool = Pool(prompts=part, config=config, stream="best_of_n")
        drawn = candidates.draw(sampler, decode, part, pool, seed)
        rows = [
            score(prompt, pool, scorers, compute, pad_id, device)
            for prompt, pool in pools.by_problem(part, drawn)
        ]
        metrics: dict[str, int | float] = {"tokens/generated": candidates.num_tokens(drawn)}
        yield Step(index=index, metrics=metrics, rows=rows)


@torch.no_grad()
def score(
    prompt: Prompt,
    pool: Sequence[Completion],
    scorers: Scorers,
    compute: ComputeConfig,
    pad_id: int,
    device: torch.device,
) -> ScoredPool:
    """One problem's completions, judged and scored."""
    numbers = {ids: number for number, ids in enumerate(dict.fromkeys(map(ids_of, pool)))}
    group = Group(
        prompt_ids=prompt.prompt_ids, completions=list(numbers), indices=range(len(numbers))
    )
    batches = list(micro_batches(split_group(group, compute.row_tokens), compute, pad_id, device))
    found: list[list[float] | None] = []
    for scorer in scorers:
        values = torch.zeros(len(numbers))
        for batch in batches if scorer is not None else ():
            assert scorer is not None
            values[batch.indices] = scorer(batch).values.float().cpu()
        scores = [round(value, DIGITS) for value in values.tolist()]
        found.append(None if scorer is None else [scores[numbers[ids_of(row)]] for row in pool])
    verdicts = {
        text: answer_checker.is_correct(text, prompt.answer)
        for text in dict.fromkeys(row.completion for row in pool)
    }
    return ScoredPool(
        id=prompt.id,
        correct=[verdicts[row.completion] for row in pool],
        reward_model=found[0],
        ensemble=found[1],
        num_distinct=len(numbers),
        generated_tokens=candidates.num_tokens(pool),
    )


def ids_of(row: Completion) -> tuple[int, ...]:
    """What makes two completions the same."""
    return tuple(row.completion_ids)
