"""Loops in two processes are those in one; adapters and saved weights: models/test_sharding."""

import pytest
import torch
from several_processes import Trial, in_processes


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["outcome", "distillation", "grpo_steps"])
def test_a_loop_in_two_processes_is_that_of_one(loop):
    trial = Trial(loop, max_tokens=24)
    actual, expected = in_processes(2, trial), in_processes(1, trial)
    largest = max(abs(x) for gradient in expected["gradients"] for x in gradient)
    assert largest > 1e-3
    for gradient, other in zip(actual["gradients"], expected["gradients"], strict=True):
        assert gradient == pytest.approx(other, rel=0, abs=1e-6 * largest)
    assert len(expected["history"]) == 4
    for step, other in zip(actual["history"], expected["history"], strict=True):
        assert step == pytest.approx(other, rel=1e-5, abs=1e-5)
    for name, values in expected["weights"].items():
        weights, others = (torch.tensor(numbers) for numbers in (actual["weights"][name], values))
        torch.testing.assert_close(weights, others, rtol=0, atol=1e-5, msg=name)
