"""The training stages of a plan as jobs to predict the memory of, and shapes by words."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stages.algorithms.memory.activations import Precision, fullest_decoding, largest_micro_batch
from stages.algorithms.memory.prediction import Job, Method, Resident, Scorer, residents
from stages.algorithms.memory.shape import PUBLISHED, Shape, from_config, nearest_published
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
            batch = largest_micro_batch(
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
            batch = largest_micro_batch(
                prompt, loop["max_new_tokens"], per_prompt=samples, num_prompts=number, **limits
            )
            sampled = fullest_decoding(
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


UNITS = {"M": 1e6, "B": 1e9}
WIDTHS = ("hidden", "layers", "heads", "intermediate", "vocab")
FURTHER = ("kv_heads", "head_dim", "tied")


def shape(word: str) -> Shape:
    """A folder with a config.json, a published model, the size of one, or widths.

    Raises:
        ValueError: it is none of these.
    """
    config = Path(word) / "config.json"
    if config.is_file():
        return from_config(json.loads(config.read_text(encoding="utf-8")))
    if word.lower() in PUBLISHED:
        return PUBLISHED[word.lower()]
    if size := re.fullmatch(r"(\d+(?:\.\d+)?)([MB])", word.upper()):
        return PUBLISHED[nearest_published(float(size[1]) * UNITS[size[2]])]
    if "=" in word:
        return from_widths(word)
    raise ValueError(
        f"--model: expected a folder with a config.json, one of {', '.join(PUBLISHED)}, a size as "
        f"7B or 600M, or widths as hidden=512,layers=8,heads=8,intermediate=1408,vocab=4000; found "
        f"{word!r}"
    )


def from_widths(word: str) -> Shape:
    """Widths, of which kv_heads (as heads), head_dim and tied (1) may be left out."""
    found: dict[str, str] = {}
    for part in word.split(","):
        name, _, value = part.partition("=")
        found[name] = value
    missing = set(WIDTHS) - found.keys()
    unknown = found.keys() - {*WIDTHS, *FURTHER}
    if missing or unknown or not all(value.isdecimal() for value in found.values()):
        raise ValueError(
            f"--model: expected whole numbers for {', '.join(WIDTHS)} (and, where they differ, "
            f"{', '.join(FURTHER)}), found {word!r}"
        )
    sizes = {name: int(value) for name, value in found.items()}
    return Shape(
        hidden=sizes["hidden"],
        layers=sizes["layers"],
        heads=sizes["heads"],
        intermediate=sizes["intermediate"],
        vocab=sizes["vocab"],
        kv_heads=sizes.get("kv_heads", sizes["heads"]),
        head_dim=sizes.get("head_dim", sizes["hidden"] // sizes["heads"]),
        tied=bool(sizes.get("tied", 1)),
    )


def base(model: Mapping[str, Any]) -> Shape:
    """The base model of section `model`; its tokenizer may have fewer tokens than it asks for.

    Raises:
        ValueError: `path` is a hub id: nothing is fetched to plan.
    """
    if model["path"] is not None:
        return shape(model["path"])
    tiny = model["tiny"]
    return Shape(
        hidden=tiny["hidden_size"],
        layers=tiny["num_layers"],
        heads=tiny["num_heads"],
        kv_heads=tiny["num_heads"],
        head_dim=tiny["hidden_size"] // tiny["num_heads"],
        intermediate=tiny["intermediate_size"],
        vocab=tiny["vocab_size"],
        tied=True,
    )
