"""The shape of the model that a word of a command line or the section `model` names."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.algorithms.memory.published import PUBLISHED, nearest
from stages.algorithms.memory.shape import Shape, from_config

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
        return PUBLISHED[nearest(float(size[1]) * UNITS[size[2]])]
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
