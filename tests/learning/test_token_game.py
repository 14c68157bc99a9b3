"""Every preset of presets.yaml learns a game of tokens; the embedded model has its own tests."""

from dataclasses import replace

import presets
import pytest
import torch
from tiny_checkpoints import CPU, EOS, PAD, checkpoint, compute, load
from tiny_rollouts import OPTIM, draws, make_models, make_prompts, make_task

from stages.loops import rl, rollouts
from stages.loops.method import GroupRlConfig, PpoConfig, Settings
from stages.models import scalar_head
from stages.models.policy import Policy
from stages.models.scalar_head import ScalarHead
from stages.rewards.completion_rewards import CompletionRewards

NUM_STEPS = 20
SIZES = {"num_steps": NUM_STEPS, "temperature": 1.0, "max_new_tokens": 6, "num_checkpoints": 0,
         "optim": OPTIM}  # fmt: skip
# The game's answers have 6 tokens at most, its rewards are below 1.
SCALE = {"overlong_buffer": 2, "overlong_penalty": 0.1}


@pytest.fixture(autouse=True)
def _endless(monkeypatch):
    # Nothing in this game rewards ending an answer.
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 2 * NUM_STEPS + 1)


def steps_of(drawn):
    """Each token is a step, worth 1 where it is even."""
    mask = drawn.mask()
    tokens = torch.tensor([token for sample in drawn.samples for token in sample.token_ids])
    rewards = torch.zeros(mask.shape).masked_scatter(mask, (tokens % 2 == 0).float())
    return CompletionRewards(totals=[0.0] * len(mask), step_rewards=rewards, step_ends=mask)


def gain(steps, num_steps=NUM_STEPS):
    rewards = [step.metrics["reward/mean"] for step in steps]
    assert len(rewards) == num_steps
    return sum(rewards[-4:]) / 4 - sum(rewards[:4]) / 4


def slow_but(names, *quick):
    """The names, with a mark for those that are not quick."""
    marks = {name: [] if name in quick else [pytest.mark.slow] for name in names}
    return [pytest.param(name, marks=marks[name]) for name in names]


@pytest.mark.parametrize("name", slow_but(presets.GROUP_RL, "grpo_deepseekmath"))
def test_group_preset(name):
    method = presets.method(name)
    changes = {"num_minibatches": min(method.num_minibatches, 2)}
    changes |= SCALE if method.overlong_buffer else {}
    config = GroupRlConfig(**SIZES, prompts_per_step=4, group_size=4)
    settings = Settings(config=config, method=presets.method(name, **changes), seed=0)
    schedule = draws(8, NUM_STEPS, min(8, settings.max_prompts()), seed=0)
    task = make_task(reward=steps_of if method.advantage == "step_zscore" else None)
    steps = list(rl.train(make_models(load("llama")), task, schedule, settings))
    assert gain(steps) > 0.1


# A penalty for the scores of a reward model, ten times as far apart as the game's rewards.
TOO_DEAR = {"ppo_strong_kl", "ppo_environment"}


@pytest.mark.parametrize(
    "name", slow_but([n for n in presets.PPO if n not in TOO_DEAR], "ppo_instructgpt")
)
def test_ppo_preset(name):
    value = scalar_head.init_scalar_model(checkpoint("llama", 1), PAD, compute(), CPU)
    num_minibatches = min(presets.method(name).num_minibatches, 2)
    method = presets.method(name, num_minibatches=num_minibatches)
    # A first step at 1e-2 moves the policy by 0.4 nats a token, forty times the penalty's target.
    slow = method.surrogate == "kl_penalty"
    rate = {"learning_rate": 3e-3 if slow else 1e-2}
    num_steps = 2 * NUM_STEPS if slow else NUM_STEPS
    config = PpoConfig(
        **SIZES | {"optim": OPTIM | rate, "num_steps": num_steps},
        prompts_per_step=4,
        samples_per_prompt=4,
        value_optim=OPTIM,
    )
    settings = Settings(config=config, method=method, seed=0)
    models = make_models(load("llama"), value=ScalarHead(value, compute(), PAD))
    steps = list(rl.train(models, make_task(), draws(8, num_steps, 4, seed=0), settings))
    assert gain(steps, num_steps) > 0.1


@pytest.mark.parametrize("name", slow_but(presets.DISTILLATION, "opd"))
def test_a_policy_comes_near_its_teacher(name):
    method, num_steps = presets.method(name), 30
    sizes = SIZES | {"num_steps": num_steps}
    config = GroupRlConfig(**sizes, prompts_per_step=4, group_size=16)
    settings = Settings(config=config, method=method, seed=0)
    shown = {row.id: [*row.prompt_ids, EOS, *row.prompt_ids] for row in make_prompts(8)}
    task = make_task()
    task = replace(task, teacher_prompts=shown) if method.teacher_reads_solution else task
    teacher = Policy(load("llama", 1), compute(), PAD)
    models = make_models(load("llama"), teacher=teacher, reference=None)
    steps = rl.train(models, task, draws(8, num_steps, 4, seed=0), settings)
    divergences = [step.metrics["kl/teacher"] for step in steps]
    assert sum(divergences[-5:]) < 0.75 * sum(divergences[:5])
