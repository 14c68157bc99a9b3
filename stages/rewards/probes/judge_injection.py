"""How often a judge's verdict on this policy's answers is turned by words in the worse one."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from stages.chooser import Chooser
from stages.engines import choosers
from stages.engines.samplers import EngineName
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig
from stages.records.completion import Completion
from stages.records.probe_value import ProbeValue
from stages.records.prompt import Prompt
from stages.rewards.feedback import injection_rate, judging
from stages.rewards.feedback.judge_prompt import OPTIONS
from stages.rewards.feedback.label_rule import LabelRule
from stages.rewards.probes.config import AttackedJudge
from stages.rewards.probes.not_run import NO_MODEL

CACHE = Path(".pipe/judge-cache")
"""Of an endpoint's answers; a policy has none."""
CANDIDATES = 2
"""Pairs judged for each that is attacked: ties and unanswered ones are not."""


@runtime_checkable
class Models(Protocol):
    """What probe_policy's configuration says of models."""

    @property
    def engine(self) -> EngineName: ...  # noqa: D102
    @property
    def compute(self) -> ComputeConfig: ...  # noqa: D102
    @property
    def model(self) -> ModelConfig: ...  # noqa: D102


def values(
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
    models: Models,
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
    yield from values(
        chooser, problems, prompts, config.rule, num_pairs=config.num_pairs, seed=seed
    )
