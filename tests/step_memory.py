"""The most that a training step of each loop holds, in live tensor bytes, on any shape."""

import functools
import gc
from collections.abc import Iterator
from types import SimpleNamespace

import presets
import torch
from live_memory import LiveMemory
from tiny_checkpoints import CPU, EOS, PAD, compute
from tiny_rollouts import OPTIM, decode
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    LlamaForTokenClassification,
)

from stages.algorithms.ensemble import mean
from stages.engines.loading import DataParallelSampler, copy_weights
from stages.engines.transformers import TransformersSampler
from stages.loops import preference, process_reward, reward, rl, sft
from stages.loops.method import GroupRlConfig, PpoConfig, Settings
from stages.loops.preference import PreferenceConfig
from stages.loops.process_reward import ProcessRewardConfig
from stages.loops.reward import OutcomeConfig, RewardConfig
from stages.loops.rollout_rewards import score_completions
from stages.loops.rollouts import RlModels, Rollouts, Task
from stages.loops.sft import SftConfig, SftPreset
from stages.loops.work import Step
from stages.models import policy, row_policy, sharding
from stages.models.device import ComputeConfig
from stages.models.policy import Policy
from stages.models.process_head import ProcessHead
from stages.models.row_policy import LoraConfig
from stages.models.scalar_head import Ensemble, ScalarHead
from stages.planning.memory import Trial
from stages.records.preferences import Outcome, Preference
from stages.records.problems import Demonstration, Prompt
from stages.records.steps import StepLabels
from stages.rewards.completion_rewards import CompletionRewards

EMBEDDED = {
    "hidden_size": 192, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 6, "intermediate_size": 512, "vocab_size": 900,
}  # fmt: skip
BIGGER = {
    "hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8,
    "num_key_value_heads": 4, "intermediate_size": 1408, "vocab_size": 4000,
}  # fmt: skip
PROMPT, COMPLETION, SAMPLES = 40, 24, 4
SHARED = PROMPT + SAMPLES * COMPLETION


def config_of(shape: dict[str, int]) -> LlamaConfig:
    return LlamaConfig(
        **shape, max_position_embeddings=256, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=EOS, pad_token_id=PAD, num_labels=1,
    )  # fmt: skip


READERS = {"policy": Policy, "reward": ScalarHead, "process": ProcessHead}


def build(
    shape: dict[str, int],
    head: str,
    settings: ComputeConfig,
    rank: int,
    *,
    trained: bool = True,
    whole: bool = False,
) -> torch.nn.Module:
    torch.manual_seed(0)
    kind = LlamaForCausalLM if head == "policy" else LlamaForSequenceClassification
    if head == "process":
        kind = LlamaForTokenClassification
    config = config_of(shape)
    if head == "process":
        config.update({"num_labels": 2, "step_token_id": EOS, "step_separator": "x"})
    model = kind._from_config(config, attn_implementation="sdpa")
    model = policy.prepare_model(model, settings, CPU, trained=trained)
    without = row_policy.add_adapters(model, LoraConfig(rank=rank, alpha=16), 0)
    batch_model = (
        Policy(model, settings, PAD, without)
        if head == "policy"
        else READERS[head](model, settings, PAD)
    )
    return batch_model if whole else sharding.shard_model(batch_model)


def completion(number: int) -> list[int]:
    return [*(2 + (number + i) % 30 for i in range(COMPLETION - 1)), EOS]


def prompt(number: int) -> list[int]:
    return [2 + (7 * number + i) % 30 for i in range(PROMPT)]


def demonstrations(number: int) -> list[Demonstration]:
    return [
        Demonstration(
            id=str(i), task="solve", prompt="", prompt_ids=prompt(i), completion="",
            completion_ids=completion(i),
        )
        for i in range(number)
    ]  # fmt: skip


def pairs(number: int) -> list[Preference]:
    return [
        Preference(
            id=str(i), prompt="", prompt_ids=prompt(i), chosen="", chosen_ids=completion(i),
            rejected="", rejected_ids=completion(i + 1), probability=1.0, source="verifier",
        )
        for i in range(number)
    ]  # fmt: skip


