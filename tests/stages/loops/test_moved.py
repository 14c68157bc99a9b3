import presets
import pytest
import torch
from tiny_checkpoints import PAD, compute, load, plain_logprobs
from tiny_rollouts import OPTIM, decode, even_share, make_prompts, make_sampler

from stages.loops import group_rl
from stages.loops.actor import Actor, Task
from stages.loops.group_preset import GroupRlConfig
from stages.rewards.judged import Judged

PROMPTS = make_prompts(4)
TARGET = 0.01


def train(num_epochs):
    """One rollout batch of an unclipped ratio held by a penalty; the policy and the step."""
    model = load("llama")
    preset = presets.group_rl(
        surrogate={"kind": "kl_penalty"},
        old_kl={"kind": "doubling", "initial": 1.0, "target": TARGET},
        kl={"kind": "none"},
        num_epochs=num_epochs,
    )
    config = GroupRlConfig(num_steps=1, prompts_per_step=4, group_size=4, temperature=0.9,
                           max_new_tokens=6, optim=OPTIM)  # fmt: skip
    actor = Actor(policy=model, reference=None, sampler=make_sampler(model), decode=decode,
                  pad_id=PAD)  # fmt: skip
    task = Task(
        prompts=PROMPTS, reward=lambda drawn: Judged(totals=even_share(drawn.texts)), correct=None
    )
    schedule = [[0, 1, 2, 3]]
    (step,) = group_rl.train(actor, task, schedule, config, preset, compute(), 0)
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
