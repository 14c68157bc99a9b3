"""The loss of an optimizer step where numbers are extreme; its formulas: `test_definitions`."""

import math
import random

import pytest
import torch
from rl_by_hand import CHOICES
from tiny_rollouts import make_settings

from stages.loops import rl
from stages.loops.method import Method
from stages.loops.rl import Minibatch, TokenGrids
from stages.models.policy import TokenLogprobs

FILLERS = (1e30, math.nan, math.inf, -math.inf)


def choose(*rows, **changes):
    merged = {key: value for row in rows for key, value in row.items()}
    return Method(**{"correction": "none"} | merged | changes)


@pytest.mark.parametrize(
    ("names", "jump"),
    [
        (("logprobs", "old", "ref", "sampler"), -1e4),
        (("old",), -math.inf),
        (("sampler",), -math.inf),
    ],
    ids=["log-ratios of 10,000", "excluded by the old policy", "excluded by the sampler"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_log_prob_that_can_occur_and_nothing_outside_of_completions_gives_nan(
    names, jump, dtype
):
    chance, generator = random.Random(1), torch.Generator().manual_seed(1)
    for _ in range(25):
        mask = torch.rand(4, 6, generator=generator) < 0.7
        grids = {}
        for name in ("logprobs", "old", "ref", "sampler", "advantages", "entropies"):
            grid = torch.randn(4, 6, generator=generator, dtype=dtype)
            if name not in ("advantages", "entropies"):
                jumps = torch.where(torch.rand(4, 6, generator=generator) < 0.5, jump, 0.0)
                grid = -grid.exp() + (jumps if name in names else 0.0)
            grids[name] = torch.where(mask, grid, chance.choice(FILLERS))
        method = choose(*(chance.choice(rows) for rows in CHOICES.values()), entropy_coef=0.1)
        leaf = grids["logprobs"].requires_grad_()
        loss, is_clipped = rl.policy_loss(
            TokenLogprobs(logprobs=leaf, entropies=grids["entropies"]),
            grids["old"],
            TokenGrids(
                ref_logprobs=grids["ref"], sampler_logprobs=grids["sampler"],
                advantages=grids["advantages"], right=mask,
            ),
            mask,
            Minibatch(batches=[], num_tokens=9, num_sequences=4, num_right_tokens=9),
            make_settings(method),
        )  # fmt: skip
        (gradient,) = torch.autograd.grad(loss, leaf)
        assert loss.isfinite()
        assert gradient.isfinite().all()
        assert not gradient[~mask].any()
        assert not is_clipped[~mask].any()


@pytest.mark.parametrize("row", CHOICES["kl"][2:], ids=str)
def test_a_divergence_of_a_long_completion_in_float32_is_that_in_float64(row):
    generator = torch.Generator().manual_seed(0)
    logprobs = -torch.rand(1, 2000, generator=generator, dtype=torch.float64)
    noise = 1e-3 * torch.randn(2, 1, 2000, generator=generator, dtype=torch.float64)
    narrow = [values.float() for values in (logprobs, *(logprobs + noise))]
    mask, method = torch.ones(1, 2000, dtype=torch.bool), choose(row)
    expected = rl.kl_losses(*(values.double() for values in narrow), mask, method)
    actual = rl.kl_losses(*narrow, mask, method).double()
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-7)
