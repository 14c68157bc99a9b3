"""A reward made of named components, each weighted, and each logged by itself.

Of every component: its value for each completion -> cap -> normalise -> times its weight. Then
they are added. Whatever is wrong with a component stops the run: no reward is 0 for lack of one.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from stages.algorithms.advantages.reward_parts import normalised_sum, weighted_sum
from stages.rewards.answered import Answered
from stages.rewards.available import Available
from stages.rewards.component import Component
from stages.rewards.composition_config import Composition, NormaliseParts, SumParts
from stages.rewards.each_completion import shown
from stages.rewards.judged import Judged


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
            component.normalise(component.capped(totals(judged)), answered.groups)
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
    grids = [
        components[name].weight * components[name].capped(judged.step_rewards)
        for name, judged in found.items()
        if judged.step_rewards is not None
    ]
    return Judged(
        totals=rewards.tolist(),
        parts={name: judged.rewards().tolist() for name, judged in found.items()},
        step_rewards=torch.stack(grids).sum(0) if grids else None,
        metrics={key: mean for judged in found.values() for key, mean in judged.metrics.items()},
    )


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


def totals(judged: Judged) -> Float[Tensor, " batch"]:
    """What is paid at the end of each completion."""
    return torch.tensor(judged.totals, dtype=torch.float32)
