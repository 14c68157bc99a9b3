"""Trials of the planner on small shapes, and the most that the same loop holds on real models."""

import functools
import gc
from dataclasses import fields
from types import SimpleNamespace

import presets
import torch
from live_memory import LiveMemory
from tiny_checkpoints import CPU, EOS, PAD, compute
from tiny_rollouts import OPTIM
from transformers import LlamaConfig

from stages.engines.loading import DataParallelSampler, copy_weights
from stages.engines.transformers import TransformersSampler
from stages.loops.method import GroupRlConfig, PpoConfig
from stages.loops.preference import PreferenceConfig
from stages.loops.process_reward import ProcessRewardConfig
from stages.loops.reward import OutcomeConfig, RewardConfig
from stages.loops.sft import SftConfig, SftPreset
from stages.models import policy, row_policy, sharding
from stages.models.policy import Policy
from stages.models.row_policy import LoraConfig
from stages.planning import cost
from stages.planning.cost import Trial

EMBEDDED = {
    "hidden_size": 192, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 6, "intermediate_size": 512, "vocab_size": 900,
}  # fmt: skip
BIGGER = {
    "hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8,
    "num_key_value_heads": 4, "intermediate_size": 1408, "vocab_size": 4000,
}  # fmt: skip
PROMPT, COMPLETION, SAMPLES = 40, 24, 4
PER_ROW = {"train_sft": 1, "train_dpo": 2, "reward_preference": 2}


def make_trial(entry_point, shape, *, rank=0, rows=4, preset=None, num_processes=1, **changes):
    """Two micro-batches of `rows` rows in an optimizer step. `changes`: of `compute`."""
    per_row, number = PER_ROW.get(entry_point, SAMPLES), 2 * rows * num_processes
    settings = compute(row_tokens=256, max_tokens=rows * (PROMPT + per_row * COMPLETION), **changes)
    epochs = {"num_epochs": 1, "batch_size": number, "optim": OPTIM}
    drawing = {"num_steps": 2, "prompts_per_step": number, "temperature": 1.0,
               "max_new_tokens": COMPLETION, "num_checkpoints": 0, "optim": OPTIM}  # fmt: skip
    name = (preset or {}).get("name", "sft")
    read = {
        "train_sft": lambda: SftPreset(**presets.CONTENT[name]),
        "train_dpo": lambda: presets.loss("dpo"),
        "reward_preference": lambda: RewardConfig(**epochs, centring=0.01, margin=0.0),
        "reward_outcome": lambda: OutcomeConfig(
            **epochs, max_per_problem=SAMPLES, one_class_weight=1.0),
        "reward_process": lambda: ProcessRewardConfig(
            **epochs, targets={"kind": "soft"}, up_to_first_error=False),
        "train_grpo": lambda: presets.method(**preset or {}),
        "train_ppo": lambda: presets.method(
            "ppo_instructgpt", **{"num_minibatches": 1} | (preset or {})),
    }  # fmt: skip
    config = SimpleNamespace(
        compute=settings, lora=LoraConfig(rank=rank, alpha=16), num_processes=num_processes,
        preset=read[entry_point](), sft=SftConfig(**epochs), engine="transformers",
        dpo=PreferenceConfig(**epochs, num_checkpoints=0),
        grpo=GroupRlConfig(**drawing, group_size=SAMPLES),
        ppo=PpoConfig(**drawing, samples_per_prompt=SAMPLES, value_optim=OPTIM),
    )  # fmt: skip
    base = LlamaConfig(**shape, max_position_embeddings=256, tie_word_embeddings=True,
                       bos_token_id=None, eos_token_id=EOS, pad_token_id=PAD)  # fmt: skip
    return Trial(
        entry_point=entry_point, config=config, base=base, prompt=PROMPT, completion=COMPLETION,
        samples=per_row, scorers=("reward",) if entry_point == "train_ppo" else (),
    )  # fmt: skip


class WholeTrial(Trial):
    """All processes together: every row of an optimizer step."""

    def numbers(self, num_prompts, per_prompt):
        return range(num_prompts)


class RealModels:
    """In place of the planner's: models with numbers, spread over the processes if there are
    several, whose sampler draws."""

    def __init__(self, trial):
        self.trial = trial

    def build(self, use, *, trained=False, spread=True):
        reader, auto_class, labels = cost.HEADS[use]
        config, settings = self.trial.base, self.trial.config
        config.update({"step_token_id": EOS, "step_separator": "x"} | labels)
        torch.manual_seed(0)
        model = auto_class.from_config(config, attn_implementation="sdpa")
        policy.prepare_model(model, settings.compute, CPU, trained=trained)
        without = row_policy.add_adapters(model, settings.lora, 0) if trained else None
        batching = settings.compute, PAD
        read = Policy(model, *batching, without) if reader is Policy else reader(model, *batching)
        read = sharding.shard_model(read) if spread else read
        if use == "policy" and trained:
            self.policy = read
        return read

    def sampler(self, model, max_prompts):
        # No token ends a completion: all are as long as they may be.
        sampler = TransformersSampler(
            model=model, eos_ids=frozenset(), pad_id=PAD,
            max_batch=self.trial.config.compute.max_batch,
        )  # fmt: skip
        refresh = functools.partial(copy_weights, self.policy.model, model)
        is_copy = self.trial.num_processes > 1
        return DataParallelSampler(sampler, refresh) if is_copy else sampler


def measure_peak(trial):
    """Bytes at the peak of the second optimizer step on real tensors, when moments exist."""
    gc.collect()
    trial = WholeTrial(**{field.name: getattr(trial, field.name) for field in fields(trial)})
    low = trial.config.compute.dtype == "bfloat16"
    with (
        torch.autocast("cpu", torch.bfloat16, enabled=low, cache_enabled=False),
        LiveMemory() as live,
    ):
        steps = cost.LOOPS[trial.entry_point](trial, RealModels(trial))
        next(steps)
        gc.collect()
        live.peak = live.live
        next(steps)
    return live.peak
