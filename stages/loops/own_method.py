"""User-defined surrogates and advantages: `surrogate: own/mine` in a preset.

A function in stages/algorithms/own/mine.py replaces one of `losses/surrogates` or
`algorithms/group_advantages`, with the same arguments:

    surrogate(logprobs, old_logprobs, advantages, mask) -> losses, is_clipped     [batch, token]
    advantage(rewards, groups, *, counted) -> advantages                          [batch]

Before it is used, it has to pass `check_surrogate` or `check_advantage`, which test on small
tensors the properties that the loop relies on.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from stages.own_modules import (
    describe_error,
    exit_is_error,
    load_own_function,
    restored_settings,
)

FOLDER = "algorithms"
ARGUMENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "surrogate": (("logprobs", "old_logprobs", "advantages", "mask"), ()),
    "advantage": (("rewards", "groups"), ("counted",)),
}
"""Choice of a `Method` -> the positional arguments of its function, and the keyword arguments."""
TOLERANCE = 1e-5


@cache
def load(choice: str, word: str, files: tuple[str, ...] | None = ()) -> Callable[..., Any]:
    """The function of stages/algorithms/own/<word>.py for a choice, checked once per process.

    Only its first argument, the log-probs, may have a gradient. `files`: see `load_own_module`.
    """
    function = load_own_function(FOLDER, word, choice, *ARGUMENTS[choice], files=files)

    def call(first: Tensor, *inputs: Tensor, **more: Tensor) -> Any:
        with exit_is_error(), restored_settings():
            return function(first, *(grid.detach() for grid in inputs), **more)

    check(choice, call, f"stages/{FOLDER}/own/{word}.py, {choice}")
    return call


def check(choice: str, function: Callable[..., Any], place: str) -> None:
    """Raise a ValueError for a surrogate or advantage that the loop could not learn with."""
    try:
        {"surrogate": check_surrogate, "advantage": check_advantage}[choice](function)
    except Exception as error:
        raise ValueError(f"{place}, on small tensors: {describe_error(error)}") from error


def check_surrogate(function: Callable[..., Any]) -> None:
    """Raise a ValueError if the loop cannot use a surrogate's losses or gradients.

    The loop adds up the losses of micro-batches, whatever their rows and width. So the losses of a
    completion may depend neither on other completions nor on tokens outside of `mask`.
    """
    mask = torch.tensor([[True, True, True, False], [True, True, False, False]])
    logprobs = torch.tensor([[-1.0, -0.5, -2.0, -3.0], [-0.1, -1.5, -0.7, -0.2]])
    old_logprobs = torch.tensor([[-1.0, -2.0, -0.5, -1.0], [-0.6, -1.4, -4.0, -0.3]])
    advantages = torch.tensor([[1.5], [-0.5]]).expand(mask.shape)
    inputs = logprobs.requires_grad_(), old_logprobs, advantages, mask
    result = function(*inputs)
    if not isinstance(result, tuple) or len(result) != 2:
        raise ValueError(
            f"expected losses, and a mask of the tokens that are clipped, found a "
            f"{type(result).__name__}: return losses, torch.zeros_like(mask) if nothing is clipped"
        )
    losses, is_clipped = result
    check_form("losses", losses, logprobs)
    check_form("clipped", is_clipped, mask)
    if not losses.requires_grad:
        raise ValueError("expected losses with a gradient into logprobs, found none")
    (gradient,) = torch.autograd.grad(losses.sum(), logprobs)
    if not (losses.isfinite().all() and gradient.isfinite().all()):
        raise ValueError("expected finite losses and gradients, found NaN or infinity")
    if losses[~mask].any() or gradient[~mask].any() or is_clipped[~mask].any():
        raise ValueError(
            "expected losses of 0, and nothing clipped, outside of the mask, found others: end "
            "with torch.where(mask, losses, 0.0)"
        )
    rows = [function(*(grid[i : i + 1, :3] for grid in inputs))[0] for i in range(len(mask))]
    if not torch.allclose(torch.cat(rows), losses[:, :3], atol=TOLERANCE):
        raise ValueError(
            "expected losses that do not depend on the other completions of a micro-batch, found "
            "ones that do: what compares completions is an advantage"
        )


def check_advantage(function: Callable[..., Any]) -> None:
    """Raise a ValueError if no loop can use the advantages of groups, some of equal rewards."""
    rewards = torch.tensor([1.0, 0.0, 0.5, 2.0, 2.0, 3.0, 1.0, 2.0])
    groups = torch.tensor([4, 4, 4, 7, 7, 2, 4, 5])
    counted = torch.tensor([True, True, True, True, True, True, False, False])
    advantages = function(rewards, groups, counted=counted)
    check_form("advantages", advantages, rewards)
    if not advantages.isfinite().all():
        raise ValueError(
            "expected finite advantages, found NaN or infinity: a group may have equal rewards, "
            "a single completion, or none that is counted"
        )
    if advantages[~counted].any():
        raise ValueError(
            "expected advantage 0 of completions that are not counted, found another: end with "
            "torch.where(counted, advantages, 0.0)"
        )
    order = torch.tensor([1, 2, 5, 7, 0, 3, 6, 4])
    moved = function(rewards[order], groups[order], counted=counted[order])
    if not torch.allclose(moved, advantages[order], atol=TOLERANCE):
        raise ValueError(
            "expected advantages that do not depend on the order of completions, found ones that "
            "do: those of a prompt share an id in `groups`, and may stand anywhere"
        )


def check_form(name: str, value: object, like: Tensor) -> None:
    """Raise a ValueError unless a result has the shape and type of `like`."""
    expected = f"expected {name} as a tensor {[*like.shape]} of {like.dtype}"
    if not isinstance(value, Tensor):
        raise ValueError(f"{expected}, found a {type(value).__name__}")
    if (value.shape, value.dtype) != (like.shape, like.dtype):
        raise ValueError(f"{expected}, found {[*value.shape]} of {value.dtype}")
