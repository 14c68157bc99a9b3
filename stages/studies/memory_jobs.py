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


def jobs(content: Content, presets: Content, shape: Shape) -> dict[str, Job]:
    """Each row that trains, of the tables `policies` and `rewards` -> its job, all at its longest.

    Args:
        content: of params.yaml.
        presets: of presets.yaml.
        shape: of the base model.
    """
    rows = {f"policies/{name}": row["train"] for name, row in content["policies"].items()}
    rows |= {f"rewards/{name}": row["by"] for name, row in content["rewards"].items()}
    found = {}
    for word, kind in rows.items():
        table, name = word.split("/")
        row = content[table][name]
        if kind in ONLINE:
            found[word] = _online(content, presets, row, ONLINE[kind], shape)
        elif kind in OFFLINE:
            found[word] = _offline(content, presets, row, kind, shape)
    return found


def _offline(content: Content, presets: Content, row: Content, kind: str, shape: Shape) -> Job:
    method, per_prompt = OFFLINE[kind]
    settings = content.get(kind) or presets[row["preset"]]
    batch = largest_micro_batch(
        content["data"]["max_prompt_tokens"],
        content["data"]["max_completion_tokens"],
        per_prompt=per_prompt or content["sampling"]["preference"]["num_samples"],
        num_prompts=settings["batch_size"],
        **_limits(content),
    )
    return Job(
        shape=shape, residents=residents(method), batch=batch, how=precision(content), decoding=None
    )


def _online(content: Content, presets: Content, row: Content, method: Method, shape: Shape) -> Job:
    loop = content[method]
    sizes = {
        "samples": loop["group_size" if method == "grpo" else "samples_per_prompt"],
        "num_prompts": loop["prompts_per_step"],
    }
    longest = content["data"]["max_prompt_tokens"], loop["max_new_tokens"]
    return Job(
        shape=shape,
        residents=of_row(content, presets, row, method),
        batch=largest_micro_batch(
            *longest,
            per_prompt=sizes["samples"],
            num_prompts=sizes["num_prompts"],
            **_limits(content),
        ),
        how=precision(content),
        decoding=fullest_decoding(*longest, **sizes, max_batch=content["compute"]["max_batch"]),
    )


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


def precision(content: Content) -> Precision:
    """What `compute` and `lora` say of it."""
    compute = content["compute"]
    return Precision(
        width=2 if compute["dtype"] == "bfloat16" else 4,
        checkpointing=compute["gradient_checkpointing"],
        rank=content["lora"]["rank"],
    )


def _limits(content: Content) -> dict[str, int]:
    names = ("max_tokens", "row_tokens", "pack_tokens")
    return {name: content["compute"][name] for name in names}


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
