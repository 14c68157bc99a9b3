"""The gradient of a policy's and a value model's step, through the model, in float64.

It does not depend on micro-batches, on whether completions share their prompt's row, on which
prompts are packed into one row, on the order of completions, nor on padding. Our rows are
padded on the right only, so there is no side to vary; the amount is what a longer row in the
same micro-batch makes it.
"""

from dataclasses import dataclass

import objective_choices
import pytest
import random_grids
import torch
from collated import collate
from exact_models import assert_same, language_model, near, scalar_model, take_gradient
from hypothesis import given
from hypothesis import strategies as st
from random_grids import examples
from tiny_checkpoints import CPU, EOS, PAD, compute, random_ids
from tiny_rollouts import make_models
from torch import Tensor

from stages.loops import rl
from stages.loops.method import Method, Settings
from stages.loops.rl import Coefs, Experience, Selection, TokenGrids, logprobs_no_grad
from stages.loops.rollouts import Rollouts, make_groups
from stages.models.policy import Policy
from stages.models.scalar_head import ScalarHead
from stages.records.problems import Prompt
from stages.sampler import Sample

NEW = language_model()
OLD, REFERENCE = near(NEW, 1), near(NEW, 2)
TEMPERATURE = 0.9
# The checks of types within our code pick the items of a list at random.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")
NAMES = ("grpo_deepseekmath", "dapo", "gspo", "ppo_instructgpt", "vapo")
METHODS = {name: objective_choices.PRESETS[name] for name in NAMES} | {
    "corrected KL and entropy": objective_choices.make(
        {"surrogate": "kl_penalty"},
        {"aggregation": "fixed_length"},
        {"kl": "loss", "kl_corrected": True},
        {"correction": "token_truncated", "correction_cap": 1.5},
        entropy_coef=0.1,
    )
}
CONFIG = random_grids.SIZES.model_copy(update={"temperature": TEMPERATURE})
VALUE = scalar_model()
row_tokens = st.sampled_from([0, 5, 9, 14, 40])
max_tokens = st.sampled_from([1, 12, 25, 60, 400])


@dataclass(frozen=True)
class Drawn:
    rollouts: Rollouts
    advantages: Tensor
    old_values: Tensor
    correct: list[bool]

    def ref_logprobs(self) -> Tensor:
        """In float64, which `rl.compute_frozen_logprobs` does not keep."""
        every = self.rollouts.mask().any(1)
        batch = collate(make_groups(self.rollouts, every, 0), 0, PAD, CPU)
        (result,) = logprobs_no_grad(Policy(REFERENCE), [batch], TEMPERATURE)
        grid = torch.zeros_like(result)
        grid[batch.indices] = result
        return grid

    def rows(self, order: list[int]) -> "Drawn":
        """The same completions in another order."""
        old = self.rollouts
        return Drawn(
            Rollouts(
                prompts=old.prompts,
                groups=[old.groups[i] for i in order],
                numbers=[old.numbers[i] for i in order],
                samples=[old.samples[i] for i in order],
                texts=[old.texts[i] for i in order],
            ),
            self.advantages[order],
            self.old_values[order],
            [self.correct[i] for i in order],
        )


