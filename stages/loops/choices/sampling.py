"""How many completions are drawn for a step, and for which prompts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from stages.algorithms.groups import without_signal
from stages.loops import rollouts
from stages.loops.rollouts import Rollouts
from stages.params import Params
from stages.rewards import judged
from stages.rewards.judged import Judged

Draw = Callable[[Sequence[int], int, int], Rollouts]
"""Prompt numbers, completions of each, part of the group -> completions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shaped:
    """What completions are worth to a method: judged by the task, shaped by the preset."""

    judged: Judged
    """As the task gave it."""
    end_rewards: Float[Tensor, " batch"]
    """What a completion is paid when it has ended, besides its steps' rewards."""
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


class FixedSampling(Params):
    """`prompts_per_step` prompts with `group_size` completions each."""

    kind: Literal["fixed"]

    def num_prompts(self, prompts_per_step: int) -> int:
        """Prompts that a step may need."""
        return prompts_per_step

    def check(self, group_size: int) -> None:
        """Any group size will do."""

    def collect(
        self,
        draw: Draw,
        judge: Judge,
        chosen: Sequence[int],
        prompts_per_step: int,  # noqa: ARG002
        group_size: int,
    ) -> Collected:
        """One call of the sampler; every completion is used."""
        drawn = draw(chosen, group_size, 0)
        used = torch.ones(len(drawn.samples), dtype=torch.bool)
        return Collected(rollouts=drawn, shaped=judge(drawn), used=used, num_rounds=1)


class DynamicSampling(Params):
    """Further prompts in place of those whose group has no signal: DAPO's dynamic sampling.

    Yu et al., "DAPO" (2025), eq. 11, https://arxiv.org/abs/2503.14476. Departures: at most
    `max_rounds` calls of the sampler, and a step that is still short goes on with what it has;
    a group has a signal when its rewards differ in any way, format and length included, where
    the paper asks for some answers right and some wrong.
    """

    kind: Literal["dynamic"]
    max_rounds: int = Field(gt=1)
    """Calls of the sampler, `prompts_per_step` prompts each, at most."""

    def num_prompts(self, prompts_per_step: int) -> int:
        """Prompts that a step may need."""
        return prompts_per_step * self.max_rounds

    def check(self, group_size: int) -> None:
        """Any group size will do."""

    def collect(
        self,
        draw: Draw,
        judge: Judge,
        chosen: Sequence[int],
        prompts_per_step: int,
        group_size: int,
    ) -> Collected:
        """Draw until `prompts_per_step` groups carry signal; the first that do are used."""
        parts: list[Rollouts] = []
        shaped: list[Shaped] = []
        used: list[Bool[Tensor, " _"]] = []
        missing = prompts_per_step
        for start in range(0, len(chosen), prompts_per_step):
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
        return Collected(
            rollouts=rollouts.join(parts),
            shaped=join_shaped(shaped),
            used=torch.cat(used),
            num_rounds=len(parts),
        )


class AdaptiveGroupSize(Params):
    """Small groups first; those without signal grow until they have one or are full.

    So an easy or a hopeless prompt costs up to `group_size` completions and one in between
    costs `first`. Groups differ in size.
    """

    kind: Literal["adaptive"]
    first: int = Field(gt=1)
    """Completions of each prompt to begin with, and of each addition; divides `group_size`."""

    def num_prompts(self, prompts_per_step: int) -> int:
        """Prompts that a step may need."""
        return prompts_per_step

    def check(self, group_size: int) -> None:
        """Groups grow by `first` completions at a time.

        Raises:
            ValueError: `first` does not divide `group_size`.
        """
        if group_size % self.first:
            raise ValueError(
                f"sampling.first {self.first} does not divide group_size {group_size}: groups "
                f"grow by `first` completions at a time"
            )

    def collect(
        self,
        draw: Draw,
        judge: Judge,
        chosen: Sequence[int],
        prompts_per_step: int,  # noqa: ARG002
        group_size: int,
    ) -> Collected:
        """Draw `first` completions of each prompt, then of those still without signal."""
        self.check(group_size)
        drawn = draw(chosen, self.first, 0)
        shaped = judge(drawn)
        num_rounds = 1
        while num_rounds < group_size // self.first:
            silent = without_signal(
                shaped.rewards(), torch.tensor(drawn.groups), counted=shaped.in_baseline
            )
            places = sorted({drawn.groups[i] for i in silent.nonzero()[:, 0].tolist()})
            wanted = [chosen[place] for place in places]
            if not wanted:
                break
            more = draw(wanted, self.first, num_rounds)
            shaped = join_shaped([shaped, judge(more)])
            drawn = rollouts.join([drawn, more])
            num_rounds += 1
        return Collected(
            rollouts=drawn,
            shaped=shaped,
            used=torch.ones(len(drawn.samples), dtype=torch.bool),
            num_rounds=num_rounds,
        )


Sampling = Annotated[
    FixedSampling | DynamicSampling | AdaptiveGroupSize, Field(discriminator="kind")
]
