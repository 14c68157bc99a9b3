"""Reward composed of named components, each weighted and logged: `by: rule`.

For every component: its value for each completion -> cap -> normalise -> times its weight. Then
they are added. An error in a component stops the run: it never becomes a reward of 0.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float
from pydantic import BeforeValidator, Field, StringConstraints, model_validator
from torch import Tensor

from stages.algorithms.group_advantages import (
    Groups,
    Rewards,
    group_zscore,
    normalised_sum,
    weighted_sum,
)
from stages.config import Params, spell_out_kind
from stages.rewards.completion_rewards import (
    CompletionRewards,
    Completions,
    RewardModels,
    check_finite,
)
from stages.rewards.components import Overlong, Value


class Unscaled(Params):
    """Values without normalisation."""

    kind: Literal["none"]


class Zscore(Params):
    """Z-score (value - mean) / (std + eps), over all completions rewarded together or a group."""

    kind: Literal["batch", "group"]
    ddof: int = Field(ge=0, le=1)
    eps: float = Field(gt=0)


class WeightedSum(Params):
    """Sum of the weighted components."""

    kind: Literal["sum"]


class NormalisedSum(Params):
    """GDPO: z-scores within the group, weighted, summed, and whitened over the batch."""

    kind: Literal["normalise"]
    ddof: int = Field(ge=0, le=1)
    eps: float = Field(gt=0)


Normalise = Annotated[
    Unscaled | Zscore, Field(discriminator="kind"), BeforeValidator(spell_out_kind)
]
Combine = Annotated[
    WeightedSum | NormalisedSum, Field(discriminator="kind"), BeforeValidator(spell_out_kind)
]


class Cap(Params):
    """Bounds to which a component's values are clamped; null: none on that side."""

    low: float | None
    high: float | None

    @model_validator(mode="after")
    def _bounds_in_order(self) -> "Cap":
        if self.low is None and self.high is None:
            raise ValueError("cap: expected low, high or both, found none: write cap: null")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(
                f"cap: expected low below high, found low {self.low}, high {self.high}: correct one"
            )
        return self


