"""A reward made of named components, each weighted, and each logged by itself.

Of every component: its value for each completion -> cap -> normalise -> times its weight. Then
they are added. Whatever is wrong with a component stops the run: no reward is 0 for lack of one.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from stages.algorithms.group_advantages import normalised_sum, weighted_sum
from stages.rewards.component import Component
from stages.rewards.composition_config import Composition, NormaliseParts, SumParts
from stages.rewards.judged import Answered, Available, Judged, shown


def compose(composition: Composition, answered: Answered, available: Available) -> Judged:
    """What each completion is worth.

    Raises:
        ValueError: a component raised, or gave NaN, an infinity or the wrong number of values;
            naming the component and the completion.
    """
    # By name: the order of keys in params.yaml is in no hash, so it may change no sum.
    components = dict(sorted(composition.components.items()))
    found = {
        name: value(name, component, answered, available) for name, component in components.items()
    }
    weights = torch.tensor([component.weight for component in components.values()])
    paid = torch.stack(
        [
            component.normalise(paid_at_end(component, judged), answered.groups)
            for component, judged in zip(components.values(), found.values(), strict=True)
        ]
    )
    match composition.combine:
        case SumParts():
            rewards = weighted_sum(paid, weights)
        case NormaliseParts(ddof=ddof, eps=eps):
            every = torch.ones(paid.shape[1], dtype=torch.bool)
            groups = torch.tensor(answered.groups)
            rewards = normalised_sum(paid, weights, groups, counted=every, ddof=ddof, eps=eps)
    for name, judged in found.items():
        if judged.step_rewards is not None and composition.rescales(name):
            raise ValueError(
                f"component '{name}' of the reward gives step rewards, which are paid as they are: "
                "it needs normalise: {kind: none}, and the reward combine: {kind: sum}"
            )
    steps, ends = step_grids(composition, found)
    return Judged(
        totals=rewards.tolist(),
        parts={name: judged.rewards().tolist() for name, judged in found.items()},
        step_rewards=steps,
        step_ends=ends,
        metrics={key: mean for judged in found.values() for key, mean in judged.metrics.items()},
    )


def step_grids(
    composition: Composition, found: Mapping[str, Judged]
) -> tuple[Float[Tensor, "batch token"] | None, Bool[Tensor, "batch token"] | None]:
    """The weighted step rewards of all components, added, and where any of them pays one."""
    grids: list[Float[Tensor, "_ _"]] = []
    ends: list[Bool[Tensor, "_ _"]] = []
    for name, judged in found.items():
        if judged.step_rewards is not None and judged.step_ends is not None:
            component = composition.components[name]
            capped = component.capped(judged.step_rewards)
            # A cap above 0 pays nothing where there is no step.
            grids.append(torch.where(judged.step_ends, component.weight * capped, 0.0))
            ends.append(judged.step_ends)
    if not grids:
        return None, None
    return torch.stack(grids).sum(0), torch.stack(ends).any(0)


def value(name: str, component: Component, answered: Answered, available: Available) -> Judged:
    """What one component says of each completion; see `compose` for what it raises."""
    kind = component.value.kind
    what = f"component '{name}' of the reward (kind {kind})"
    try:
        judged = component.value(answered, available)
    except Exception as error:
        raise ValueError(f"{what} stopped: {error}") from error
    if len(judged.totals) != len(answered.texts):
        raise ValueError(
            f"{what}: expected {len(answered.texts)} values, one for each completion, found "
            f"{len(judged.totals)}"
        )
    rewards = judged.rewards()
    for index in (~rewards.isfinite()).nonzero()[:, 0].tolist():
        raise ValueError(
            f"{what}: expected a finite number, found {rewards[index].item()}, on "
            f"{shown(answered, index)}"
        )
    return judged


def paid_at_end(component: Component, judged: Judged) -> Float[Tensor, " batch"]:
    """What is paid at the end of each completion, within the cap.

    Where steps are paid the cap is theirs (`step_grids`): a cap above 0 would pay each completion
    for the 0 that it is worth as a whole.
    """
    totals = torch.tensor(judged.totals, dtype=torch.float32)
    return totals if judged.step_rewards is not None else component.capped(totals)
