"""Every preset of reinforcement learning improves its own reward on problems it has not seen."""

import math
from dataclasses import replace

import presets
import pytest
import torch
from answers import NOTHING
from learning.conftest import (
    DATA,
    MAX_NEW_TOKENS,
    REWARD,
    REWARD_MODEL,
    SEED,
    SFT,
    Embedded,
    gain,
)

from stages.engines import transformers as engine
from stages.loops import rl, rollout_rewards, teacher
from stages.loops.method import GroupRlConfig, PpoConfig, Settings
from stages.loops.rollout_rewards import load_reward
from stages.loops.rollouts import RlModels, Task
from stages.models import model_tokenizer, policy, scalar_head
from stages.models.policy import Policy
from stages.models.scalar_head import ScalarHead
from stages.records import lines
from stages.records.problems import Demonstration
from stages.rewards import composition
from stages.rewards.completion_rewards import CompletionRewards
from stages.rewards.composition import Composition

pytestmark = [pytest.mark.learning, pytest.mark.rotating]
TEACHER = DATA / f"policies/grpo/model/{SEED}"
DEMONSTRATIONS = DATA / "demonstrations/demonstrations.jsonl"
NUM_STEPS = 24
RULE = Composition.model_validate(presets.CONTENT["rule"])
MAXIMISES_RULE = {"vapo"}
"""The presets of PPO that are published with a verifier; the others with a reward model."""
SIZES = {"num_steps": NUM_STEPS, "prompts_per_step": 16, "temperature": 1.0,
         "max_new_tokens": MAX_NEW_TOKENS, "num_checkpoints": 0}  # fmt: skip


def rate(learning_rate: float) -> dict[str, float | str]:
    return {"learning_rate": learning_rate, "warmup_share": 0.05, "schedule": "constant",
            "weight_decay": 0.0, "max_grad_norm": 1.0}  # fmt: skip


def rule(drawn):
    return composition.compose_rewards(RULE, drawn, NOTHING)


@pytest.fixture(scope="module")
def learned_reward(embedded: Embedded):
    device = next(embedded.load().parameters()).device
    return load_reward(REWARD, SEED, embedded.compute, device, MAX_NEW_TOKENS)


@pytest.fixture(scope="module")
def start(embedded: Embedded):
    return embedded.draw(embedded.load())


def make_models(embedded: Embedded) -> RlModels:
    model, pad_id = embedded.load(), model_tokenizer.pad_id(embedded.tokenizer)
    return RlModels(
        policy=Policy(model, embedded.compute, pad_id),
        reference=Policy(embedded.load(), embedded.compute, pad_id),
        sampler=engine.make_sampler(model, embedded.tokenizer, max_batch=1024),
        decode=model_tokenizer.make_decode(embedded.tokenizer),
    )


def report(name, reward, start, drawn):
    accuracy = gain(rollout_rewards.check_answers(drawn), rollout_rewards.check_answers(start))
    result = gain(reward(drawn).totals, reward(start).totals)
    print(f"\n{name}: reward {result[0]:+.3f} [{result[1]:+.3f}, {result[2]:+.3f}], "
          f"accuracy {accuracy[0]:+.3f} [{accuracy[1]:+.3f}, {accuracy[2]:+.3f}]")  # fmt: skip
    return result


def rule_as_one_step(drawn):
    """For process supervision: a completion is one step, and the rule reward is that step's."""
    totals = torch.tensor(rule(drawn).totals)
    mask = drawn.mask()
    ends = torch.zeros_like(mask).scatter(1, mask.sum(1, keepdim=True) - 1, True)
    return CompletionRewards(
        totals=[0.0] * len(totals),
        step_rewards=torch.where(ends, totals[:, None], 0.0),
        step_ends=ends,
    )


@pytest.mark.parametrize("name", presets.GROUP_RL)
def test_group_preset(name, embedded, start):
    models, method = make_models(embedded), presets.method(name)
    reward = rule_as_one_step if method.advantage == "step_zscore" else rule
    task = Task(prompts=embedded.train, reward=reward, check_answers=rollout_rewards.check_answers)
    config = GroupRlConfig(**SIZES, group_size=8, optim=rate(2e-4))
    settings = Settings(config=config, method=method, seed=1)
    for _ in rl.train(models, task, rl.make_schedule(task, settings), settings):
        pass
    _, low, _ = report(name, rule, start, embedded.draw(models.policy.model))
    assert low > 0


@pytest.mark.parametrize("name", presets.DISTILLATION)
def test_distillation(name, embedded, start):
    """Towards the policy of GRPO the rule reward grows.

    Of itself nothing is promised but numbers: the embedded model has never seen a solution before
    a problem, and its log-probs after one are far from its own.
    """
    models, method = make_models(embedded), presets.method(name)
    task = Task(
        prompts=embedded.train,
        reward=rollout_rewards.reward_answers,
        check_answers=rollout_rewards.check_answers,
    )
    if method.teacher_reads_solution:
        other, rows = embedded.load(), lines.read_lines(DEMONSTRATIONS, Demonstration)
        shown = teacher.show_solutions(task.prompts, rows, None)
        prompts = [prompt for prompt in task.prompts if prompt.id in shown]
        task = replace(task, prompts=prompts, teacher_prompts=shown)
    else:
        other = policy.load_policy(TEACHER, embedded.compute, models.policy.device)
    other = Policy(other, embedded.compute, models.policy.pad_id)
    models = replace(models, reference=None, teacher=other)
    config = GroupRlConfig(**SIZES, group_size=8, optim=rate(2e-4))
    settings = Settings(config=config, method=method, seed=1)
    steps = list(rl.train(models, task, rl.make_schedule(task, settings), settings))
    divergences = [step.metrics["kl/teacher"] for step in steps]
    print(f"\n{name}: KL to the teacher {divergences[0]:.3f} to {divergences[-1]:.3f}")
    _, low, _ = report(name, rule, start, embedded.draw(models.policy.model))
    assert all(map(math.isfinite, divergences))
    if not method.teacher_reads_solution:
        assert sum(divergences[-4:]) < sum(divergences[:4])
        assert low > 0


@pytest.mark.parametrize("name", presets.PPO)
def test_ppo_preset(name, embedded, start, learned_reward):
    models, method = make_models(embedded), presets.method(name)
    reward = rule if name in MAXIMISES_RULE else learned_reward
    task = Task(prompts=embedded.train, reward=reward, check_answers=rollout_rewards.check_answers)
    compute, pad_id, device = embedded.compute, models.policy.pad_id, models.policy.device
    if method.value_init == "policy":
        value = scalar_head.init_scalar_model(SFT, pad_id, compute, device)
    else:
        member, *_ = scalar_head.find_member_folders(REWARD_MODEL)
        value = scalar_head.load_scalar_model(member, compute, device)
    models = replace(models, value=ScalarHead(value, compute, pad_id))
    config = PpoConfig(**SIZES, samples_per_prompt=8, optim=rate(2e-4), value_optim=rate(6e-4))
    settings = Settings(config=config, method=method, seed=1)
    for _ in rl.train(models, task, rl.make_schedule(task, settings), settings):
        pass
    _, low, _ = report(name, reward, start, embedded.draw(models.policy.model))
    assert low > 0