@st.composite
def rollouts(draw) -> Drawn:
    """1 to 3 prompts with 1 to 4 completions each, the shortest of one token."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    prompts = [
        Prompt(id=f"p{i}", task="solve", question="", prompt="", answer="",
               prompt_ids=random_ids(generator, number(1, 6)))
        for i in range(len(sizes))
    ]  # fmt: skip
    groups = [i for i, size in enumerate(sizes) for _ in range(size)]
    lengths = [number(0, 6) for _ in groups]
    samples = [
        Sample(
            token_ids=[*random_ids(generator, length), EOS],
            logprobs=(-3 * torch.rand(length + 1, generator=generator)).tolist(),
            finish_reason="stop",
        )
        for length in lengths
    ]
    made = Rollouts(
        prompts=prompts,
        groups=groups,
        numbers=[j for size in sizes for j in range(size)],
        samples=samples,
        texts=["" for _ in groups],
    )
    mask = made.mask()
    return Drawn(
        made,
        torch.randn(mask.shape, generator=generator, dtype=torch.float64) * mask,
        torch.randn(mask.shape, generator=generator, dtype=torch.float64) * mask,
        [number(0, 1) == 1 for _ in groups],
    )


def settings(method: Method) -> Settings:
    return Settings(config=CONFIG, method=method.model_copy(update={"num_minibatches": 1}), seed=0)


def gather(drawn: Drawn, models: rl.RlModels, has_gradient=None, ref_logprobs=None) -> Experience:
    every, right = torch.ones(len(drawn.correct), dtype=torch.bool), torch.tensor(drawn.correct)
    selection = Selection(every, every, every if has_gradient is None else has_gradient, right)
    return Experience(
        rollouts=drawn.rollouts,
        rewards=torch.zeros(len(drawn.correct)),
        verdicts=drawn.correct,
        minibatches=rl.make_minibatches(models, drawn.rollouts, settings(Method()), 0, selection),
        grids=TokenGrids(
            sampler_logprobs=drawn.rollouts.sampler_logprobs(),
            advantages=drawn.advantages,
            right=drawn.rollouts.mask() & right[:, None],
            ref_logprobs=ref_logprobs,
            values=drawn.old_values,
            returns=drawn.advantages,
        ),
        metrics={},
    )


def policy_gradient(drawn: Drawn, method: Method, has_gradient=None, **limits) -> Tensor:
    models = make_models(NEW, compute(**limits), reference=None)
    experience = gather(drawn, models, has_gradient, drawn.ref_logprobs())
    (minibatch,) = experience.minibatches
    rl.add_policy_gradient(
        models,
        minibatch,
        logprobs_no_grad(Policy(OLD), minibatch.batches, TEMPERATURE),
        experience,
        settings(method),
        Coefs(kl=0.3, old_kl=0.7),
        is_first_update=False,
    )
    return take_gradient(NEW)


def value_gradient(drawn: Drawn, **limits) -> Tensor:
    models = make_models(NEW, compute(**limits), reference=None, value=ScalarHead(VALUE))
    experience = gather(drawn, models)
    method = Method(advantage="gae", value_clip=0.5)
    rl.add_value_gradient(models, experience.minibatches[0], experience, method)
    return take_gradient(VALUE)


@pytest.mark.parametrize("name", METHODS)
@examples(20)
@given(data=st.data(), drawn=rollouts(), row_tokens=row_tokens, max_tokens=max_tokens)
def test_micro_batches_shared_prompts_and_order_do_not_change_the_policys_gradient(
    name, data, drawn, row_tokens, max_tokens
):
    expected = policy_gradient(drawn, METHODS[name], row_tokens=0, max_tokens=4096)
    order = data.draw(st.permutations(range(len(drawn.correct))))
    limits = {"row_tokens": row_tokens, "max_tokens": max_tokens}
    assert_same(policy_gradient(drawn.rows(order), METHODS[name], **limits), expected)


@examples(25)
@given(data=st.data(), drawn=rollouts(), row_tokens=row_tokens, max_tokens=max_tokens)
def test_nor_the_value_models(data, drawn, row_tokens, max_tokens):
    expected = value_gradient(drawn, row_tokens=0, max_tokens=4096)
    order = data.draw(st.permutations(range(len(drawn.correct))))
    actual = value_gradient(drawn.rows(order), row_tokens=row_tokens, max_tokens=max_tokens)
    assert_same(actual, expected)


@examples(20)
@given(drawn=rollouts(), name=st.sampled_from(["dapo", "gspo"]), row_tokens=row_tokens)
def test_completions_without_advantage_pad_the_others_and_change_nothing(drawn, name, row_tokens):
    lengths = drawn.rollouts.mask().sum(1)
    drawn.advantages[lengths == lengths.max()] = 0.0
    moving = (drawn.advantages != 0).any(1)
    padded = policy_gradient(drawn, METHODS[name], row_tokens=row_tokens)
    alone = policy_gradient(drawn, METHODS[name], moving, row_tokens=row_tokens, max_tokens=1)
    assert_same(padded, alone)
