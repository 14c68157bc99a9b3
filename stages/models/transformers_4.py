"""Files of a saved model with keys that transformers 4.57 can read, too.

transformers 5 keeps all parameters of rotary positions in `rope_parameters`. Version 4 does not
know that key: it reads `rope_theta`, `partial_rotary_factor` and `rope_scaling`, and silently uses
defaults if they are missing: other frequencies, other logits. Nor does it know the class
TokenizersBackend or a list of `extra_special_tokens`.

Version 5 still reads the old keys. So both are written, and the installed version reads both back,
which must give the same positions. A model that the old keys cannot describe, such as one with
different frequencies in each of three types of layers, is reported.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transformers import AutoConfig

ROPE = "rope_parameters"
OLD_NAMES = {
    "rope_theta": ("gpt_neox", "rotary_emb_base"),
    "partial_rotary_factor": ("gpt_neox", "rotary_pct"),
}
"""Key -> prefix of the `model_type` with another name for it, and that name."""


def add_old_keys(folder: Path) -> str:
    """Rewrite `config.json` and `tokenizer_config.json` in place.

    Returns the reason why the folder needs version 5; empty: version 4 can open it, too.
    """
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    old = _add_rope_keys(config)
    readings = [
        # a copy: the class changes its arguments
        list(_list_ropes(AutoConfig.for_model(**copy.deepcopy(content)).to_dict()))
        for content in (config, old, _drop_ropes(old))
    ]
    if readings[0] == readings[1] == readings[2]:
        _write(path, old)
        fault = ""
    else:
        fault = (
            f"Open it with transformers 5: version 4 has no keys for the rotary positions of "
            f"{config['model_type']} ({ROPE} in config.json), and would compute other logits."
        )
    path = folder / "tokenizer_config.json"
    if (folder / "tokenizer.json").is_file():
        tokenizer = json.loads(path.read_text(encoding="utf-8"))
        # The class that uses tokenizer.json unchanged; other classes add tokens.
        tokenizer["tokenizer_class"] = "PreTrainedTokenizerFast"
        if isinstance(tokenizer.get("extra_special_tokens"), list):
            tokenizer["additional_special_tokens"] = tokenizer.pop("extra_special_tokens")
        _write(path, tokenizer)
    return fault


def _add_rope_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json with the keys of version 4, also in its parts for text and images."""
    new = {
        key: _add_rope_keys(value) if key.endswith("_config") and isinstance(value, dict) else value
        for key, value in config.items()
    }
    whole = config.get(ROPE) or {}
    # Version 4 has the frequencies of at most two types of layers, in Gemma 3's keys.
    rope = whole if "rope_type" in whole else whole.get("full_attention") or {}
    if local := whole.get("sliding_attention"):
        new["rope_local_base_freq"] = local["rope_theta"]
    for key, (model_type, name) in OLD_NAMES.items():
        if key in rope:
            new[name if config["model_type"].startswith(model_type) else key] = rope[key]
    scaling = {key: value for key, value in rope.items() if key not in OLD_NAMES}
    match scaling.get("rope_type"):
        case None:
            pass
        case "default":
            new["rope_scaling"] = None
        case "longrope":  # only Phi 3's keys
            positions = scaling.pop("original_max_position_embeddings")
            new["original_max_position_embeddings"] = positions
            new["rope_scaling"] = {"type": scaling.pop("rope_type"), **scaling}
        case _:
            new["rope_scaling"] = scaling
    return new


def _drop_ropes(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a config.json that version 4 knows."""
    return {
        key: _drop_ropes(value) if isinstance(value, dict) else value
        for key, value in config.items()
        if key != ROPE
    }


def _list_ropes(config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Rotary parameters of a configuration and its parts, without version 4's `type`."""
    for key, value in config.items():
        if key == ROPE and value:
            yield {name: number for name, number in value.items() if name != "type"}
        elif key.endswith("_config") and isinstance(value, dict):
            yield from _list_ropes(value)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")
