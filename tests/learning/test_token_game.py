"""Every preset of presets.yaml learns a game of tokens; the embedded model has its own tests."""

import presets
import pytest
import torch
from stages.loops.group_rl import GroupRlConfig
from stages.loops.ppo import PpoConfig
from tiny_checkpoints import CPU, PAD, checkpoint, compute, load
from tiny_rollouts import OPTIM, decode, draws, even_share, make_prompts, make_sampler

from stages.loops import group_rl, ppo, rollouts
from stages.loops.rollouts import Actor, Task
from stages.models import scalar_head
from stages.models.policy import Policy
from stages.models.scalar_head import ScalarHead
from stages.rewards.judged import Judged

PROMPTS = make_prompts(8)
NUM_STEPS = 20
SIZES = {"num_steps": NUM_STEPS, "temperature": 1.0, "max_new_tokens": 6, "num_checkpoints": 0,
         "optim": OPTIM}  # fmt: skip
# The game's answers have 6 tokens at most, its rewards are below 1.
SCALE = {"overlong": {"buffer": 2, "penalty": 0.1}}


@pytest.fixture(autouse=True)
def _endless(monkeypatch):
    # Nothing in this game rewards ending an answer.
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 2 * NUM_STEPS + 1)


def steps_of(drawn):
    """Each token is a step, worth 1 where it is even."""
    mask = drawn.mask()
    tokens = torch.tensor([token for sample in drawn.samples for token in sample.token_ids])
    rewards = torch.zeros(mask.shape).masked_scatter(mask, (tokens % 2 == 0).float())
    return Judged(totals=[0.0] * len(mask), step_rewards=rewards, step_ends=mask)


def play(model, reward=None):
    actor = Actor(
        policy=Policy(model), reference=Policy(load("llama")), sampler=make_sampler(model),
        decode=decode, pad_id=PAD, compute=compute(),
    )  # fmt: skip
    task = Task(
        prompts=PROMPTS,
        reward=reward or (lambda drawn: Judged(totals=even_share(drawn.texts))),
        correct=lambda drawn: [share == 1 for share in even_share(drawn.texts)],
    )
    return actor, task


def gain(steps, num_steps=NUM_STEPS):
    rewards = [step.metrics["reward/mean"] for step in steps]
    assert len(rewards) == num_steps
    return sum(rewards[-4:]) / 4 - sum(rewards[:4]) / 4


@pytest.mark.parametrize("name", presets.GROUP_RL)
def test_group_preset(name):
    model = load("llama")
    asked = presets.group_rl(name)
    preset = presets.group_rl(
        name,
        num_minibatches=min(asked.num_minibatches, 2),
        **(SCALE if asked.overlong else {}),
    )
    config = GroupRlConfig(**SIZES, prompts_per_step=4, group_size=4)
    schedule = draws(8, NUM_STEPS, min(8, preset.max_prompts(config)), seed=0)
    reward = steps_of if preset.advantage.kind == "step_zscore" else None
    steps = list(group_rl.train(*play(model, reward), schedule, config, preset, 0))
    assert gain(steps) > 0.1
    last = steps[-1].metrics
    assert {"kl/k1", "kl/k3", "kl/sequence", "clip_fraction", "kl/old"} <= last.keys()


# A penalty for the scores of a reward model, ten times as far apart as the game's rewards.
TOO_DEAR = {"ppo_strong_kl"}


@pytest.mark.parametrize("name", [name for name in presets.PPO if name not in TOO_DEAR])
def test_ppo_preset(name):
    model = load("llama")
    value = scalar_head.init_scalar_model(checkpoint("llama", 1), PAD, compute(), CPU)
    preset = presets.ppo(name, num_minibatches=min(presets.ppo(name).num_minibatches, 2))
    # A first step at 1e-2 moves the policy by 0.4 nats a token, forty times the penalty's target.
    slow = preset.old_kl is not None
    rate = {"learning_rate": 3e-3 if slow else 1e-2}
    num_steps = 2 * NUM_STEPS if slow else NUM_STEPS
    config = PpoConfig(
        **SIZES | {"optim": OPTIM | rate, "num_steps": num_steps},
        prompts_per_step=4,
        samples_per_prompt=4,
        value_optim=OPTIM,
    )
    actor, task = play(model)
    schedule = draws(8, num_steps, 4, seed=0)
    steps = list(ppo.train(actor, ScalarHead(value), task, schedule, config, preset, 0))
    assert gain(steps, num_steps) > 0.1
    assert {"value/explained_variance", "kl/k1", "kl/k3", "entropy"} <= steps[-1].metrics.keys()
