"""The training stages of a plan as jobs to predict the memory of."""

from collections.abc import Iterator, Mapping
from typing import Any

from stages.algorithms.memory.activations import Precision
from stages.algorithms.memory.prediction import Job
from stages.algorithms.memory.resident import Method, Resident, Scorer, residents
from stages.algorithms.memory.shape import Shape
from stages.algorithms.memory.sizes import decoding, micro_batch
from stages.recipe import ENSEMBLES, POLICY_STAGES, Recipe, members
from stages.recipe_entries import OnlineRl
from stages.rewards.composition_config import Composition

ONLINE: dict[str, Method] = {"train_ppo": "ppo", "train_grpo": "grpo"}
OFFLINE: dict[str, tuple[Method, str, int]] = {
    "train_sft": ("sft", "sft", 1),
    "train_reward_model": ("reward_model", "train_reward_model", 2),
    "train_outcome_reward": ("reward_model", "train_outcome_reward", 0),
    "train_process_reward": ("process_reward", "train_process_reward", 0),
    "train_dpo": ("dpo", "train_dpo", 2),
}
"""Stage -> method, the section of its batch size, and completions of a prompt in a batch (0: as
many as the pool has)."""
Content = Mapping[str, Any]


def jobs(content: Content, shape: Shape) -> dict[str, Job]:
    """Each entry of the plan that trains -> its job, everything as long as it may be.

    Args:
        content: all of params.yaml and of the files beside it.
        shape: of the base model.
    """
    plan = Recipe.model_validate(content["plan"])
    return {**dict(_offline(content, plan, shape)), **dict(_online(content, plan, shape))}


def precision(content: Content) -> Precision:
    """What `compute` and `lora` say of it."""
    compute = content["compute"]
    return Precision(
        width=2 if compute["dtype"] == "bfloat16" else 4,
        checkpointing=compute["gradient_checkpointing"],
        rank=content["lora"]["rank"],
    )


def _offline(content: Content, plan: Recipe, shape: Shape) -> Iterator[tuple[str, Job]]:
    compute, data = content["compute"], content["prepare_data"]
    limits = {name: compute[name] for name in ("max_tokens", "row_tokens", "pack_tokens")}
    for stage, (method, section, per_prompt) in OFFLINE.items():
        for name, entry in getattr(plan, stage).items():
            settings = content[section]
            settings = settings[entry.preset] if section == "sft" else settings
            batch = micro_batch(
                data["max_prompt_tokens"],
                data["max_completion_tokens"],
                per_prompt=per_prompt or content["sample_candidates"]["preference"]["num_samples"],
                num_prompts=settings["batch_size"],
                **limits,
            )
            yield (
                f"{stage}/{name}",
                Job(
                    shape=shape,
                    residents=residents(method),
                    batch=batch,
                    how=precision(content),
                    decoding=None,
                ),
            )


def _online(content: Content, plan: Recipe, shape: Shape) -> Iterator[tuple[str, Job]]:
    compute, prompt = content["compute"], content["prepare_data"]["max_prompt_tokens"]
    limits = {name: compute[name] for name in ("max_tokens", "row_tokens", "pack_tokens")}
    for stage in ONLINE:
        loop = content[stage]["loop"]
        samples = loop["group_size" if stage == "train_grpo" else "samples_per_prompt"]
        number = loop["prompts_per_step"]
        for name, entry in getattr(plan, stage).items():
            batch = micro_batch(
                prompt, loop["max_new_tokens"], per_prompt=samples, num_prompts=number, **limits
            )
            sampled = decoding(
                prompt,
                loop["max_new_tokens"],
                samples=samples,
                num_prompts=number,
                max_batch=compute["max_batch"],
            )
            yield (
                f"{stage}/{name}",
                Job(
                    shape=shape,
                    residents=of_entry(content, plan, stage, entry),
                    batch=batch,
                    how=precision(content),
                    decoding=sampled,
                ),
            )


def of_entry(content: Content, plan: Recipe, stage: str, entry: OnlineRl) -> list[Resident]:
    """The models of an entry of train_ppo or train_grpo, from its words and presets."""
    reward = Composition.model_validate(content["rewards"][entry.reward])
    value = "own"
    if stage == "train_ppo":
        value = content["ppo"][entry.preset]["value"]["trunk"]
    kind, number = scorer(plan, entry.scorer) if reward.needs_model() else ("none", 1)
    return residents(ONLINE[stage], scorer=kind, members=number, value=value)


def scorer(plan: Recipe, word: str) -> tuple[Scorer, int]:
    """What a word of a scorer names, and how many models that is."""
    stage = word.partition("/")[0]
    if word.startswith(f"{ENSEMBLES}/"):
        return "reward_model", len(members(plan, word.removeprefix(f"{ENSEMBLES}/")))
    if stage == "train_process_reward":
        return "process_model", 1
    return ("policy" if stage in POLICY_STAGES else "reward_model"), 1
