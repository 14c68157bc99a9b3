"""Study: how much memory does training take, and has a GPU it? Told before anything runs.

    python -m stages.studies.memory --gpu-gib 80
    python -m stages.studies.memory --model llama-3.1-8b --method ppo --lora-rank 16

Without `--method`, a table of the rows that train, from params.yaml and presets.yaml; `--model`
takes another base model's shape for it. With it, all numbers of one stage.
A model is a folder with a config.json, the name of a published one, a size ("7B": the published
one that is nearest), or widths ("hidden=512,layers=8,heads=8,intermediate=1408,vocab=4000").
Computed from shapes, without torch: what is measured and what is not, stands below each table.
"""

import argparse
import sys
from typing import get_args

from stages import params
from stages.algorithms.memory.activations import Precision, fullest_decoding, largest_micro_batch
from stages.algorithms.memory.prediction import Job, Method, residents
from stages.params import PRESETS_PATH
from stages.studies import memory_jobs, memory_report


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
        content, presets = params.read(), params.read(PRESETS_PATH)
        own = words.model is None
        model = memory_jobs.base(content["model"]) if own else memory_jobs.shape(words.model)
        return memory_report.all_stages(memory_jobs.jobs(content, presets, model), words.gpu_gib)
    if words.model is None:
        raise ValueError("--method needs --model: a folder, a name, a size or widths")
    return memory_report.one(job(words), words.gpu_gib)


def job(words: argparse.Namespace) -> Job:
    """The stage that the flags describe."""
    online = words.method in ("ppo", "grpo")
    per_prompt = {"sft": 1, "dpo": 2, "reward_model": 2}.get(words.method, int(words.samples))
    lengths = words.prompt_tokens, words.completion_tokens
    return Job(
        shape=memory_jobs.shape(words.model),
        residents=residents(
            words.method,
            scorer="reward_model" if online and words.reward_models else "none",
            members=words.reward_models,
            value=words.value,
        ),
        batch=largest_micro_batch(
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
        decoding=fullest_decoding(
            *lengths, samples=words.samples, num_prompts=words.prompts, max_batch=words.max_batch
        )
        if online
        else None,
    )


def parser() -> argparse.ArgumentParser:
    """The flags."""
    found = argparse.ArgumentParser(prog="python -m stages.studies.memory")
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
