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
from collections.abc import Mapping
from typing import get_args

from stages import params
from stages.algorithms.memory.activations import FLOAT
from stages.algorithms.memory.prediction import GIB, Job, Method, fits, predict, residents
from stages.params import PRESETS_PATH
from stages.studies import markdown, memory_jobs

FORMULAS = """\
In memory all the time: weights 4 bytes a parameter (float32, whatever the precision of products)
and AdamW's two moments, 8 bytes a trained parameter. In an update besides: gradients, 4 bytes a
trained parameter, and activations (stages/algorithms/memory/activations.py: tensor by tensor).
Sampling: keys and values, 2 x layers x completions x (prompt + new tokens) x key width x bytes of
a number, and four grids of completions x vocabulary. The peak is what is always there and the
largest phase, for completions as long as they may be. Measured on CPU against live tensor bytes
(tests/stages/algorithms/memory): weights, gradients and moments exactly; what an update takes
besides weights and moments within 6 per cent, with blocks recomputed 10, in bfloat16 as well 25;
sampling within 25. Not measured: what a GPU's kernels, its driver and the allocator's gaps take
besides; a tenth of the GPU is left to them, which is a guess."""


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
        return all_stages(memory_jobs.jobs(content, presets, model), words.gpu_gib)
    if words.model is None:
        raise ValueError("--method needs --model: a folder, a name, a size or widths")
    return one_stage(job(words), words.gpu_gib)


def job(words: argparse.Namespace) -> Job:
    """The stage that the flags describe."""
    online = words.method in ("ppo", "grpo")
    scorer = "reward_model" if online and words.reward_models else "none"
    return memory_jobs.job(
        memory_jobs.shape(words.model),
        residents(words.method, scorer=scorer, members=words.reward_models, value=words.value),
        (words.prompt_tokens, words.completion_tokens),
        per_prompt={"sft": 1, "dpo": 2, "reward_model": 2}.get(words.method, int(words.samples)),
        num_prompts=words.prompts,
        compute=vars(words) | {"pack_tokens": 0},
        rank=words.lora_rank,
        samples=online,
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


def one_stage(job: Job, gpu_gib: float) -> str:
    """All numbers of one stage, whether it fits, and what always has to."""
    found, batch = predict(job), job.batch
    models = (
        [role, f"{own['parameters']:,}", f"{own['trained']:,}",
         *(gib(own[name]) for name in ("weights", "moments", "gradients"))]
        for role, own in found.models.items()
    )  # fmt: skip
    phases = ([name, gib(size), gib(found.held + size)] for name, size in found.phases.items())
    answer = "fits" if fits(found.peak(), gpu_gib) else "does not fit"
    trained = FLOAT * sum(model["trained"] for model in found.models.values())
    header = ["model", "parameters", "trained", "weights", "moments", "gradients in an update"]
    parts = [
        markdown.table(header, models),
        f"Largest micro-batch: {batch.positions:,} positions, {batch.outputs:,} of them with "
        f"logits, rows of {batch.row:,}; products in {8 * job.how.width} bits"
        f"{', blocks recomputed' if job.how.checkpointing else ''}"
        f"{f', adapters of rank {job.how.rank}' if job.how.rank else ''}.",
        markdown.table(["phase", "besides weights and moments", "with them"], phases),
        f"**Peak {gib(found.peak())}: {answer} in {gpu_gib:g} GiB.** Without any activation "
        f"{gib(found.held + trained)}.",
        FORMULAS,
    ]
    return "\n\n".join(parts)


def all_stages(jobs: Mapping[str, Job], gpu_gib: float) -> str:
    """A row for each stage of a plan."""
    header = ["stage", "models", "weights and moments", "largest phase", "peak", "fits"]
    rows = []
    for name, job in jobs.items():
        found = predict(job)
        largest = max(found.phases, key=lambda phase: found.phases[phase])
        phase = f"{largest}: {gib(found.phases[largest])}"
        fit = "yes" if fits(found.peak(), gpu_gib) else "**no**"
        rows.append([name, ", ".join(found.models), gib(found.held), phase, gib(found.peak()), fit])
    return "\n\n".join([markdown.table(header, rows), f"Of a GPU of {gpu_gib:g} GiB.", FORMULAS])


def gib(size: int) -> str:
    """Bytes as GiB, or as MiB where that is not much."""
    return f"{size / GIB:,.2f} GiB" if size >= GIB / 10 else f"{size / 2**20:,.1f} MiB"


if __name__ == "__main__":
    main()
