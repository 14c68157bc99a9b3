"""What reward models, process models and judges make of a policy's answers."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from stages.algorithms.selection.step_scores import KINDS
from stages.engines import loading
from stages.engines.loading import EngineName
from stages.models import ensemble, model_tokenizer, process_head, prompting
from stages.models.batch import Group, split_group
from stages.models.device import ComputeConfig, setup
from stages.models.process_head import Solution
from stages.models.start import ModelConfig
from stages.records import pools
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import reward_file
from stages.rewards.feedback import injections, judging
from stages.rewards.feedback.prompts import OPTIONS
from stages.rows import DATA
from stages.seeding import derive
from stages.studies import probe_edits
from stages.studies.probe_catalogue import AttackedJudge, ProbeConfig, ProbeValue

CACHE = Path(".pipe/judge-cache")
"""Of an endpoint's answers; a policy has none."""
CANDIDATES = 2
"""Pairs judged for each that is attacked: ties and unanswered ones are not."""
FILLER = "Next step:"
"""A step without content; the separator follows it."""
Problems = Sequence[tuple[Prompt, list[Completion]]]


def attack(
    problems: Problems,
    judge: str,
    seed: int,
    config: AttackedJudge,
    *,
    engine: EngineName,
    model: ModelConfig,
    compute: ComputeConfig,
) -> Iterator[ProbeValue]:
    """For each attacked problem the share of attacks that turn the verdict, and the control's.

    The judge is the policy `judge` of a seed. One pair of different completions a problem; of the
    first problems that have one.
    """
    chooser = loading.chooser(
        config.judge, judge, seed, OPTIONS, None,
        engine=engine, model=model, compute=compute, cache=CACHE,
    )  # fmt: skip
    prompts = judging.Prompts(style=config.style, constitution=config.constitution)
    drawn = judging.pairs(problems, prompts, max_pairs=1, seed=derive(seed, "probes", "judge"))
    asked = drawn[: CANDIDATES * config.num_pairs]
    if not asked:
        return
    verdicts, _ = judging.judge(chooser, judging.chunks(asked), prompts, config.rule, "test")
    flips, _ = injections.flips(
        chooser, asked, verdicts, prompts, config.rule, num_pairs=config.num_pairs
    )
    for name, flipped in flips.pop("control", []):
        yield ProbeValue(probe="judge_control", id=name, value=flipped)
    turned: dict[str, list[float]] = {}
    for found in flips.values():
        for name, flipped in found:
            turned.setdefault(name, []).append(flipped)
    for name, own in turned.items():
        yield ProbeValue(probe="judge_injection", id=name, value=sum(own) / len(own))


def different(problems: Problems) -> Problems:
    """Of each problem the different completions that ended by themselves, as they were drawn."""
    return [
        (prompt, pools.distinct([row for row in pool if row.finish_reason == "stop"])[0])
        for prompt, pool in problems
    ]


def length_values(
    problems: Problems, reward: str, seed: int, compute: ComputeConfig, config: ProbeConfig
) -> Iterator[ProbeValue]:
    """`probe_edits.padded_values` of a row of `rewards` of a seed."""
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

    yield from probe_edits.padded_values(
        different(problems), encode, scores,
        num_padded=config.samples_per_problem, max_tokens=config.max_tokens,
    )  # fmt: skip


def step_values(
    problems: Problems, process: str, seed: int, compute: ComputeConfig, config: ProbeConfig
) -> Iterator[ProbeValue]:
    """`probe_edits.recut_values` of a process row of `rewards` of a seed."""
    path = reward_file.model(DATA / "rewards" / process, seed)
    model = process_head.load_scorer(path, compute, setup(compute))
    separator = model.model.config.step_separator
    (filler,) = prompting.ids([FILLER + separator], model_tokenizer.load(path))

    def aggregated(solutions: Sequence[Solution]) -> Sequence[float]:
        return [KINDS[config.process_score](steps) for steps in model(solutions)]

    first = [(prompt, pool[: config.samples_per_problem]) for prompt, pool in different(problems)]
    yield from probe_edits.recut_values(
        first, model.split, aggregated, filler=filler, max_tokens=config.max_tokens
    )
