import presets
import pytest
import torch
from stages.loops.divergence import check_on_policy, frozen_logprobs
from stages.loops.group_rl import GroupRlConfig
from tiny_checkpoints import CPU, FAMILIES, PAD, build, compute, load, plain_logprobs, random_ids
from tiny_rollouts import OPTIM, decode, even_share, make_prompts, make_sampler

from stages.loops import group_rl
from stages.loops.rollouts import Actor, Task
from stages.models.batch import Group, micro_batches
from stages.models.policy import Policy
from stages.rewards.judged import Judged


def batches():
    generator = torch.Generator().manual_seed(0)
    groups = [
        Group(
            prompt_ids=random_ids(generator, 4),
            completions=[random_ids(generator, n) for n in (5, 2, 3)],
            indices=range(3 * i, 3 * i + 3),
        )
        for i in range(4)
    ]
    return list(micro_batches(groups, compute(max_tokens=40), PAD, CPU))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_before_any_update_the_ratio_is_exactly_1(family, checkpointing):
    model = load(family, gradient_checkpointing=checkpointing).train()
    for batch, old in zip(
        batches(), frozen_logprobs(Policy(model), batches(), temperature=0.7), strict=True
    ):
        logprobs, *_ = Policy(model)(batch, temperature=0.7)
        assert logprobs.requires_grad
        assert not old.requires_grad
        check_on_policy(logprobs, old)
    assert model.training


def test_dropout_left_on_is_found():
    model = build("gpt2").train()
    parts = batches()
    old = frozen_logprobs(Policy(model), parts, temperature=1.0)
    logprobs, *_ = Policy(model)(parts[0], temperature=1.0)
    with pytest.raises(AssertionError, match=r"moved by .* before any update"):
        check_on_policy(logprobs, old[0])


def test_another_temperature_is_found():
    model = load("llama")
    parts = batches()
    old = frozen_logprobs(Policy(model), parts, temperature=1.0)
    logprobs, *_ = Policy(model)(parts[0], temperature=0.9)
    with pytest.raises(AssertionError):
        check_on_policy(logprobs, old[0])


PROMPTS = make_prompts(4)
TARGET = 0.01


def train(num_epochs):
    """One rollout batch of an unclipped ratio held by a penalty; the policy and the step."""
    model = load("llama")
    preset = presets.group_rl(
        surrogate="kl_penalty",
        old_kl={"initial": 1.0, "control": {"kind": "doubling", "target": TARGET}},
        kl="none",
        num_epochs=num_epochs,
    )
    config = GroupRlConfig(num_steps=1, prompts_per_step=4, group_size=4, temperature=0.9,
                           max_new_tokens=6, num_checkpoints=0, optim=OPTIM)  # fmt: skip
    actor = Actor(policy=Policy(model), reference=None, sampler=make_sampler(model), decode=decode,
                  pad_id=PAD, compute=compute())  # fmt: skip
    task = Task(
        prompts=PROMPTS, reward=lambda drawn: Judged(totals=even_share(drawn.texts)), correct=None
    )
    schedule = [[0, 1, 2, 3]]
    (step,) = group_rl.train(actor, task, schedule, config, preset, 0)
    return model.eval(), step


@pytest.mark.parametrize("num_epochs", [1, 3])
@torch.no_grad()
def test_the_divergence_is_that_of_the_policy_after_its_last_update(num_epochs):
    """exp(d) - 1 - d with d = log new - log old, averaged over the tokens that the old one drew."""
    with torch.enable_grad():
        model, step = train(num_epochs)
    old, total, num_tokens = load("llama").eval(), 0.0, 0
    for row in step.rows:
        prompt = next(prompt for prompt in PROMPTS if prompt.id == row.id)
        before = plain_logprobs(old, prompt.prompt_ids, row.completion_ids, 0.9)
        moved = plain_logprobs(model, prompt.prompt_ids, row.completion_ids, 0.9) - before
        total += (torch.exp(moved) - 1 - moved).sum().item()
        num_tokens += len(row.completion_ids)
    assert step.metrics["advantage/zero_share"] == 0, "every completion is learned from"
    assert step.metrics["kl/old_after"] == pytest.approx(total / num_tokens, rel=1e-3)
    assert step.metrics["kl/old_after"] > 1.5 * TARGET
