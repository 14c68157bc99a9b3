"""What reward and process models make of a policy's answers, as they are and modified."""

from collections.abc import Iterator, Sequence

import torch

from stages.models import model_tokenizer, process_scorer, prompting
from stages.models import scorer as models_scorer
from stages.models.aggregate import Aggregate
from stages.models.batch import Group, split_group
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig
from stages.models.process_head import Solution
from stages.models.process_scorer import AGGREGATES, ProcessScore
from stages.models.start import DATA
from stages.records.completion import Completion
from stages.records.probe_value import ProbeValue
from stages.records.prompt import Prompt
from stages.rewards.preference_pairs import distinct
from stages.rewards.probes import process_steps, reward_length
from stages.rewards.probes.not_run import NO_MODEL

FILLER = "Next step:"
"""A step without content; the separator follows it."""

Problems = Sequence[tuple[Prompt, Sequence[Completion]]]


def chosen(problems: Problems, samples_per_problem: int) -> list[tuple[Prompt, list[Completion]]]:
    """Of each problem the first different completions that ended by themselves."""
    found = []
    for prompt, pool in problems:
        finished = distinct([row for row in pool if row.finish_reason == "stop"])
        finished.sort(key=lambda row: row.index)
        found.append((prompt, finished[:samples_per_problem]))
    return found


def by_reward(
    problems: Problems,
    word: str,
    aggregate: Aggregate,
    model: ModelConfig,
    compute: ComputeConfig,
    device: torch.device,
    *,
    max_tokens: int,
) -> Iterator[ProbeValue]:
    """See `rewards/probes/reward_length`; the reward model that `word` names is asked, if any."""
    if word == NO_MODEL:
        return
    unused = ProcessScore(kind="last")
    score = models_scorer.load(word, aggregate, unused, model, compute, device)
    tokenizer = models_scorer.tokenizer(word)
    end = model_tokenizer.eos_id(tokenizer)

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [[*ids, end] for ids in prompting.ids(texts, tokenizer)]

    def scores(groups: Sequence[Group]) -> Sequence[float]:
        parts = [part for group in groups for part in split_group(group, compute.row_tokens)]
        return score(parts).values.tolist()

    yield from reward_length.values(problems, encode, scores, max_tokens=max_tokens)


def by_process(
    problems: Problems,
    word: str,
    process_score: ProcessScore,
    compute: ComputeConfig,
    device: torch.device,
    *,
    max_tokens: int,
) -> Iterator[ProbeValue]:
    """See `rewards/probes/process_steps`; the process model that `word` names is asked, if any."""
    if word == NO_MODEL:
        return
    scorer = process_scorer.load(DATA / word, compute, device)
    aggregate = AGGREGATES[process_score.kind]
    separator = scorer.model.config.step_separator
    (filler,) = prompting.ids([FILLER + separator], model_tokenizer.load(DATA / word))

    def scores(solutions: Sequence[Solution]) -> Sequence[float]:
        return [aggregate(own) for own in scorer(solutions)]

    yield from process_steps.values(
        problems, scorer.split, scores, filler=filler, max_tokens=max_tokens
    )
