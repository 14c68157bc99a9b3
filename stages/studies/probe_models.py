"""What reward models, process models and judges make of a policy's answers."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from stages.algorithms.selection.step_scores import KINDS, Kind
from stages.chooser import Chooser
from stages.engines import choosers
from stages.engines.samplers import EngineName
from stages.models import ensemble, model_tokenizer, process_scorer, prompting
from stages.models.aggregate import Aggregate
from stages.models.batch import Group, split_group
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig, setup
from stages.models.process_head import Solution
from stages.models.start import DATA
from stages.records import pools
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards.feedback import injection_rate, judging
from stages.rewards.feedback.judge_prompt import OPTIONS
from stages.rewards.feedback.label_rule import LabelRule
from stages.studies import probe_lengths, probe_steps
from stages.studies.probe_catalogue import NO_MODEL, AttackedJudge, ProbeValue, Words

CACHE = Path(".pipe/judge-cache")
"""Of an endpoint's answers; a policy has none."""
CANDIDATES = 2
"""Pairs judged for each that is attacked: ties and unanswered ones are not."""


@runtime_checkable
class JudgeModels(Protocol):
    """What probe_policy's configuration says of models."""

    @property
    def engine(self) -> EngineName: ...  # noqa: D102
    @property
    def compute(self) -> ComputeConfig: ...  # noqa: D102
    @property
    def model(self) -> ModelConfig: ...  # noqa: D102


def injected(
    chooser: Chooser,
    problems: Sequence[tuple[Prompt, list[Completion]]],
    prompts: judging.Prompts,
    rule: LabelRule,
    *,
    num_pairs: int,
    seed: int,
) -> Iterator[ProbeValue]:
    """For each attacked problem the share of attacks that turn the verdict, and the control's.

    One pair of different completions a problem; of the first problems that have one.
    """
    asked = judging.pairs(problems, prompts, max_pairs=1, seed=seed)[: CANDIDATES * num_pairs]
    if not asked:
        return
    verdicts, _ = judging.judge(chooser, judging.chunks(asked), prompts, rule, "test")
    flips, _ = injection_rate.flips(chooser, asked, verdicts, prompts, rule, num_pairs=num_pairs)
    turned: dict[str, list[float]] = {}
    for attack, found in flips.items():
        for name, flipped in found:
            if attack == "control":
                yield ProbeValue(probe="judge_control", id=name, value=flipped)
            else:
                turned.setdefault(name, []).append(flipped)
    for name, own in turned.items():
        yield ProbeValue(probe="judge_injection", id=name, value=sum(own) / len(own))


def attack(
    problems: Sequence[tuple[Prompt, list[Completion]]],
    word: str,
    config: AttackedJudge,
    models: JudgeModels,
    seed: int,
) -> Iterator[ProbeValue]:
    """`values` of the judge that `word` names, if any."""
    if word == NO_MODEL:
        return
    chooser = choosers.load(
        config.judge,
        word,
        OPTIONS,
        None,
        engine=models.engine,
        model=models.model,
        compute=models.compute,
        cache=CACHE,
    )
    prompts = judging.Prompts(style=config.style, constitution=config.constitution)
    yield from injected(
        chooser, problems, prompts, config.rule, num_pairs=config.num_pairs, seed=seed
    )


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
        score = ensemble.load_scorer(DATA / reward_model, aggregate, compute, device)
        tokenizer = model_tokenizer.load(ensemble.folders(DATA / reward_model)[0])
        end = model_tokenizer.eos_id(tokenizer)

        def encode(texts: Sequence[str]) -> list[list[int]]:
            return [[*ids, end] for ids in prompting.ids(texts, tokenizer)]

        def scores(groups: Sequence[Group]) -> Sequence[float]:
            parts = [part for group in groups for part in split_group(group, compute.row_tokens)]
            return score(parts).values.tolist()

        yield from probe_lengths.values(
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
        yield from probe_steps.values(
            first, scorer.split, aggregated, filler=filler, max_tokens=max_tokens
        )
