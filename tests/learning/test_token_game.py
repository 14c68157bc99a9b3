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


def play(method, config, task, *, batch_size=4, **models):
    """The metrics of each step."""
    settings = Settings(config=config, method=method, seed=0)
    schedule = draws(8, config.num_steps, batch_size, seed=0)
    models = make_models(load("llama"), **models)
    return [step.metrics for step in rl.train(models, task, schedule, settings)]


def gain(history):
    rewards = [metrics["reward/mean"] for metrics in history]
    return sum(rewards[-4:]) / 4 - sum(rewards[:4]) / 4


def slow_but(names, quick):
    """The names, with a mark for those that are not quick."""
    return [pytest.param(n, marks=[] if n == quick else pytest.mark.slow) for n in names]


@pytest.mark.parametrize("name", slow_but(presets.GROUP_RL, "grpo_deepseekmath"))
def test_group_preset(name):
    method = presets.method(name)
    changes = {"num_minibatches": min(method.num_minibatches, 2)}
    method = presets.method(name, **changes | (SCALE if method.overlong_buffer else {}))
    config = GroupRlConfig(**SIZES, prompts_per_step=4, group_size=4)
    number = Settings(config=config, method=method, seed=0).max_prompts()
    task = make_task(reward=steps_of if method.advantage == "step_zscore" else None)
    history = play(method, config, task, batch_size=min(8, number))
    assert len(history) == NUM_STEPS
    assert gain(history) > 0.1


# A penalty for the scores of a reward model, ten times as far apart as the game's rewards.
TOO_DEAR = {"ppo_strong_kl", "ppo_environment"}


@pytest.mark.parametrize(
    "name", slow_but([n for n in presets.PPO if n not in TOO_DEAR], "ppo_instructgpt")
)
def test_ppo_preset(name):
    method = presets.method(name, num_minibatches=min(presets.method(name).num_minibatches, 2))
    # A first step at 1e-2 moves the policy by 0.4 nats a token, forty times the penalty's target.
    slow = {"optim": OPTIM | {"learning_rate": 3e-3}, "num_steps": 2 * NUM_STEPS}
    sizes = SIZES | (slow if method.surrogate == "kl_penalty" else {})
    config = PpoConfig(**sizes, prompts_per_step=4, samples_per_prompt=4, value_optim=OPTIM)
    value = scalar_head.init_scalar_model(checkpoint("llama", 1), PAD, compute(), CPU)
    history = play(method, config, make_task(), value=ScalarHead(value, compute(), PAD))
    assert gain(history) > 0.1


@pytest.mark.parametrize("name", slow_but(presets.DISTILLATION, "opd"))
def test_a_policy_comes_near_its_teacher(name):
    method, task = presets.method(name), make_task()
    if method.teacher_reads_solution:
        shown = {row.id: [*row.prompt_ids, EOS, *row.prompt_ids] for row in make_prompts(8)}
        task = replace(task, teacher_prompts=shown)
    config = GroupRlConfig(**SIZES | {"num_steps": 30}, prompts_per_step=4, group_size=16)
    teacher = Policy(load("llama", 1), compute(), PAD)
    history = play(method, config, task, teacher=teacher, reference=None)
    divergences = [metrics["kl/teacher"] for metrics in history]
    assert sum(divergences[-5:]) < 0.75 * sum(divergences[:5])
