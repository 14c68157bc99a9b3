"""One optimizer step: schedule, decay, clipping, by hand."""

import math

import pytest
import torch
from torch import nn

from stages.optim import OptimConfig, make_adamw, schedule_learning_rate, step_optimizer


def config(**changes):
    settings = {"learning_rate": 0.1, "warmup_share": 0.0, "schedule": "constant"}
    return OptimConfig(**settings | {"weight_decay": 0.0, "max_grad_norm": 1.0} | changes)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        # Two warm-up steps of ten: 1/2, 2/2. Then eight steps.
        ("constant", [0.05, 0.1, *[0.1] * 8]),
        ("linear", [0.05, 0.1, *(0.1 * (1 - k / 8) for k in range(8))]),
        ("cosine", [0.05, 0.1, *(0.05 * (1 + math.cos(math.pi * k / 8)) for k in range(8))]),
    ],
)
def test_the_rate_warms_up_and_decays(schedule, expected):
    settings = config(warmup_share=0.2, schedule=schedule)
    rates = [schedule_learning_rate(settings, step, 10) for step in range(10)]
    assert rates == pytest.approx(expected)
    assert schedule_learning_rate(config(schedule=schedule, warmup_share=0.1), 0, 1) == 0.1


def test_matrices_decay_and_vectors_and_frozen_weights_do_not():
    layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    layers[1].weight.requires_grad_(False)
    for parameter in layers.parameters():
        nn.init.ones_(parameter)
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    settings = config(weight_decay=0.5)
    step_optimizer(make_adamw(layers, settings), settings, 0, 1)
    # Without a gradient nothing but the decay remains: 1 - rate * decay = 0.95.
    assert layers[0].weight.flatten().tolist() == pytest.approx([0.95] * 4)
    rest = (layers[0].bias, layers[1].weight, layers[1].bias)
    assert {value for parameter in rest for value in parameter.flatten().tolist()} == {1.0}


@pytest.mark.parametrize(
    ("gradient", "norm", "step"), [([3.0, 4.0], 5.0, [0.06, 0.08]), ([0.3, 0.4], 0.5, [0.03, 0.04])]
)
def test_a_gradient_is_scaled_to_the_limit_if_it_is_longer_and_then_cleared(gradient, norm, step):
    """At rate 0.1."""
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor(gradient)
    metrics = step_optimizer(torch.optim.SGD([parameter], lr=1.0), config(), 0, 1)
    assert metrics == {"optim/grad_norm": pytest.approx(norm), "optim/learning_rate": 0.1}
    assert parameter.tolist() == pytest.approx([-value for value in step], rel=1e-5)
    assert parameter.grad is None


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_stops_the_run_and_leaves_the_weights(bad):
    parameter = nn.Parameter(torch.ones(2))
    parameter.grad = torch.tensor([0.0, bad])
    with pytest.raises(ValueError, match="step 7"):
        step_optimizer(torch.optim.SGD([parameter], lr=1.0), config(), 7, 10)
    assert parameter.tolist() == [1.0, 1.0]
