import math

import pytest
import torch
from torch import nn

from stages.optim import OptimConfig, make_adamw, schedule_learning_rate, step_optimizer

SETTINGS = {
    "learning_rate": 0.1,
    "warmup_share": 0.0,
    "schedule": "constant",
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
}


def config(**changes):
    return OptimConfig(**SETTINGS | changes)


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
    assert [schedule_learning_rate(settings, step, 10) for step in range(10)] == pytest.approx(
        expected
    )


def test_a_single_step_has_the_peak_rate():
    for schedule in ("constant", "linear", "cosine"):
        assert schedule_learning_rate(config(schedule=schedule, warmup_share=0.1), 0, 1) == 0.1


def test_matrices_decay_and_vectors_do_not():
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(1.0)
    settings = config(weight_decay=0.5)
    optimizer = make_adamw(layer, settings)
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    step_optimizer(optimizer, settings, 0, 1)
    # Without a gradient only the decay is left: 1 - rate * decay = 0.95.
    assert layer.weight.flatten().tolist() == pytest.approx([0.95] * 4)
    assert layer.bias.tolist() == [1.0, 1.0]


def test_frozen_parameters_are_left_out():
    layer = nn.Linear(2, 2)
    layer.weight.requires_grad_(False)
    groups = make_adamw(layer, config()).param_groups
    assert [len(group["params"]) for group in groups] == [0, 1]


def test_long_gradients_are_scaled_to_the_limit_and_then_cleared():
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    parameter.grad = torch.tensor([3.0, 4.0])
    # Norm 5, limit 1: the step is (0.6, 0.8) at rate 0.1.
    metrics = step_optimizer(optimizer, config(), 0, 1)
    assert metrics == {"optim/grad_norm": 5.0, "optim/learning_rate": 0.1}
    assert parameter.tolist() == pytest.approx([-0.06, -0.08], rel=1e-5)
    assert parameter.grad is None


def test_a_short_gradient_is_left_alone():
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    parameter.grad = torch.tensor([0.3, 0.4])
    step_optimizer(optimizer, config(), 0, 1)
    assert parameter.tolist() == pytest.approx([-0.03, -0.04], rel=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_no_number_stops_the_run_and_leaves_the_weights(bad):
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    parameter.grad = torch.tensor([0.0, bad])
    with pytest.raises(ValueError, match=r"step 7: .* Lower the learning rate"):
        step_optimizer(optimizer, config(), 7, 10)
    assert parameter.tolist() == [1.0, 1.0]
