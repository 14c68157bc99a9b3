"""Tell before anything runs how much memory training takes, and whether a GPU has it.

    python -m stages.plan_memory --gpu-gib 80
    python -m stages.plan_memory --model llama-3.1-8b --method ppo --dtype bfloat16 --lora-rank 16

Without `--method`, a table of the training stages of the plan, from params.yaml and the files
beside it; `--model` takes another base model's shape for it. With it, all numbers of one stage.
A model is a folder with a config.json, the name of a published one, a size ("7B": the published
one that is nearest), or widths ("hidden=512,layers=8,heads=8,intermediate=1408,vocab=4000").
Computed from shapes, without torch: what is measured and what is not, stands below each table.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, get_args

from stages import params
from stages.algorithms.memory.activations import Precision
from stages.algorithms.memory.prediction import Job
from stages.algorithms.memory.published import PUBLISHED, nearest
from stages.algorithms.memory.resident import Method, residents
from stages.algorithms.memory.shape import Shape, from_config
from stages.algorithms.memory.sizes import decoding, micro_batch
from stages.reports import memory_jobs, memory_plan

UNITS = {"M": 1e6, "B": 1e9}


def main() -> None:
    """Print a table."""
    words = parser().parse_args()
    try:
        sys.stdout.write(plan(words) + "\n")
    except ValueError as error:
        sys.exit(str(error))


def plan(words: argparse.Namespace) -> str:
    """What there is to be printed."""
    if words.method is None:
        content = params.read()
        model = base(content["model"]) if words.model is None else shape(words.model)
        return memory_plan.all_stages(memory_jobs.jobs(content, model), words.gpu_gib)
    if words.model is None:
        raise ValueError("--method needs --model: a folder, a name, a size or widths")
    return memory_plan.one(job(words), words.gpu_gib)


def job(words: argparse.Namespace) -> Job:
    """The stage that the flags describe."""
    online = words.method in ("ppo", "grpo")
    per_prompt = {"sft": 1, "dpo": 2, "reward_model": 2}.get(words.method, words.samples)
    lengths = words.prompt_tokens, words.completion_tokens
    return Job(
        shape=shape(words.model),
        residents=residents(
            words.method,
            scorer="reward_model" if online and words.reward_models else "none",
            members=words.reward_models,
            value=words.value,
        ),
        batch=micro_batch(
            *lengths,
            per_prompt=per_prompt,
            num_prompts=words.prompts,
            max_tokens=words.max_tokens,
            row_tokens=words.row_tokens,
        ),
        how=Precision(
            width=2 if words.dtype == "bfloat16" else 4,
            checkpointing=words.gradient_checkpointing,
            rank=words.lora_rank,
        ),
        decoding=decoding(
            *lengths, samples=words.samples, num_prompts=words.prompts, max_batch=words.max_batch
        )
        if online
        else None,
    )


def shape(word: str) -> Shape:
    """What `--model` says.

    Raises:
        ValueError: it says nothing that is known.
    """
    config = Path(word) / "config.json"
    if config.is_file():
        return from_config(json.loads(config.read_text(encoding="utf-8")))
    if word.lower() in PUBLISHED:
        return PUBLISHED[word.lower()]
    if size := re.fullmatch(r"(\d+(?:\.\d+)?)([MB])", word.upper()):
        return PUBLISHED[nearest(float(size[1]) * UNITS[size[2]])]
    if "=" in word:
        return from_widths(dict(part.partition("=")[::2] for part in word.split(",")))
    raise ValueError(
        f"--model: expected a folder with a config.json, one of {', '.join(PUBLISHED)}, a size as "
        f"7B or 600M, or widths as hidden=512,layers=8,heads=8,intermediate=1408,vocab=4000; found "
        f"{word!r}"
    )


def from_widths(found: dict[str, str]) -> Shape:
    """Widths, of which kv_heads, head_dim and tied may be left out."""
    needed = {"hidden", "layers", "heads", "intermediate", "vocab"}
    known = needed | {"kv_heads", "head_dim", "tied"}
    wrong = sorted((needed - found.keys()) | (found.keys() - known))
    if wrong or not all(value.isdecimal() for value in found.values()):
        raise ValueError(
            f"--model: expected whole numbers for {', '.join(sorted(needed))} (and kv_heads, "
            f"head_dim, tied=0), found {found}"
        )
    sizes = {name: int(value) for name, value in found.items()}
    return Shape(
        **{name: sizes[name] for name in needed},
        kv_heads=sizes.get("kv_heads", sizes["heads"]),
        head_dim=sizes.get("head_dim", sizes["hidden"] // sizes["heads"]),
        tied=bool(sizes.get("tied", 1)),
    )


def base(model: dict[str, Any]) -> Shape:
    """The base model of section `model`; its tokenizer may have fewer tokens than it asks for."""
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


def parser() -> argparse.ArgumentParser:
    """The flags."""
    found = argparse.ArgumentParser(prog="python -m stages.plan_memory")
    found.add_argument("--model")
    found.add_argument("--method", choices=get_args(Method))
    found.add_argument("--gpu-gib", type=float, default=80.0)
    found.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    found.add_argument("--gradient-checkpointing", action="store_true")
    found.add_argument("--lora-rank", type=int, default=0)
    found.add_argument("--value", choices=("own", "shared"), default="own")
    found.add_argument("--reward-models", type=int, default=1, help="PPO, GRPO: 0 where by rule")
    numbers = {
        "max-tokens": 4096, "row-tokens": 4096, "prompt-tokens": 512, "completion-tokens": 512,
        "samples": 8, "prompts": 64, "max-batch": 256,
    }  # fmt: skip
    for name, value in numbers.items():
        found.add_argument(f"--{name}", type=int, default=value)
    return found


if __name__ == "__main__":
    main()
