"""No number that can occur makes a loss or a gradient NaN or infinite.

Promised: any finite log-probs; a token that the old policy or the sampler gave probability 0;
any advantages; nothing that counts at all. Not promised: a token that the *reference* gives
probability 0, whose divergence is infinite.
"""

import math

import objective_choices
import presets
import pytest
import random_grids
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_grids import Grids, examples
from tiny_rollouts import make_rollouts

from stages.algorithms.aggregation import masked_whiten
from stages.algorithms.losses.preference_losses import PairLogprobs, kto_loss
from stages.algorithms.losses.reward_and_value_losses import bradley_terry_loss, clipped_value_loss
from stages.algorithms.token_advantages import gae
from stages.loops.method import Method
from stages.loops.preference import KTO, compute_pair_losses
from stages.loops.rl import compute_reward_advantages
from stages.rewards.completion_rewards import CompletionRewards

dtypes = st.sampled_from([torch.float32, torch.float64])


def replaced(grids: Grids, **values) -> Grids:
    return Grids(grids.values | values, grids.mask, grids.correct)


def shaken(data, grids: Grids, name: str, jumps) -> torch.Tensor:
    """The grid called `name`, some of its tokens moved by one of `jumps`."""
    size = grids.mask.numel()
    moves = data.draw(st.lists(st.sampled_from([0.0, *jumps]), min_size=size, max_size=size))
    return grids.values[name] + torch.tensor(moves, dtype=torch.float64).view(grids.mask.shape)


def check_finite(grids: Grids, config, **arguments):
    loss, gradients = random_grids.step(grids, config, [range(len(grids.mask))], **arguments)
    assert loss.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients.values())
    return loss, gradients


@pytest.mark.parametrize(
    ("names", "jump"),
    [
        (("logprobs", "old", "ref", "sampler"), -1e4),
        # tokens that the old policy or the sampler excluded
        (("old",), -math.inf),
        (("sampler",), -math.inf),
    ],
)
@examples(100)
@given(
    data=st.data(),
    grids=random_grids.grids(max_rows=3),
    config=objective_choices.any_objective(),
    dtype=dtypes,
)
def test_log_ratios_of_ten_thousand_or_infinity(names, jump, data, grids, config, dtype):
    result = {name: shaken(data, grids, name, [jump]) for name in names}
    check_finite(replaced(grids, **result).to(dtype), config)


@examples(60)
@given(grids=random_grids.grids(), config=objective_choices.any_objective(), dtype=dtypes)
def test_nothing_that_counts_gives_0(grids, config, dtype):
    empty = Grids(grids.values, torch.zeros_like(grids.mask), grids.correct)
    garbage = empty.filled(math.nan).to(dtype)
    for part in (garbage, empty.to(dtype)):
        loss, gradients = check_finite(part, config)
        assert loss == 0
        assert all((gradient == 0).all() for gradient in gradients.values())


@pytest.mark.parametrize(
    "surrogate",
    [s for s in objective_choices.SURROGATES if s["surrogate"] != "kl_penalty"],
    ids=str,
)
@examples(25)
@given(data=st.data(), grids=random_grids.grids(max_rows=3))
def test_no_advantage_is_no_gradient_whatever_the_ratio(surrogate, data, grids):
    method = objective_choices.make(surrogate, {"aggregation": "token_mean"}, {"kl": "none"})
    old = shaken(data, grids, "old", [-math.inf, -1e4])
    # A token that both exclude was drawn by neither.
    logprobs = shaken(data, grids, "logprobs", [-math.inf, -1e4]).where(old.isfinite(), -1.0)
    nothing = torch.zeros_like(old)
    still = replaced(grids, advantages=nothing, old=old, logprobs=logprobs)
    loss, gradients = check_finite(still, method)
    assert loss == 0
    assert all((gradient == 0).all() for gradient in gradients.values())


