"""How many completions are drawn for a step of a group method, and for which prompts."""

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from stages.algorithms.group_advantages import without_signal
from stages.choice import Choice, OneOf
from stages.loops import rollouts
from stages.loops.rollouts import Flags, Rollouts
from stages.records.problems import Prompt
from stages.rewards import judged
from stages.rewards.judged import Judged

Draw = Callable[..., Rollouts]
"""Prompts and `group_size` -> completions; see `rollouts.collect`."""
Judge = Callable[[Rollouts], Judged]
InBaseline = Callable[[Rollouts], Flags]
"""Which completions make the baseline."""


class Collected(NamedTuple):
    """All that was drawn for a step."""

    rollouts: Rollouts
    judged: Judged
    used: Flags
    """False: drawn, and left out of the step."""
    num_rounds: int
    """Calls of the sampler."""


def fixed(draw: Draw, judge: Judge, prompts: Sequence[Prompt], group_size: int) -> Collected:
    """One call of the sampler, `group_size` completions of each prompt; every one is used."""
    drawn = draw(prompts, group_size=group_size)
    used = torch.ones(len(drawn.samples), dtype=torch.bool)
    return Collected(drawn, judge(drawn), used, num_rounds=1)


def dynamic(
    draw: Draw,
    judge: Judge,
    in_baseline: InBaseline,
    prompts: Sequence[Prompt],
    prompts_per_step: int,
    group_size: int,
    *,
    max_rounds: int,
) -> Collected:
    """Further prompts in place of those whose group has no signal: DAPO's dynamic sampling.

    Draws until `prompts_per_step` groups carry signal; the first that do are used. Yu et al.,
    "DAPO" (2025), eq. 11, https://arxiv.org/abs/2503.14476. Departures: at most `max_rounds` calls
    of the sampler, `prompts_per_step` prompts each, and a step that is still short goes on with
    those; a group has a signal when its rewards differ in any way, format and length included,
    where the paper asks for some answers right and some wrong.
    """
    parts: list[Rollouts] = []
    found: list[Judged] = []
    used: list[Tensor] = []
    missing = prompts_per_step
    for start in range(0, min(len(prompts), max_rounds * prompts_per_step), prompts_per_step):
        drawn = draw(prompts[start : start + prompts_per_step], group_size=group_size)
        found.append(judge(drawn))
        groups = torch.tensor(drawn.groups)
        signal = ~without_signal(found[-1].rewards(), groups, counted=in_baseline(drawn))
        place = signal.view(-1, group_size)[:, 0].cumsum(0)[groups]
        parts.append(drawn)
        used.append(signal & (place <= missing))
        missing -= int(used[-1].sum()) // group_size
        if missing == 0:
            break
    return Collected(rollouts.join(parts), judged.join(found), torch.cat(used), len(parts))


Sampling = Annotated[
    Choice,
    OneOf(
        {"fixed": fixed, "dynamic": dynamic},
        given=("draw", "judge", "in_baseline", "prompts", "prompts_per_step", "group_size"),
        bounds={"max_rounds": Field(gt=1)},
    ),
]
