"""Reinforcement learning without the pipeline: your model, your prompts, your reward.

    for step in library.grpo(model, tokenizer, prompts, reward, preset="dapo"):
        print(step.index, step.metrics["reward/mean"])

Training goes on where a killed run was, to the same bits:

    state = library.State.load("folder")
    for step in library.grpo(model, tokenizer, prompts, reward, state=state):
        state.save("folder")

Needs neither DVC nor MLflow nor Prefect. `stages.algorithms` needs only tensors.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from pydantic import TypeAdapter, ValidationError
from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages import auto
from stages.config import PRESETS_PATH, find_entry, read_yaml
from stages.engines import transformers as engine
from stages.loops import rl
from stages.loops.method import GroupMethod, GroupRlConfig, Method, Settings
from stages.loops.rollouts import RlModels, Rollouts, Task
from stages.loops.state import State
from stages.loops.work import Step
from stages.models import model_tokenizer, policy
from stages.models.device import COMPUTE, ComputeConfig, setup
from stages.models.policy import Policy
from stages.optim import OptimConfig
from stages.records.problems import Prompt
from stages.rewards.completion_rewards import CompletionRewards, score_each

PRESETS = Path(__file__).parents[1] / PRESETS_PATH


def grpo(  # noqa: PLR0913
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    reward: Callable[[str, str], float],
    *,
    preset: str = "grpo_deepseekmath",
    num_steps: int = 100,
    prompts_per_step: int = 8,
    group_size: int = 8,
    max_new_tokens: int = 256,
    learning_rate: float = 1e-6,
    seed: int = 0,
    compute: ComputeConfig = COMPUTE,
    state: State | None = None,
) -> Iterator[Step]:
    """Train `model` in place, a frozen copy of itself as the reference; one step a rollout batch.

    Sets torch to deterministic algorithms and one thread, for the whole process, and switches the
    model's dropout off.

    Args:
        model, tokenizer: a causal language model of transformers, its weights in float32.
        prompts: texts, as the model is to read them (with its chat template applied).
        reward: prompt and completion -> what the completion is worth.
        preset: an entry of presets.yaml that is one of `train: grpo`.
        num_steps, prompts_per_step, group_size, max_new_tokens: see `GroupRlConfig`.
        learning_rate: constant, after a warm-up over a twentieth of the steps.
        seed: of the order of prompts and of sampling.
        compute: see `ComputeConfig`.
        state: where to go on from; changed with each step. `model` is the one of the first start.
    """
    method = load_method(preset)
    if model.dtype != torch.float32:
        raise ValueError(
            f"expected weights in float32, found {model.dtype}: steps of a small learning rate are "
            f"lost in its rounding. Load with dtype=torch.float32 and set compute.dtype instead."
        )
    optim = OptimConfig(
        learning_rate=learning_rate, warmup_share=0.05, schedule="constant", weight_decay=0.0,
        max_grad_norm=1.0,
    )  # fmt: skip
    config = GroupRlConfig(
        num_steps=num_steps, prompts_per_step=prompts_per_step, group_size=group_size,
        temperature=1.0, max_new_tokens=max_new_tokens, num_checkpoints=0, optim=optim,
    )  # fmt: skip
    device, reference = setup(compute), copy.deepcopy(model)
    pad_id = model_tokenizer.pad_id(tokenizer)
    models = RlModels(
        policy=Policy(policy.prepare_model(model, compute, device), compute, pad_id),
        reference=Policy(policy.prepare_model(reference, compute, device, trained=False), compute),
        sampler=engine.make_sampler(model, tokenizer, max_batch=compute.max_batch),
        decode=model_tokenizer.make_decode(tokenizer),
    )

    rows = [
        Prompt(
            id=str(i), task="", question=text, prompt=text, prompt_ids=tokenizer.encode(text),
            answer=None,
        )
        for i, text in enumerate(prompts)
    ]  # fmt: skip

    def judge(batch: Rollouts) -> CompletionRewards:
        return score_each(batch, lambda prompt, text: reward(prompt.prompt, text))

    task = Task(prompts=rows, reward=judge, correct=None)
    settings = Settings(config=config, method=method, seed=seed)
    yield from rl.train(models, task, rl.make_schedule(task, settings), settings, state)


def load_method(preset: str) -> Method:
    """An entry of presets.yaml that is one of `train: grpo`; a ValueError names those there are."""
    adapter, methods = TypeAdapter(GroupMethod), dict[str, Method]()
    for name, entry in auto.resolve({"presets": read_yaml(PRESETS)}, None)[0]["presets"].items():
        with suppress(ValidationError):
            methods[name] = adapter.validate_python(entry)
    method = find_entry(methods, preset, "the list of presets of GRPO and its relatives")
    return method.for_engine("transformers")
