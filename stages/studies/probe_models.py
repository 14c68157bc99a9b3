"""What reward models, process models and judges make of a policy's answers."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from stages.algorithms.selection.step_scores import KINDS, Kind
from stages.chooser import Chooser
from stages.engines import loading
from stages.engines.loading import EngineName
from stages.models import ensemble, model_tokenizer, process_scorer, prompting
from stages.models.batch import Group, split_group
from stages.models.device import ComputeConfig, setup
from stages.models.process_head import Solution
from stages.models.start import ModelConfig
from stages.records import pools
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import reward_file
from stages.rewards.feedback import injections, judging
from stages.rewards.feedback.label_rule import LabelRule
from stages.rewards.feedback.prompts import OPTIONS
from stages.rows import DATA
from stages.seeding import derive
from stages.studies import probe_lengths, probe_steps
from stages.studies.probe_catalogue import AttackedJudge, ProbeValue

CACHE = Path(".pipe/judge-cache")
"""Of an endpoint's answers; a policy has none."""
CANDIDATES = 2
"""Pairs judged for each that is attacked: ties and unanswered ones are not."""


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
    flips, _ = injections.flips(chooser, asked, verdicts, prompts, rule, num_pairs=num_pairs)
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
    judge: str,
    seed: int,
    config: AttackedJudge,
    *,
    engine: EngineName,
    model: ModelConfig,
    compute: ComputeConfig,
) -> Iterator[ProbeValue]:
    """`injected` of the policy `judge` of a seed."""
    chooser = loading.chooser(
        config.judge,
        judge,
        seed,
        OPTIONS,
        None,
        engine=engine,
        model=model,
        compute=compute,
        cache=CACHE,
    )
    prompts = judging.Prompts(style=config.style, constitution=config.constitution)
    yield from injected(
        chooser,
        problems,
        prompts,
        config.rule,
        num_pairs=config.num_pairs,
        seed=derive(seed, "probes", "judge"),
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


def length_values(
    problems: Problems,
    reward: str,
    seed: int,
    compute: ComputeConfig,
    *,
    num_padded: int,
    max_tokens: int,
) -> Iterator[ProbeValue]:
    """`probe_lengths.values` of a row of `rewards` of a seed.

    Args:
        problems: with the policy's completions.
        reward: scores completions.
        seed: whose model scores.
        compute: precision.
        num_padded: so many different completions of a problem are padded.
        max_tokens: a padded completion that is longer with its prompt is left out.
    """
    folder, device = DATA / "rewards" / reward, setup(compute)
    path = reward_file.model(folder, seed)
    score = ensemble.load_scorer(path, reward_file.read(folder).aggregate, compute, device)
    tokenizer = model_tokenizer.load(ensemble.folders(path)[0])
    end = model_tokenizer.eos_id(tokenizer)

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [[*ids, end] for ids in prompting.ids(texts, tokenizer)]

    def scores(groups: Sequence[Group]) -> Sequence[float]:
        parts = [part for group in groups for part in split_group(group, compute.row_tokens)]
        return score(parts).values.tolist()

    yield from probe_lengths.values(
        different(problems), encode, scores, num_padded=num_padded, max_tokens=max_tokens
    )


def step_values(
    problems: Problems,
    process: str,
    seed: int,
    compute: ComputeConfig,
    *,
    num_edited: int,
    max_tokens: int,
    kind: Kind,
) -> Iterator[ProbeValue]:
    """`probe_steps.values` of a process row of `rewards` of a seed.

    Args:
        problems: with the policy's completions.
        process: scores steps.
        seed: whose model scores.
        compute: precision.
        num_edited: of so many different completions of a problem the steps are edited.
        max_tokens: an edited completion that is longer with its prompt is left out.
        kind: how the scores of steps become one.
    """
    path = reward_file.model(DATA / "rewards" / process, seed)
    model = process_scorer.load(path, compute, setup(compute))
    separator = model.model.config.step_separator
    (filler,) = prompting.ids([FILLER + separator], model_tokenizer.load(path))

    def aggregated(solutions: Sequence[Solution]) -> Sequence[float]:
        return [KINDS[kind](steps) for steps in model(solutions)]

    first = [(prompt, pool[:num_edited]) for prompt, pool in different(problems)]
    yield from probe_steps.values(
        first, model.split, aggregated, filler=filler, max_tokens=max_tokens
    )
