"""How many completions are drawn for a step, and for which prompts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from stages.algorithms.advantages.groups import without_signal
from stages.loops import rollouts
from stages.loops.rollouts import Rollouts
from stages.params import Params

Draw = Callable[[Sequence[int], int, int], Rollouts]
"""Prompt numbers, completions of each, part of the group -> completions."""
Judge = Callable[[Rollouts], tuple[Float[Tensor, " batch"], Bool[Tensor, " batch"]]]
"""Completions -> rewards, and which of them make the baseline."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    """All that was drawn for a step."""

    rollouts: Rollouts
    rewards: Float[Tensor, " batch"]
    in_baseline: Bool[Tensor, " batch"]
    used: Bool[Tensor, " batch"]
    """False: drawn, and left out of the step."""
    num_rounds: int
    """Calls of the sampler."""


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
        rewards, in_baseline = judge(drawn)
        used = torch.ones(len(rewards), dtype=torch.bool)
        return Collected(
            rollouts=drawn, rewards=rewards, in_baseline=in_baseline, used=used, num_rounds=1
        )


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
        judged: list[tuple[Float[Tensor, " _"], Bool[Tensor, " _"]]] = []
        used: list[Bool[Tensor, " _"]] = []
        missing = prompts_per_step
        for start in range(0, len(chosen), prompts_per_step):
            drawn = draw(chosen[start : start + prompts_per_step], group_size, 0)
            rewards, in_baseline = judge(drawn)
            groups = torch.tensor(drawn.groups)
            signal = ~without_signal(rewards, groups, counted=in_baseline)
            place = signal.view(-1, group_size)[:, 0].cumsum(0)[groups]
            parts.append(drawn)
            judged.append((rewards, in_baseline))
            used.append(signal & (place <= missing))
            missing -= int(used[-1].sum()) // group_size
            if missing == 0:
                break
        return Collected(
            rollouts=rollouts.join(parts),
            rewards=torch.cat([rewards for rewards, _ in judged]),
            in_baseline=torch.cat([in_baseline for _, in_baseline in judged]),
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
        rewards, in_baseline = judge(drawn)
        num_rounds = 1
        while num_rounds < group_size // self.first:
            silent = without_signal(rewards, torch.tensor(drawn.groups), counted=in_baseline)
            places = sorted({drawn.groups[i] for i in silent.nonzero()[:, 0].tolist()})
            wanted = [chosen[place] for place in places]
            if not wanted:
                break
            more = draw(wanted, self.first, num_rounds)
            more_rewards, more_in_baseline = judge(more)
            drawn = rollouts.join([drawn, more])
            rewards = torch.cat([rewards, more_rewards])
            in_baseline = torch.cat([in_baseline, more_in_baseline])
            num_rounds += 1
        return Collected(
            rollouts=drawn,
            rewards=rewards,
            in_baseline=in_baseline,
            used=torch.ones(len(rewards), dtype=torch.bool),
            num_rounds=num_rounds,
        )


Sampling = Annotated[
    FixedSampling | DynamicSampling | AdaptiveGroupSize, Field(discriminator="kind")
]