@pytest.mark.parametrize("kind", sorted(objective_choices.kinds("advantage") - {"gae", "teacher"}))
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e8, 1e15])
@examples(8)
@given(data=st.data())
def test_rewards_far_from_0_that_hardly_differ(kind, scale, data):
    """In float32, where 1e8 and its neighbour are 8 apart; groups of one among them."""
    method = Method(advantage=kind)
    groups = torch.tensor(data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=12)))
    steps = data.draw(st.lists(st.sampled_from([0, 1]), min_size=len(groups), max_size=len(groups)))
    rewards = torch.full((len(groups),), scale)
    rewards = torch.where(torch.tensor(steps) > 0, rewards.nextafter(2 * rewards), rewards)
    by_step = kind == "step_zscore"
    result = compute_reward_advantages(
        method,
        CompletionRewards(
            totals=rewards.tolist(),
            step_rewards=rewards[:, None] * torch.tensor([0.0, 1.0]) if by_step else None,
            step_ends=torch.tensor([[False, True]] * len(groups)) if by_step else None,
        ),
        torch.zeros(len(groups), 2),
        make_rollouts([2] * len(groups), groups.tolist()),
        torch.ones(len(groups), dtype=torch.bool),
        torch.full_like(rewards, scale),
    )
    assert result.isfinite().all()
    if kind in ("group_zscore", "batch_std", "batch_whitened", "step_zscore"):
        # No score is further than sqrt(n) standard deviations from the mean of n, up to rounding.
        assert result.abs().max() <= 2 * math.sqrt(result.numel())


@examples(40)
@given(grids=random_grids.grids(), scale=st.sampled_from([1e-8, 1.0, 1e8]), dtype=dtypes)
def test_gae_and_whitening_of_any_scale_with_anything_outside(grids, scale, dtype):
    mask = torch.arange(grids.mask.shape[1]) < grids.mask.sum(1, keepdim=True)
    rewards, values = (scale * grids.values[name] for name in ("advantages", "entropies"))
    results = []
    for filler in (0.0, math.nan, math.inf):
        filled = [torch.where(mask, grid, filler).to(dtype) for grid in (rewards, values)]
        advantages, returns = gae(*filled, mask, gamma=0.99, lam=0.95)
        results.append(
            torch.stack([advantages, returns, masked_whiten(advantages, mask, eps=1e-8)])
        )
    assert results[0].isfinite().all()
    assert (results[0][:, ~mask] == 0).all()
    assert all(torch.equal(result, results[0]) for result in results[1:])


@pytest.mark.parametrize("name", presets.PREFERENCE)
@examples(15)
@given(data=st.data(), dtype=dtypes)
def test_pairs_of_any_likelihood(name, data, dtype):
    preset = presets.loss(name)
    sums = st.lists(st.sampled_from([0.0, -1e-9, -0.3, -50.0, -1e6]), min_size=4, max_size=4)
    leaves = [torch.tensor([n], dtype=dtype, requires_grad=True) for n in data.draw(sums)]
    chosen, rejected, chosen_ref, rejected_ref = leaves
    if preset.kind == KTO:
        result, _ = kto_loss(
            chosen,
            ref_logprobs=chosen_ref,
            desirable=torch.tensor([data.draw(st.booleans())]),
            reference_point=rejected_ref.detach().abs().sum(),
            **preset.hyperparameters(),
        )
    else:
        lengths = torch.tensor([3]), torch.tensor([1])
        pairs = PairLogprobs(chosen, rejected, chosen_ref, rejected_ref, *lengths)
        result, _ = compute_pair_losses(preset, pairs)
    result.sum().backward()
    assert result.isfinite().all()
    assert all(leaf.grad is None or leaf.grad.isfinite().all() for leaf in leaves)


@examples(40)
@given(data=st.data(), dtype=dtypes)
def test_scores_and_values_of_any_size(data, dtype):
    numbers = data.draw(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3))
    leaves = [torch.tensor([number], dtype=dtype, requires_grad=True) for number in numbers]
    first, second, third = leaves
    probability = torch.tensor([data.draw(st.sampled_from([0.0, 0.3, 1.0]))], dtype=dtype)
    loss = bradley_terry_loss(first, second, probability)
    loss = loss + clipped_value_loss(first[None], second[None], third[None], clip=0.2)[0]
    loss.sum().backward()
    assert loss.isfinite().all()
    assert all(leaf.grad is None or leaf.grad.isfinite().all() for leaf in leaves)
