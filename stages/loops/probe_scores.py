"""What reward and process models make of a policy's answers, as they are and modified."""

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from stages.algorithms.selection.step_scores import KINDS, Kind
from stages.models import ensemble, model_tokenizer, process_scorer, prompting
from stages.models import scorer as models_scorer
from stages.models.aggregate import Aggregate
from stages.models.batch import Group, split_group
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig, setup
from stages.models.process_head import Solution
from stages.models.start import DATA
from stages.records import pools
from stages.records.completion import Completion
from stages.records.probe_value import ProbeValue
from stages.records.prompt import Prompt
from stages.rewards.probes import process_steps, reward_length
from stages.rewards.probes.given import Words
from stages.rewards.probes.not_run import NO_MODEL

FILLER = "Next step:"
"""A step without content; the separator follows it."""

Problems = Sequence[tuple[Prompt, Sequence[Completion]]]


def different(problems: Problems) -> list[tuple[Prompt, list[Completion]]]:
    """Of each problem the different completions that ended by themselves, as they were drawn."""
    found = []
    for prompt, pool in problems:
        finished, _ = pools.distinct([row for row in pool if row.finish_reason == "stop"])
        found.append((prompt, finished))
    return found


@runtime_checkable
class Models(Protocol):
    """What is said of models in params.yaml."""

    @property
    def ensemble(self) -> Aggregate: ...  # noqa: D102
    @property
    def model(self) -> ModelConfig: ...  # noqa: D102
    @property
    def compute(self) -> ComputeConfig: ...  # noqa: D102


def values(
    problems: Problems,
    words: Words,
    config: Models,
    *,
    num_modified: int,
    max_tokens: int,
    kind: Kind,
) -> Iterator[ProbeValue]:
    """See `rewards/probes/reward_length` and `process_steps`.

    Args:
        problems: with the policy's completions.
        words: name the models; `NO_MODEL`: none is asked.
        config: how scores are made.
        num_modified: so many different completions of a problem are padded, or their steps edited.
        max_tokens: a modified completion that is longer with its prompt is left out.
        kind: how the scores of steps become one.
    """
    compute, aggregate = config.compute, config.ensemble
    problems = different(problems)
    reward_model, process_model = words.reward_model, words.process
    device = setup(compute)
    if reward_model != NO_MODEL:
        score = models_scorer.load(DATA / reward_model, aggregate, compute, device)
        tokenizer = model_tokenizer.load(ensemble.folders(DATA / reward_model)[0])
        end = model_tokenizer.eos_id(tokenizer)

        def encode(texts: Sequence[str]) -> list[list[int]]:
            return [[*ids, end] for ids in prompting.ids(texts, tokenizer)]

        def scores(groups: Sequence[Group]) -> Sequence[float]:
            parts = [part for group in groups for part in split_group(group, compute.row_tokens)]
            return score(parts).values.tolist()

        yield from reward_length.values(
            problems, encode, scores, num_padded=num_modified, max_tokens=max_tokens
        )
    if process_model != NO_MODEL:
        scorer = process_scorer.load(DATA / process_model, compute, device)
        separator = scorer.model.config.step_separator
        own = model_tokenizer.load(DATA / process_model)
        (filler,) = prompting.ids([FILLER + separator], own)

        def aggregated(solutions: Sequence[Solution]) -> Sequence[float]:
            return [KINDS[kind](steps) for steps in scorer(solutions)]

        first = [(prompt, pool[:num_modified]) for prompt, pool in problems]
        yield from process_steps.values(
            first, scorer.split, aggregated, filler=filler, max_tokens=max_tokens
        )
