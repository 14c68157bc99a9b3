"""The gradient of a policy's and a value model's step, through the model, in float64.

It does not depend on micro-batches, on whether completions share their prompt's row, on which
prompts are packed into one row, on the order of completions, nor on padding. Our rows are
padded on the right only, so there is no side to vary; the amount is what a longer row in the
same micro-batch makes it.
"""

import objective_choices
import pytest
import torch
from exact_models import assert_same, scalar_model, take_gradient
from hypothesis import given
from hypothesis import strategies as st
from random_grids import examples
from random_rollouts import NEW, OLD, REFERENCE, TEMPERATURE, Drawn, rollouts
from stages.loops.critic import Critic, ValueConfig
from stages.loops.objective import Part, Weights
from stages.loops.policy_gradient import Experience, Minibatch, accumulate, make_parts, split
from tiny_checkpoints import PAD, compute
from tiny_rollouts import OPTIM, decode, make_sampler

from stages.loops.rollouts import Actor
from stages.loops.state import State
from stages.models.policy import Policy
from stages.models.scalar_head import ScalarHead
from stages.optim import OptimConfig

# The checks of types within our code pick the items of a list at random.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")
FROM_PRESETS = objective_choices.from_presets()
NAMES = ("grpo_deepseekmath", "dapo", "gspo", "ppo_instructgpt", "vapo")
OBJECTIVES = {name: FROM_PRESETS[name] for name in NAMES} | {
    "corrected KL and entropy": objective_choices.make(
        {"kind": "kl_penalty"},
        {"kind": "fixed_length"},
        {
            "kind": "loss",
            "estimator": "k3",
            "level": "token",
            "corrected": True,
            "coef": objective_choices.FIXED,
        },
        correction={"kind": "token_truncated", "cap": 1.5},
        entropy_coef=0.1,
    )
}
VALUE = scalar_model()
row_tokens = st.sampled_from([0, 5, 9, 14, 40])
max_tokens = st.sampled_from([1, 12, 25, 60, 400])


def divide(drawn: Drawn, computed=None, **limits) -> Minibatch:
    every = torch.ones(len(drawn.correct), dtype=torch.bool)
    actor = Actor(
        policy=Policy(NEW), reference=Policy(REFERENCE), sampler=make_sampler(NEW),
        decode=decode, pad_id=PAD, compute=compute(**limits),
    )  # fmt: skip
    (minibatch,) = split(
        actor,
        drawn.rollouts,
        1,
        0,
        used=every,
        learned=every,
        computed=every if computed is None else computed,
        max_length=9,
    )
    return minibatch


def make(drawn: Drawn, minibatch: Minibatch, *, reuse: bool) -> list[Part]:
    gathered = Experience(
        rollouts=drawn.rollouts,
        rewards=torch.zeros(len(drawn.correct)),
        correct=drawn.correct,
        minibatches=[minibatch],
        advantages=drawn.advantages,
        ref_logprobs=drawn.ref_logprobs() if reuse else None,
        values=drawn.old_values,
        returns=drawn.advantages,
        metrics={},
    )
    (parts,) = make_parts(Policy(OLD), gathered, temperature=TEMPERATURE, reuse=reuse)
    return parts


def policy_gradient(drawn: Drawn, objective, computed=None, **limits) -> torch.Tensor:
    minibatch = divide(drawn, computed, **limits)
    accumulate(
        Policy(NEW),
        make(drawn, minibatch, reuse=True),
        objective,
        minibatch,
        Weights(kl=0.3, old_kl=0.7),
        temperature=TEMPERATURE,
        on_policy=False,
    )
    return take_gradient(NEW)


def value_gradient(drawn: Drawn, **limits) -> torch.Tensor:
    minibatch = divide(drawn, **limits)
    config = ValueConfig(init="reward_model", clip=0.5, coef=1.0, warmup_steps=0)
    critic = Critic(ScalarHead(VALUE), config, OptimConfig(**OPTIM), State())
    critic.add_gradient(make(drawn, minibatch, reuse=False), minibatch.num_tokens)
    return take_gradient(VALUE)


@pytest.mark.parametrize("name", OBJECTIVES)
@examples(20)
@given(data=st.data(), drawn=rollouts(), row_tokens=row_tokens, max_tokens=max_tokens)
def test_micro_batches_shared_prompts_and_order_do_not_change_the_policys_gradient(
    name, data, drawn, row_tokens, max_tokens
):
    expected = policy_gradient(drawn, OBJECTIVES[name], row_tokens=0, max_tokens=4096)
    order = data.draw(st.permutations(range(len(drawn.correct))))
    limits = {"row_tokens": row_tokens, "max_tokens": max_tokens}
    assert_same(policy_gradient(drawn.rows(order), OBJECTIVES[name], **limits), expected)


@examples(25)
@given(data=st.data(), drawn=rollouts(), row_tokens=row_tokens, max_tokens=max_tokens)
def test_nor_the_value_models(data, drawn, row_tokens, max_tokens):
    expected = value_gradient(drawn, row_tokens=0, max_tokens=4096)
    order = data.draw(st.permutations(range(len(drawn.correct))))
    found = value_gradient(drawn.rows(order), row_tokens=row_tokens, max_tokens=max_tokens)
    assert_same(found, expected)


@examples(20)
@given(drawn=rollouts(), name=st.sampled_from(["dapo", "gspo"]), row_tokens=row_tokens)
def test_completions_without_advantage_pad_the_others_and_change_nothing(drawn, name, row_tokens):
    lengths = drawn.rollouts.mask().sum(1)
    drawn.advantages[lengths == lengths.max()] = 0.0
    moving = (drawn.advantages != 0).any(1)
    padded = policy_gradient(drawn, OBJECTIVES[name], row_tokens=row_tokens)
    alone = policy_gradient(drawn, OBJECTIVES[name], moving, row_tokens=row_tokens, max_tokens=1)
    assert_same(padded, alone)
