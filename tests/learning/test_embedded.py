"""Every preset makes the embedded model better at problems that it has not seen."""

import math
from dataclasses import replace

import presets
import pytest
import torch
from answers import NOTHING
from learning.conftest import (
    DATA,
    MAX_NEW_TOKENS,
    PAIRS,
    REWARD,
    REWARD_MODEL,
    SEED,
    SFT,
    Embedded,
    gain,
)

from stages.engines import transformers as engine
from stages.loops import (
    epochs,
    kto,
    preference,
    ref_logprobs,
    rl,
    rollout_rewards,
    rollouts,
    sft,
    teacher,
)
from stages.loops.method import GroupRlConfig, PpoConfig, Settings
from stages.loops.preference import KTO, PreferenceConfig
from stages.loops.rollout_rewards import load_reward
from stages.loops.rollouts import RlModels, RolloutConfig, Task
from stages.loops.sft import SftConfig, SftPreset, Teacher
from stages.models import model_tokenizer, policy, scalar_head
from stages.models.policy import Policy
from stages.models.scalar_head import ScalarHead
from stages.records import lines
from stages.records.preferences import Preference
from stages.records.problems import Demonstration
from stages.rewards import composition
from stages.rewards.completion_rewards import CompletionRewards
from stages.rewards.composition import Composition

pytestmark = [pytest.mark.learning, pytest.mark.weekly]
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


def learn(models, task, name):
    """The metrics of each step, and the policy after the last."""
    method = presets.method(name)
    if name in presets.PPO:
        config = PpoConfig(**SIZES, samples_per_prompt=8, optim=rate(2e-4), value_optim=rate(6e-4))
    else:
        config = GroupRlConfig(**SIZES, group_size=8, optim=rate(2e-4))
    settings = Settings(config=config, method=method, seed=1)
    steps = [*rl.train(models, task, rl.make_schedule(task, settings), settings)]
    return [step.metrics for step in steps], models.policy.model


@pytest.mark.parametrize("name", [*presets.GROUP_RL, *presets.PPO])
def test_a_preset_of_rl_raises_its_reward(name, embedded, start, learned_reward):
    models, method, compute = make_models(embedded), presets.method(name), embedded.compute
    is_ppo, pad_id, device = name in presets.PPO, models.policy.pad_id, models.policy.device
    reward = learned_reward if is_ppo and name not in MAXIMISES_RULE else rule
    if is_ppo:
        if method.value_init == "policy":
            value = scalar_head.init_scalar_model(SFT, pad_id, compute, device)
        else:
            member, *_ = scalar_head.find_member_folders(REWARD_MODEL)
            value = scalar_head.load_scalar_model(member, compute, device)
        models = replace(models, value=ScalarHead(value, compute, pad_id))
    task = Task(
        prompts=embedded.train, check_answers=rollout_rewards.check_answers,
        reward=rule_as_one_step if method.advantage == "step_zscore" else reward,
    )  # fmt: skip
    _, model = learn(models, task, name)
    _, low, _ = report(name, reward, start, embedded.draw(model))
    assert low > 0


@pytest.mark.parametrize("name", presets.DISTILLATION)
def test_distillation(name, embedded, start):
    """Towards the policy of GRPO the rule reward grows.

    Of itself nothing is promised but numbers: the embedded model has never seen a solution before
    a problem, and its log-probs after one are far from its own.
    """
    models, method = make_models(embedded), presets.method(name)
    task = Task(
        prompts=embedded.train, reward=rollout_rewards.reward_answers,
        check_answers=rollout_rewards.check_answers,
    )  # fmt: skip
    if method.teacher_reads_solution:
        other, rows = embedded.load(), lines.read_lines(DEMONSTRATIONS, Demonstration)
        shown = teacher.show_solutions(task.prompts, rows, None)
        prompts = [prompt for prompt in task.prompts if prompt.id in shown]
        task = replace(task, prompts=prompts, teacher_prompts=shown)
    else:
        other = policy.load_policy(TEACHER, embedded.compute, models.policy.device)
    other = Policy(other, embedded.compute, models.policy.pad_id)
    history, model = learn(replace(models, reference=None, teacher=other), task, name)
    divergences = [metrics["kl/teacher"] for metrics in history]
    print(f"\n{name}: KL to the teacher {divergences[0]:.3f} to {divergences[-1]:.3f}")
    _, low, _ = report(name, rule, start, embedded.draw(model))
    assert all(map(math.isfinite, divergences))
    if not method.teacher_reads_solution:
        assert sum(divergences[-4:]) < sum(divergences[:4])
        assert low > 0


# --- Pairs

