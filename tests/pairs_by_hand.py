"""The losses of preference pairs in plain numbers: a pair at a time, scalars of torch."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, relu


def pair_loss(
    kind: str,
    numbers: Any,
    chosen: Tensor,
    rejected: Tensor,
    refs: tuple[Tensor, Tensor],
    lengths: tuple[int, int],
) -> tuple[Tensor, Tensor]:
    """Loss and margin by log-probs of both completions; `numbers`: hyperparameters by name."""
    n, m = lengths
    h = (chosen - refs[0]) - (rejected - refs[1])
    per_token = (chosen - refs[0]) / n - (rejected - refs[1]) / m
    b = getattr(numbers, "beta", None)
    match kind:
        case "sigmoid":
            s = numbers.label_smoothing
            return -(1 - s) * logsigmoid(b * h) - s * logsigmoid(-b * h), b * h
        case "robust":
            e = numbers.flip_rate
            signed = (1 - e) * logsigmoid(b * h) - e * logsigmoid(-b * h)
            return -signed / (1 - 2 * e), b * h
        case "ipo_sum":
            return (h - 1 / (2 * b)) ** 2, b * h
        case "ipo_mean":
            return (per_token - 1 / (2 * b)) ** 2, b * per_token
        case "hinge":
            return relu(1 - b * h), b * h
        case "simpo":
            margin = b * (chosen / n - rejected / m)
            return -logsigmoid(margin - numbers.gamma), margin
        case "orpo":
            x, y = chosen / n, rejected / m
            odds = x - torch.log(1 - x.exp()) - (y - torch.log(1 - y.exp()))
            return -x - numbers.lam * logsigmoid(odds), odds
        case "cpo":
            margin = b * (chosen - rejected)
            return -logsigmoid(margin) - numbers.alpha * chosen / n, margin
    raise AssertionError(f"no formula of {kind}")
