"""Every preset makes the embedded model better at problems that it has not seen."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import every_loop
import numpy as np
import presets
import pytest
import torch
from answers import NOTHING
from tiny_checkpoints import CPU
from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages import auto
from stages.algorithms.statistics.intervals import bootstrap_means
from stages.config import read_yaml
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
from stages.loops.preference import PreferenceConfig
from stages.loops.rollouts import RlModels, RolloutConfig, Rollouts, Task
from stages.loops.sft import SftConfig, SftPreset, Teacher
from stages.models import model_tokenizer, policy, scalar_head
from stages.models.device import ComputeConfig, setup
from stages.models.policy import Policy
from stages.models.scalar_head import ScalarHead
from stages.records import lines
from stages.records.preferences import Preference
from stages.records.problems import Demonstration, Prompt
from stages.rewards import composition, reward_file
from stages.rewards.completion_rewards import CompletionRewards
from stages.rewards.composition import Composition

pytestmark = [pytest.mark.learning, pytest.mark.weekly]
REPOSITORY = Path(__file__).parents[2]
DATA = REPOSITORY / "data"
SEED = 0
"""Of the policy, its pairs and its reward model; the default run has others beside it."""
SFT = DATA / f"policies/sft/model/{SEED}"
PAIRS = DATA / f"pairs/verifier/{SEED}/train.jsonl"
REWARD = DATA / "rewards/preference"
REWARD_MODEL = reward_file.model_path(REWARD, SEED)
NUM_PROMPTS, NUM_SAMPLES = 160, 4
MAX_NEW_TOKENS = 32
GRPO = DATA / f"policies/grpo/model/{SEED}"
"""Policy that others learn from."""
DEMONSTRATIONS = DATA / "demonstrations/demonstrations.jsonl"
RULE = Composition.model_validate(presets.CONTENT["rule"])
MAXIMISES_RULE = {"vapo"}
"""The presets of PPO that are published with a verifier; the others with a reward model."""
SIZES = {"num_steps": 24, "prompts_per_step": 16, "temperature": 1.0,
         "max_new_tokens": MAX_NEW_TOKENS, "num_checkpoints": 0}  # fmt: skip
NUM_PAIR_STEPS, NUM_TAUGHT = 80, 320


@dataclass
class Embedded:
    """The compared policies' settings, tokenizer and prompts."""

    compute: ComputeConfig
    tokenizer: PreTrainedTokenizerBase
    train: list[Prompt]
    heldout: list[Prompt]

    def draw(
        self, model: PreTrainedModel, prompts: list[Prompt] | None = None, seed: int = 5
    ) -> Rollouts:
        """Completions of these prompts, else of the held-out ones, from the same streams."""
        return rollouts.sample_rollouts(
            engine.make_sampler(model, self.tokenizer, max_batch=1024),
            model_tokenizer.make_decode(self.tokenizer),
            prompts or self.heldout,
            step=0,
            seed=seed,
            group_size=NUM_SAMPLES,
            config=RolloutConfig(temperature=1.0, max_new_tokens=MAX_NEW_TOKENS),
        )


@pytest.fixture(scope="session")
def embedded() -> Embedded:
    if not (SFT / "model.safetensors").exists() or not REWARD_MODEL.exists():
        pytest.skip("the embedded model is not trained: run `dvc repro` first, as .ci/run does")
    content, _ = auto.resolve(read_yaml(REPOSITORY / "params.yaml"), None)
    config = ComputeConfig(**content["compute"])
    setup(config)
    prompts = DATA / "prompts"
    return Embedded(
        compute=config,
        tokenizer=model_tokenizer.load_tokenizer(SFT),
        train=list(lines.read_lines(prompts / "train.jsonl", Prompt)),
        heldout=list(lines.read_lines(prompts / "test.jsonl", Prompt))[:NUM_PROMPTS],
    )


def gain(after: Sequence[float], before: Sequence[float]) -> tuple[float, float, float]:
    """Mean difference and its 95 % interval, paired by prompt and resampled over prompts."""
    difference = np.array(after, dtype=float) - np.array(before, dtype=float)
    by_prompt = difference.reshape(-1, NUM_SAMPLES).mean(1, keepdims=True)
    value, low, high = bootstrap_means(by_prompt, num_resamples=2000, confidence=0.95, seed=0)
    return float(value[0]), float(low[0]), float(high[0])


def rate(learning_rate, **changes):
    optim = {"learning_rate": learning_rate, "warmup_share": 0.05, "schedule": "constant",
             "weight_decay": 0.0, "max_grad_norm": 1.0}  # fmt: skip
    return optim | changes


PAIR_CONFIG = PreferenceConfig(
    num_epochs=1, batch_size=32, num_checkpoints=0,
    optim=rate(1e-4, warmup_share=0.1, schedule="cosine"),
)  # fmt: skip
SFT_CONFIG = SftConfig(
    num_epochs=1, batch_size=8, optim=rate(1e-3, schedule="cosine", weight_decay=0.01)
)


def rule(drawn):
    return composition.compose_rewards(RULE, drawn, NOTHING)


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


def make_policy(embedded: Embedded, path=SFT):
    pad_id = model_tokenizer.pad_id(embedded.tokenizer)
    return Policy(policy.load_policy(path, embedded.compute, CPU), embedded.compute, pad_id)


