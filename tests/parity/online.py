"""What the trainers that sample have in common: GRPO and RLOO."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from parity import ours, reference
from parity.characters import text, tokenizer
from parity.reference import ReferenceStep
from tiny_checkpoints import load
from tiny_rollouts import make_prompts
from torch import Tensor

from stages.loops.rl import logprobs_no_grad
from stages.models.batch import Batch
from stages.models.policy import Policy

GROUP, MAX_TOKENS = 4, 24
TEMPERATURE = 0.7
# The second optimizer step on the same completions is off policy: some ratios are clipped.
SETTINGS = {
    "per_device_train_batch_size": 8,
    "max_steps": 2,
    "num_iterations": 2,
    "steps_per_generation": 1,
    "num_generations": GROUP,
    "max_completion_length": MAX_TOKENS,
    "temperature": TEMPERATURE,
    "learning_rate": 3e-3,
}


def reward(completion_ids: Sequence[Sequence[int]], **rest: Any) -> list[float]:
    """Any function of the tokens that differs within a group."""
    return [sum(i % 2 for i in ids) / len(ids) + 0.1 * len(ids) for ids in completion_ids]


@dataclass(kw_only=True, slots=True)
class Online:
    """What a trainer sampled, and the optimizer steps that it took on it."""

    sampled: dict[str, Any]
    """Completions with their advantages, a prompt's beside each other."""
    steps: list[ReferenceStep]


def train(trainer_class: Any, config_class: Any, folder: Path, **changes: Any) -> Online:
    """Samples for two prompts, and what `max_steps` optimizer steps make of it.

    The policy has the weights of seed 1; the reference is read from disk and is seed 0.
    """
    from datasets import Dataset

    policy = reference.model(0)
    policy.load_state_dict(reference.model(1).state_dict())
    trainer = trainer_class(
        model=policy,
        args=config_class(**reference.arguments(folder, **(SETTINGS | changes))),
        reward_funcs=reward,
        train_dataset=Dataset.from_list([{"prompt": text(p.prompt_ids)} for p in make_prompts(2)]),
        processing_class=tokenizer(),
    )
    sampled: list[dict[str, Any]] = []
    reference.listen(
        trainer, "_generate_and_score_completions", lambda args, result: sampled.append(result)
    )
    steps = reference.run(trainer)
    assert len(sampled) == 1
    return Online(sampled=sampled[0], steps=steps)


def token_lists(batch: dict[str, Any]) -> tuple[list[list[int]], list[list[int]]]:
    """Prompts and completions of a batch of TRL's, without padding."""

    def lists(name: str) -> list[list[int]]:
        ids, mask = batch[f"{name}_ids"], batch[f"{name}_mask"]
        return [row[keep.bool()].tolist() for row, keep in zip(ids, mask, strict=True)]

    return lists("prompt"), lists("completion")


@dataclass(kw_only=True, slots=True)
class Learnable:
    """One of TRL's batches as ours, with what our loops keep beside it."""

    batch: Batch
    advantages: Tensor
    old_logprobs: Tensor
    ref_logprobs: Tensor

    def logprobs(self, model: Any) -> Tensor:
        return Policy(model)(self.batch, temperature=TEMPERATURE)[0]


def learnable(theirs: Sequence[dict[str, Any]], old_weights: reference.Weights) -> Learnable:
    """These micro-batches as one; the old policy has `old_weights`, the advantages are TRL's."""
    lists = [token_lists(part) for part in theirs]
    prompts = [ids for part, _ in lists for ids in part]
    completions = [ids for _, part in lists for ids in part]
    batch = ours.one_batch(prompts, completions)
    old = load("llama")
    old.load_state_dict(old_weights)
    (old_logprobs,) = logprobs_no_grad(Policy(old), [batch], TEMPERATURE)
    (ref_logprobs,) = logprobs_no_grad(Policy(load("llama")), [batch], TEMPERATURE)
    advantages = torch.cat([part["advantages"] for part in theirs])
    return Learnable(
        batch=batch,
        advantages=advantages[torch.tensor(batch.indices)],
        old_logprobs=old_logprobs,
        ref_logprobs=ref_logprobs,
    )
