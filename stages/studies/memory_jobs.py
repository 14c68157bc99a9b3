"""The rows that train, as jobs to predict the memory of, and shapes by words."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.algorithms.memory.activations import Precision, fullest_decoding, largest_micro_batch
from stages.algorithms.memory.prediction import Job, Method, Resident, Scorer, residents
from stages.algorithms.memory.shape import PUBLISHED, Shape, from_config, nearest_published

OFFLINE: dict[str, tuple[Method, int]] = {
    "sft": ("sft", 1),
    "dpo": ("dpo", 2),
    "preference": ("reward_model", 2),
    "outcome": ("reward_model", 0),
    "process": ("process_reward", 0),
}
"""Kind of a row -> method, and completions of a prompt in a batch (0: as many as the pool has)."""
ONLINE: dict[str, Method] = {"ppo": "ppo", "grpo": "grpo"}
Content = Mapping[str, Any]


def job(
    shape: Shape, models: list[Resident], longest: tuple[int, int], *, per_prompt: int,
    num_prompts: int, compute: Content, rank: int, samples: bool,
) -> Job:  # fmt: skip
    """A stage, all at its longest.

    Args:
        longest: tokens of a prompt, and of a completion.
        per_prompt: completions of a prompt in a batch.
        num_prompts: in an optimizer step.
        samples: whether the stage draws the completions itself.
    """
    limits = {name: compute[name] for name in ("max_tokens", "row_tokens", "pack_tokens")}
    width, again = 2 if compute["dtype"] == "bfloat16" else 4, compute["gradient_checkpointing"]
    batch = largest_micro_batch(*longest, per_prompt=per_prompt, num_prompts=num_prompts, **limits)
    sizes = {"samples": per_prompt, "num_prompts": num_prompts, "max_batch": compute["max_batch"]}
    return Job(
        shape=shape,
        residents=models,
        batch=batch,
        how=Precision(width=width, checkpointing=again, rank=rank),
        decoding=fullest_decoding(*longest, **sizes) if samples else None,
    )


def jobs(content: Content, presets: Content, shape: Shape) -> dict[str, Job]:
    """Each row that trains, of the tables `policies` and `rewards` of params.yaml -> its job."""
    found = {}
    for table, by in (("policies", "train"), ("rewards", "by")):
        for name, row in content[table].items():
            kind, data = row[by], content["data"]
            if kind in ONLINE:
                loop, longest = content[kind], content[kind]["max_new_tokens"]
                models = of_row(content, presets, row, ONLINE[kind])
                per_prompt = loop["group_size" if kind == "grpo" else "samples_per_prompt"]
                num_prompts = loop["prompts_per_step"]
            elif kind in OFFLINE:
                method, per_prompt = OFFLINE[kind]
                models, longest = residents(method), data["max_completion_tokens"]
                per_prompt = per_prompt or content["sampling"]["preference"]["num_samples"]
                num_prompts = (content.get(kind) or presets[row["preset"]])["batch_size"]
            else:
                continue
            found[f"{table}/{name}"] = job(
                shape, models, (data["max_prompt_tokens"], longest), per_prompt=per_prompt,
                num_prompts=num_prompts, compute=content["compute"], rank=content["lora"]["rank"],
                samples=kind in ONLINE,
            )  # fmt: skip
    return found


def of_row(content: Content, presets: Content, row: Content, method: Method) -> list[Resident]:
    """The models of a policy that is trained online, from its row and presets."""
    value = presets[row["preset"]]["value"]["trunk"] if method == "ppo" else "own"
    reward = content["rewards"][row["on"].removeprefix("rewards/")]
    kind, number = scorer(content, presets, reward)
    return residents(method, scorer=kind, members=number, value=value)


def scorer(content: Content, presets: Content, reward: Content) -> tuple[Scorer, int]:
    """What a row of `rewards` asks, and how many models that is."""
    preset = presets[reward["preset"]]
    match reward["by"]:
        case "process":
            return "process_model", 1
        case "preference" | "outcome":
            return "reward_model", preset.get("members", 1)
    kinds = {part["value"]["kind"] for part in preset["components"].values()}
    if kinds & {"scorer", "process"}:
        return scorer(content, presets, content["rewards"][reward["on"].removeprefix("rewards/")])
    return ("policy", 1) if "judge" in kinds else ("none", 1)


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
    if "=" not in word:
        raise ValueError(
            f"--model: expected a folder with a config.json, one of {', '.join(PUBLISHED)}, a size "
            f"as 7B or 600M, or widths as hidden=512,layers=8,heads=8,intermediate=1408,vocab=4000;"
            f" found {word!r}"
        )
    found = {name: value for name, _, value in (part.partition("=") for part in word.split(","))}
    whole = all(value.isdecimal() for value in found.values()) and int(found.get("heads", 0)) > 0
    if not whole or set(WIDTHS) - found.keys() or found.keys() - {*WIDTHS, *FURTHER}:
        raise ValueError(
            f"--model: expected whole numbers for {', '.join(WIDTHS)} (and, where they differ, "
            f"{', '.join(FURTHER)}), found {word!r}"
        )
    return _of_widths({name: int(value) for name, value in found.items()})


def _of_widths(sizes: Mapping[str, int]) -> Shape:
    """Of `WIDTHS`; keys are as many as heads, which divide the width, and the output is tied."""
    heads = sizes["heads"]
    others: dict[str, Any] = {"kv_heads": heads, "head_dim": sizes["hidden"] // heads} | dict(sizes)
    tied = bool(others.pop("tied", 1))
    return Shape(**others, tied=tied)


def base(model: Content) -> Shape:
    """The base model of section `model`; its tokenizer may have fewer tokens than it asks for.

    Raises:
        ValueError: `path` is a hub id: nothing is fetched to plan.
    """
    if model["path"] is not None:
        return shape(model["path"])
    tiny = model["tiny"]
    names = ("hidden_size", "num_layers", "num_heads", "intermediate_size", "vocab_size")
    return _of_widths(dict(zip(WIDTHS, (tiny[name] for name in names), strict=True)))