class Component(Params):
    """Component of a reward: a measure with its weight, cap and scale."""

    value: Value
    weight: float
    """Reward for a value of 1; negative: a penalty."""
    cap: Cap | None
    """Limits of the raw values; null: none."""
    normalise: Normalise
    """Normalisation of the capped values, over all completions rewarded together or over those of a
    prompt."""

    def capped(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The values, or step rewards, clamped to the cap."""
        return values if self.cap is None else values.clamp(min=self.cap.low, max=self.cap.high)

    def paid_at_end(self, values: CompletionRewards, groups: Groups) -> Rewards:
        """Reward of each completion at its end: the value, capped, then normalised.

        If there are step rewards, only these are capped (`combine_step_rewards`): with a cap above
        0 each completion would also be rewarded for its total of 0.
        """
        totals = torch.tensor(values.totals, dtype=torch.float32)
        paid = self.capped(totals) if values.step_rewards is None else totals
        if isinstance(self.normalise, Unscaled):
            return paid
        counted, scale = torch.ones_like(groups) > 0, self.normalise
        among = groups if scale.kind == "group" else torch.zeros_like(groups)
        return group_zscore(paid, among, counted=counted, ddof=scale.ddof, eps=scale.eps)


RESERVED_NAMES = frozenset(("mean", "std", "accuracy"))
"""Names without components: `reward/mean` and the like are logged for the whole reward."""
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_]*$")]
STEPS_AS_THEY_ARE = (
    "gives step rewards, which are paid as they are: it needs normalise: {kind: none}, and the "
    "reward combine: {kind: sum}"
)


class Composition(Params):
    """Reward of a completion: components by name, and how they are combined."""

    components: dict[Name, Component] = Field(min_length=1)
    combine: Combine

    @model_validator(mode="after")
    def _parts_go_together(self) -> "Composition":
        if reserved := sorted(self.components.keys() & RESERVED_NAMES):
            name = reserved[0]
            raise ValueError(
                f"a component is named {name}, and reward/{name} is logged for the whole reward: "
                f"rename the component"
            )
        twice = [name for name, part in self.components.items() if part.normalise.kind != "none"]
        if self.combine.kind == "normalise" and twice:
            message = f"combine normalise normalises every component: {twice[0]} needs normalise: "
            raise ValueError(message + "{kind: none}")
        for name, part in self.components.items():
            if part.value.kind == "process" and self.rescales(name):
                raise ValueError(f"component {name} of kind process {STEPS_AS_THEY_ARE}")
        scored = sorted(self.kinds() & {"scorer", "process"})
        if scored and self.needs_judge():
            raise ValueError(
                f"expected one model for the reward, found components of kind judge, which asks a "
                f"policy, and {scored[0]}, which asks a reward model: leave one of them out"
            )
        return self

    def check_group_size(self, size: int, where: str) -> None:
        """Raise a ValueError, with `where`, if single completions would be compared."""
        if size >= 2:
            return
        if self.needs_judge():
            raise ValueError(
                f"{where} is {size}, and a component of kind judge compares the completions of a "
                f"prompt with each other: set it to 2 or more"
            )
        for name, part in self.components.items():
            if part.normalise.kind == "group":
                raise ValueError(
                    f"{where} is {size}: component {name} with normalise group compares the "
                    "completions of a prompt with each other, and pays 0 for a single one: set it "
                    "to at least 2, or normalise to batch"
                )

    def check_lengths(self, max_new_tokens: int) -> None:
        """Raise a ValueError if the buffer of `overlong` is longer than a completion."""
        for name, part in self.components.items():
            if isinstance(part.value, Overlong) and part.value.buffer > max_new_tokens:
                raise ValueError(
                    f"{name}.value.buffer {part.value.buffer} is more than max_new_tokens "
                    f"{max_new_tokens}, and the buffer is the last stretch of tokens before that "
                    f"limit: lower it"
                )

    def kinds(self) -> set[str]:
        """Kinds of the components."""
        return {part.value.kind for part in self.components.values()}

    def needs_model(self) -> bool:
        """Whether a component needs a model."""
        return bool(self.kinds() & {"scorer", "process", "judge"})

    def needs_judge(self) -> bool:
        """Whether the model must be a policy, which compares completions."""
        return "judge" in self.kinds()

    def rescales(self, name: str) -> bool:
        """Whether a component's values are normalised, alone or with all others."""
        return self.combine.kind == "normalise" or self.components[name].normalise.kind != "none"

    def compares(self) -> bool:
        """Whether values are normalised over several completions."""
        return any(map(self.rescales, self.components))


def compose_rewards(
    composition: Composition, completions: Completions, models: RewardModels
) -> CompletionRewards:
    """Rewards of completions by a composition.

    A ValueError, with the component's name and the completion, if a component raises an error, or
    returns NaN, an infinity or the wrong number of values.
    """
    # By name: the order of keys in params.yaml is in no hash, so it must not change a sum.
    parts = dict(sorted(composition.components.items()))
    scored = {
        name: score_component(name, part, completions, models) for name, part in parts.items()
    }
    groups = torch.tensor(completions.groups)
    stacked = torch.stack([part.paid_at_end(scored[name], groups) for name, part in parts.items()])
    weights, combine = torch.tensor([part.weight for part in parts.values()]), composition.combine
    if isinstance(combine, WeightedSum):
        rewards = weighted_sum(stacked, weights)
    else:
        rewards = normalised_sum(
            stacked, weights, groups, counted=torch.ones_like(groups) > 0, ddof=combine.ddof,
            eps=combine.eps,
        )  # fmt: skip
    for name, values in scored.items():
        if values.step_rewards is not None and composition.rescales(name):
            raise ValueError(f"component '{name}' of the reward {STEPS_AS_THEY_ARE}")
    steps, ends = combine_step_rewards(parts, scored)
    return CompletionRewards(
        totals=rewards.tolist(),
        parts={name: values.rewards().tolist() for name, values in scored.items()},
        step_rewards=steps,
        step_ends=ends,
        metrics={key: mean for values in scored.values() for key, mean in values.metrics.items()},
    )


def score_component(
    name: str, component: Component, completions: Completions, models: RewardModels
) -> CompletionRewards:
    """Values of a component for each completion; the errors are those of `compose_rewards`."""
    what = f"component '{name}' of the reward (kind {component.value.kind})"
    try:
        values = component.value(completions, models)
    except Exception as error:
        raise ValueError(f"{what} stopped: {error}") from error
    expected, number = len(completions.texts), len(values.totals)
    if number != expected:
        raise ValueError(
            f"{what}: expected {expected} values, one for each completion, found {number}"
        )
    check_finite(values, completions, what)
    return values


def combine_step_rewards(
    components: Mapping[str, Component], scored: Mapping[str, CompletionRewards]
) -> tuple[Float[Tensor, "batch token"] | None, Bool[Tensor, "batch token"] | None]:
    """The weighted step rewards of all components, added, and the mask of where there are any."""
    grids: list[Float[Tensor, "_ _"]] = []
    ends: list[Bool[Tensor, "_ _"]] = []
    for name, values in scored.items():
        if values.step_rewards is not None and values.step_ends is not None:
            paid = components[name].weight * components[name].capped(values.step_rewards)
            # Without a step the reward is 0, also with a cap above 0.
            grids.append(torch.where(values.step_ends, paid, 0.0))
            ends.append(values.step_ends)
    return (torch.stack(grids).sum(0), torch.stack(ends).any(0)) if grids else (None, None)
