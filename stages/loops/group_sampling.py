"""How many completions are drawn for a step of a group method, and for which prompts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from stages.algorithms.group_advantages import without_signal
from stages.choice import Choice, OneOf
from stages.loops import rollouts
from stages.loops.rollouts import Rollouts
from stages.rewards import judged
from stages.rewards.judged import Judged

Draw = Callable[[Sequence[int], int, int], Rollouts]
"""Prompt numbers, completions of each, part of the group -> completions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shaped:
    """Rewards of completions: judged by the task, shaped by the preset."""

    judged: Judged
    """As the task gave it."""
    end_rewards: Float[Tensor, " batch"]
    """Paid when a completion has ended, besides its steps' rewards."""
    in_baseline: Bool[Tensor, " batch"]
    """Which completions make the baseline."""

    def rewards(self) -> Float[Tensor, " batch"]:
        """All that a completion is paid, step rewards included."""
        steps = self.judged.step_rewards
        return self.end_rewards if steps is None else self.end_rewards + steps.sum(1)


Judge = Callable[[Rollouts], Shaped]


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    """All that was drawn for a step."""

    rollouts: Rollouts
    shaped: Shaped
    used: Bool[Tensor, " batch"]
    """False: drawn, and left out of the step."""
    num_rounds: int
    """Calls of the sampler."""


def join_shaped(batches: Sequence[Shaped]) -> Shaped:
    """All completions of `batches`, in order."""
    return Shaped(
        judged=judged.join([batch.judged for batch in batches]),
        end_rewards=torch.cat([batch.end_rewards for batch in batches]),
        in_baseline=torch.cat([batch.in_baseline for batch in batches]),
    )


def fixed(draw: Draw, judge: Judge, chosen: Sequence[int], group_size: int) -> Collected:
    """One call of the sampler, `group_size` completions of each prompt; every one is used."""
    return adaptive(draw, judge, chosen, group_size, first=group_size)


def dynamic(
    draw: Draw,
    judge: Judge,
    chosen: Sequence[int],
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
    shaped: list[Shaped] = []
    used: list[Tensor] = []
    missing = prompts_per_step
    for start in range(0, min(len(chosen), max_rounds * prompts_per_step), prompts_per_step):
        drawn = draw(chosen[start : start + prompts_per_step], group_size, 0)
        found = judge(drawn)
        groups = torch.tensor(drawn.groups)
        signal = ~without_signal(found.rewards(), groups, counted=found.in_baseline)
        place = signal.view(-1, group_size)[:, 0].cumsum(0)[groups]
        parts.append(drawn)
        shaped.append(found)
        used.append(signal & (place <= missing))
        missing -= int(used[-1].sum()) // group_size
        if missing == 0:
            break
    drawn, found = rollouts.join(parts), join_shaped(shaped)
    return Collected(rollouts=drawn, shaped=found, used=torch.cat(used), num_rounds=len(parts))


def adaptive(
    draw: Draw, judge: Judge, chosen: Sequence[int], group_size: int, *, first: int
) -> Collected:
    """Groups of `first` completions; those without signal grow by as many until one has, or full.

    So an easy or a hopeless prompt costs up to `group_size` completions and one in between
    costs `first`. Groups differ in size.
    """
    drawn = draw(chosen, first, 0)
    shaped = judge(drawn)
    num_rounds = 1
    while num_rounds < group_size // first:
        groups = torch.tensor(drawn.groups)
        silent = without_signal(shaped.rewards(), groups, counted=shaped.in_baseline)
        wanted = [chosen[place] for place in groups[silent].unique().tolist()]
        if not wanted:
            break
        more = draw(wanted, first, num_rounds)
        shaped = join_shaped([shaped, judge(more)])
        drawn = rollouts.join([drawn, more])
        num_rounds += 1
    used = torch.ones(len(drawn.samples), dtype=torch.bool)
    return Collected(rollouts=drawn, shaped=shaped, used=used, num_rounds=num_rounds)


Sampling = Annotated[
    Choice,
    OneOf(
        {"fixed": fixed, "dynamic": dynamic, "adaptive": adaptive},
        given=("draw", "judge", "chosen", "prompts_per_step", "group_size"),
        bounds={"max_rounds": Field(gt=1), "first": Field(gt=1)},
    ),
]


def num_prompts(sampling: Choice, prompts_per_step: int) -> int:
    """Prompts that a step may need."""
    return prompts_per_step * sampling.own.get("max_rounds", 1)