NUM_PAIR_STEPS, BATCH_SIZE = 80, 32
PAIR_OPTIM = rate(1e-4) | {"warmup_share": 0.1, "schedule": "cosine"}
PAIR_CONFIG = PreferenceConfig(
    num_epochs=1, batch_size=BATCH_SIZE, num_checkpoints=0, optim=PAIR_OPTIM
)


@pytest.fixture(scope="module")
def pairs(embedded: Embedded) -> list[Preference]:
    return list(lines.read_lines(PAIRS, Preference))


@pytest.mark.parametrize("name", presets.PREFERENCE)
def test_preference_loss(name, embedded, pairs, start):
    loss = presets.loss(name)
    model, compute = embedded.load(), embedded.compute
    pad_id = model_tokenizer.pad_id(embedded.tokenizer)
    if loss.kind == KTO:
        rows = kto.make_unpaired_examples(pairs)
        schedule = epochs.batches(len(rows), 1, BATCH_SIZE, 1)[:NUM_PAIR_STEPS]
        ref = kto.compute_reference(Policy(model, compute, pad_id), rows, schedule)
        steps = kto.train(Policy(model, compute, pad_id), rows, ref, schedule, loss, PAIR_CONFIG)
    else:
        schedule = epochs.batches(len(pairs), 1, BATCH_SIZE, 1)[:NUM_PAIR_STEPS]
        wanted = ref_logprobs.list_pair_completions(pairs)
        ref = ref_logprobs.compute(Policy(model, compute, pad_id), wanted).view(-1, 2)
        steps = preference.train(
            Policy(model, compute, pad_id), pairs, ref, schedule, loss, PAIR_CONFIG
        )
    history = [step.metrics for step in steps]
    result = gain(
        rollout_rewards.check_answers(embedded.draw(model)), rollout_rewards.check_answers(start)
    )
    print(f"\n{name}: accuracy {result[0]:+.3f} [{result[1]:+.3f}, {result[2]:+.3f}], margin "
          f"accuracy {history[-1]['margin/accuracy']:.2f}, log-ratios "
          f"{history[-1].get('log_ratios/chosen', 0):+.2f} "
          f"{history[-1].get('log_ratios/rejected', 0):+.2f}")  # fmt: skip
    assert result[1] > 0


# --- A teacher's distribution

NUM_TAUGHT, NUM_TAUGHT_SAMPLES = 320, 4
SFT_OPTIM = rate(1e-3) | {"schedule": "cosine", "weight_decay": 0.01}
SFT_SIZES = SftConfig(num_epochs=1, batch_size=8, optim=SFT_OPTIM)


@pytest.fixture(scope="module")
def taught_by(embedded: Embedded) -> Policy:
    model = policy.load_policy(TEACHER, embedded.compute, embedded.load().device, trained=False)
    return Policy(model, embedded.compute, model_tokenizer.pad_id(embedded.tokenizer))


def draw(embedded: Embedded, teacher: Policy) -> list[Demonstration]:
    """The teacher's completions of train prompts, right or wrong."""
    drawn = rollouts.sample_rollouts(
        engine.make_sampler(teacher.model, embedded.tokenizer, max_batch=1024),
        model_tokenizer.make_decode(embedded.tokenizer),
        embedded.train[:NUM_TAUGHT],
        step=0,
        seed=7,
        group_size=NUM_TAUGHT_SAMPLES,
        config=RolloutConfig(temperature=1.0, max_new_tokens=MAX_NEW_TOKENS),
    )
    return [
        Demonstration(
            id=f"{i}", task="solve", prompt="", prompt_ids=drawn.prompt(i).prompt_ids,
            completion="", completion_ids=sample.token_ids,
        )
        for i, sample in enumerate(drawn.samples)
    ]  # fmt: skip


def test_forward_kl(embedded, taught_by):
    preset = SftPreset.model_validate(presets.CONTENT["forward_kl"])
    rows, model = draw(embedded, taught_by), embedded.load()
    start = rollout_rewards.check_answers(embedded.draw(model))
    settings = preset.override(SFT_SIZES)
    schedule = epochs.batches(len(rows), settings.num_epochs, settings.batch_size, 1)
    student, taught = Policy(model, embedded.compute, taught_by.pad_id), preset.teacher
    assert taught is not None
    steps = sft.train(
        student, rows, schedule, settings, teacher=Teacher(policy=taught_by, loss=taught)
    )
    divergences = [step.metrics["loss/forward_kl"] for step in steps]
    result = gain(rollout_rewards.check_answers(embedded.draw(model)), start)
    first, last = (sum(part) / 20 for part in (divergences[:20], divergences[-20:]))
    print(f"\nforward_kl: KL from the teacher {first:.3f} to {last:.3f} in {len(divergences)} "
          f"steps, accuracy {result[0]:+.3f} [{result[1]:+.3f}, {result[2]:+.3f}]")  # fmt: skip
    assert last < first
    assert result[1] > 0