def make_value(embedded, method, learner):
    if method.value_init == "policy":
        value = scalar_head.init_scalar_model(SFT, learner.pad_id, embedded.compute, CPU)
    else:
        member, *_ = scalar_head.find_member_folders(REWARD_MODEL)
        value = scalar_head.load_scalar_model(member, embedded.compute, CPU)
    return ScalarHead(value, embedded.compute, learner.pad_id)


def learn_online(name, embedded, learner):
    """Reinforcement learning, or distillation from the policy of GRPO: its steps and its reward."""
    method, is_ppo, reward = presets.method(name), name in presets.PPO, rule
    models = RlModels(
        policy=learner,
        reference=None if method.has_teacher else make_policy(embedded),
        sampler=engine.make_sampler(learner.model, embedded.tokenizer, max_batch=1024),
        decode=model_tokenizer.make_decode(embedded.tokenizer),
    )
    config = GroupRlConfig(**SIZES, group_size=8, optim=rate(2e-4))
    if is_ppo:
        models = replace(models, value=make_value(embedded, method, learner))
        config = PpoConfig(**SIZES, samples_per_prompt=8, optim=rate(2e-4), value_optim=rate(6e-4))
        if name not in MAXIMISES_RULE:
            reward = rollout_rewards.load_reward(
                REWARD, SEED, embedded.compute, CPU, MAX_NEW_TOKENS
            )
    by_step = method.advantage == "step_zscore"
    task = Task(
        prompts=embedded.train, reward=rule_as_one_step if by_step else reward,
        check_answers=rollout_rewards.check_answers,
    )  # fmt: skip
    if method.has_teacher:
        path = SFT if method.teacher_reads_solution else GRPO
        models = replace(models, teacher=make_policy(embedded, path))
    if method.teacher_reads_solution:
        rows = lines.read_lines(DEMONSTRATIONS, Demonstration)
        shown = teacher.show_solutions(task.prompts, rows, None, None)
        prompts = [prompt for prompt in task.prompts if prompt.id in shown]
        task = replace(task, prompts=prompts, teacher_prompts=shown)
    settings = Settings(config=config, method=method, seed=1)
    return rl.train(models, task, rl.make_schedule(task, settings), settings), reward


def learn_pairs(name, embedded, learner):
    """Preference learning on the verifier's pairs."""
    loss, pairs = presets.loss(name), list(lines.read_lines(PAIRS, Preference))
    is_kto = loss.kind == preference.KTO
    examples = kto.make_unpaired_examples(pairs)
    number = len(examples if is_kto else pairs)
    schedule = epochs.batches(number, 1, PAIR_CONFIG.batch_size, 1)[:NUM_PAIR_STEPS]
    if is_kto:
        ref = kto.compute_reference(learner, examples, schedule)
        steps = kto.train(learner, examples, ref, schedule, loss, PAIR_CONFIG)
    else:
        ref = ref_logprobs.compute(learner, ref_logprobs.list_pair_completions(pairs)).view(-1, 2)
        steps = preference.train(learner, pairs, ref, schedule, loss, PAIR_CONFIG)
    return steps, rollout_rewards.reward_answers


def learn_distribution(name, embedded, learner):
    """Towards the distribution of the policy of GRPO, on its completions, right or wrong."""
    taught_by = make_policy(embedded, GRPO)
    drawn = embedded.draw(taught_by.model, embedded.train[:NUM_TAUGHT], seed=7)
    rows = [
        Demonstration(
            id=f"{i}", task="solve", prompt="", prompt_ids=drawn.prompt(i).prompt_ids,
            completion="", completion_ids=sample.token_ids,
        )
        for i, sample in enumerate(drawn.samples)
    ]  # fmt: skip
    preset = SftPreset.model_validate(presets.CONTENT[name])
    assert preset.teacher is not None
    config = preset.override(SFT_CONFIG)
    schedule = epochs.batches(len(rows), config.num_epochs, config.batch_size, 1)
    other = Teacher(policy=taught_by, loss=preset.teacher)
    return sft.train(learner, rows, schedule, config, teacher=other), rollout_rewards.reward_answers


LEARN = {name: learn_online for name in every_loop.RL if name not in every_loop.EPISODES}
LEARN |= dict.fromkeys(presets.PREFERENCE, learn_pairs)
LEARN |= {name: learn_distribution for name in every_loop.FORWARD_KL if name in presets.SFT}
DIVERGENCES = ("kl/teacher", "loss/forward_kl")
PROMISES_NUMBERS = {"self_distillation"}
"""The embedded model has never seen a solution before a problem, and its log-probs after one are
far from its own."""


@pytest.mark.parametrize("name", LEARN)
def test_a_preset_raises_what_it_maximises_and_comes_nearer_to_its_teacher(name, embedded):
    learner = make_policy(embedded)
    start = embedded.draw(learner.model)
    steps, reward = LEARN[name](name, embedded, learner)
    history = [step.metrics for step in steps]
    end = embedded.draw(learner.model)
    accuracy = gain(rollout_rewards.check_answers(end), rollout_rewards.check_answers(start))
    value, low, high = gain(reward(end).totals, reward(start).totals)
    print(f"\n{name}: accuracy {accuracy[0]:+.3f} [{accuracy[1]:+.3f}, {accuracy[2]:+.3f}], "
          f"reward {value:+.3f} [{low:+.3f}, {high:+.3f}]")  # fmt: skip
    divergences = [row[key] for key in DIVERGENCES for row in history if key in row]
    assert all(map(math.isfinite, divergences))
    if name not in PROMISES_NUMBERS:
        assert low > 0
        number = len(divergences) // 6
        assert not divergences or sum(divergences[-number:]) < sum(divergences[:number])