def prompts(number: int) -> list[Prompt]:
    return [
        Prompt(id=str(i), task="solve", question="", prompt="", prompt_ids=prompt(i), answer="")
        for i in range(number)
    ]


def outcomes(number: int) -> list[list[Outcome]]:
    return [
        [
            Outcome(
                id=str(i), prompt_ids=prompt(i), completion_ids=completion(j), right=j % 2 == 0,
                weight=1.0,
            )
            for j in range(SAMPLES)
        ]
        for i in range(number)
    ]  # fmt: skip


def solutions(number: int) -> list[StepLabels]:
    # With the tokens that are put behind its two steps a solution is as long as it may be.
    half = COMPLETION // 2 - 1
    return [
        StepLabels(
            id=str(i), index=j, prompt="", prompt_ids=prompt(i), steps=["", ""],
            step_ids=[completion(j)[:half], completion(j)[:half]], labels=[1.0, 0.0],
            num_completions=[0, 0], true_labels=None, correct=None, source="",
        )
        for i in range(number)
        for j in range(SAMPLES)
    ]  # fmt: skip


HELD = {
    "train_sft": {"policy": "policy"},
    "train_dpo": {"policy": "policy"},
    "reward_preference": {"reward": "reward"},
    "reward_outcome": {"reward": "reward"},
    "reward_process": {"reward": "process"},
    "train_grpo": {"policy": "policy", "reference": "policy"},
    "train_ppo": {"policy": "policy", "reference": "policy", "value": "reward", "scorer": "reward"},
}
"""Entry point -> the models in memory, and what each is for."""
TRAINED = ("policy", "value", "reward")
PER_ROW = {"train_sft": 1, "train_dpo": 2, "reward_preference": 2}


class Measured:
    """A loop on real models, its memory watched; `trial` is the same as the planner has it."""

    def __init__(
        self,
        entry_point: str,
        shape: dict[str, int],
        *,
        rank: int = 0,
        rows: int = 8,
        preset: dict[str, object] | None = None,
        num_processes: int = 1,
        **changes: object,
    ) -> None:
        self.preset, self.num_processes = preset or {}, num_processes
        self.method, self.shape, self.rank, self.rows = entry_point, shape, rank, rows
        self.per_row = PER_ROW.get(entry_point, SAMPLES)
        # Two micro-batches of `rows` rows in an optimizer step.
        self.settings = compute(
            row_tokens=256, max_batch=64, max_tokens=rows * (PROMPT + self.per_row * COMPLETION)
        ).model_copy(update=changes)
        self.held = dict(HELD[entry_point])
        if self.preset.get("name") in (*presets.DISTILLATION, "forward_kl"):
            self.held = {"policy": "policy", "teacher": "policy"}

    @property
    def number(self) -> int:
        """Prompts of an optimizer step."""
        return 2 * self.rows * self.num_processes

    def trial(self) -> Trial:
        return Trial(
            entry_point=self.method, config=self.config(), base=config_of(self.shape),
            prompt=PROMPT, completion=COMPLETION, samples=self.per_row,
            scorers=("reward",) if self.method == "train_ppo" else (),
        )  # fmt: skip

    def config(self) -> SimpleNamespace:
        """What the stage would read of params.yaml, as far as its loop does."""
        number = self.number
        common = {"num_epochs": 1, "batch_size": number, "optim": OPTIM}
        drawing = {
            "num_steps": 2, "prompts_per_step": number, "temperature": 1.0,
            "max_new_tokens": COMPLETION, "num_checkpoints": 0, "optim": OPTIM,
        }  # fmt: skip
        named: dict[str, object] = {}
        match self.method:
            case "train_sft":
                named["sft"] = SftConfig(**common)
                preset = SftPreset(**presets.CONTENT[self.preset.get("name", "sft")])
            case "train_dpo":
                named["dpo"] = PreferenceConfig(**common, num_checkpoints=0)
                preset = presets.loss("dpo")
            case "reward_preference":
                preset = RewardConfig(**common, centring=0.01, margin=0.0)
            case "reward_outcome":
                preset = OutcomeConfig(**common, max_per_problem=SAMPLES, one_class_weight=1.0)
            case "reward_process":
                preset = ProcessRewardConfig(
                    **common, targets={"kind": "soft"}, up_to_first_error=False,
                )  # fmt: skip
            case "train_grpo":
                named["grpo"] = GroupRlConfig(**drawing, group_size=SAMPLES)
                preset = presets.method(**self.preset)
            case _:
                named["ppo"] = PpoConfig(**drawing, samples_per_prompt=SAMPLES, value_optim=OPTIM)
                changes = {"num_minibatches": 1} | self.preset
                preset = presets.method("ppo_instructgpt", **changes)
        lora = LoraConfig(rank=self.rank, alpha=16)
        return SimpleNamespace(
            compute=self.settings, lora=lora, preset=preset, num_processes=self.num_processes,
            **named,
        )  # fmt: skip

    @functools.cached_property
    def models(self) -> dict[str, torch.nn.Module]:
        return {
            role: build(
                self.shape,
                use,
                self.settings,
                self.rank if role in TRAINED else 0,
                trained=role in TRAINED,
                whole=role == "scorer",
            )
            for role, use in self.held.items()
            # With adapters the reference is the policy without them.
            if not (self.rank and role == "reference")
        }

    def peak(self) -> int:
        """Of the second optimizer step, when moments exist."""
        gc.collect()
        tensors = [t for m in self.models.values() for t in (*m.parameters(), *m.buffers())]
        low = self.settings.dtype == "bfloat16"
        with (
            torch.autocast("cpu", torch.bfloat16, enabled=low, cache_enabled=False),
            LiveMemory(tensors) as live,
        ):
            steps = self.steps()
            next(steps)
            gc.collect()
            live.peak = live.live
            next(steps)
        return live.peak

    def steps(self) -> Iterator[Step]:
        models = self.models
        number, config = self.number, self.config()
        schedule = [list(range(number))] * 2
        model = models.get("policy", models.get("reward"))
        match self.method:
            case "train_sft":
                teacher = None
                if "teacher" in models:
                    teacher = sft.Teacher(policy=models["teacher"], loss=config.preset.teacher)
                rows = demonstrations(number)
                return sft.train(model, rows, schedule, config.sft, teacher=teacher)
            case "train_dpo":
                reference = torch.full((number, 2), -50.0)
                return preference.train(
                    model, pairs(number), reference, schedule, config.preset, config.dpo,
                )  # fmt: skip
            case "reward_preference":
                return reward.train(model, pairs(number), schedule, config.preset)
            case "reward_outcome":
                problems = outcomes(number)
                return reward.train_outcomes(model, problems, schedule, config.preset)
            case "reward_process":
                rows = solutions(number)
                schedule = [list(range(len(rows)))] * 2
                return process_reward.train(model, rows, schedule, config.preset)
            case _:
                return self.online(schedule)

    def online(self, schedule: list[list[int]]) -> Iterator[Step]:
        models = self.models
        model, settings, config = models["policy"], self.settings, self.config()
        several, drawn_from = self.num_processes > 1, model
        if several:
            drawn_from = build(self.shape, "policy", settings, 0, trained=False, whole=True)
        # No token ends a completion: all are as long as they may be.
        sampler = TransformersSampler(
            model=drawn_from.model, eos_ids=frozenset(), pad_id=PAD, max_batch=settings.max_batch
        )
        refresh = functools.partial(copy_weights, model.model, drawn_from.model)
        rl_models = RlModels(
            policy=model,
            reference=None if "teacher" in models else models.get("reference", model),
            teacher=models.get("teacher"),
            value=models.get("value"),
            sampler=DataParallelSampler(sampler, refresh) if several else sampler,
            decode=decode,
        )

        def reward(batch: Rollouts) -> CompletionRewards:
            if "scorer" in models:
                return score_completions(
                    Ensemble(members=[models["scorer"]], aggregate=mean), batch
                )
            return CompletionRewards(totals=[float(sum(s.token_ids) % 7) for s in batch.samples])

        task = Task(prompts=prompts(self.number), reward=reward, check_answers=None)
        sizes = config.grpo if self.method == "train_grpo" else config.ppo
        loop = Settings(config=sizes, method=config.preset, seed=0)
        return rl.train(rl_models, task, schedule, loop)
