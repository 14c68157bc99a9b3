"""Study: how much memory does training take, and has a GPU it? Told before anything runs.

    python -m stages.studies.memory --gpu-gib 80
    python -m stages.studies.memory --model llama-3.1-8b --method ppo --lora-rank 16

Without `--method`, a table of the rows that train, from params.yaml and presets.yaml, with the base
model or `--model`; with it, all numbers of one stage. A model is a folder with a config.json, the
name of a published one, a size ("7B": the published one that is nearest), or widths
("hidden=512,layers=8,heads=8,intermediate=1408,vocab=4000"). Computed from shapes, without torch.
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from stages import params
from stages.algorithms.memory import prediction, shape
from stages.algorithms.memory.prediction import GIB, Job
from stages.algorithms.memory.shape import PUBLISHED, Method, Resident, Scorer, Shape, residents
from stages.params import PRESETS_PATH
from stages.studies import markdown

FORMULAS = """\
In memory all the time: weights 4 bytes a parameter (float32, whatever the precision of products)
and AdamW's two moments, 8 bytes a trained parameter. In an update besides: gradients, 4 bytes a
trained parameter, and activations (stages/algorithms/memory/prediction.py: tensor by tensor).
Sampling: keys and values, 2 x layers x completions x (prompt + new tokens) x key width x bytes of
a number, and four grids of completions x vocabulary. The peak is what is always there and the
largest phase, for completions as long as they may be. Measured on CPU against live tensor bytes
(tests/stages/algorithms/memory): weights, gradients and moments exactly; what an update takes
besides weights and moments within 6 per cent, with blocks recomputed 10, in bfloat16 as well 25;
sampling within 25. Not measured: what a GPU's kernels, its driver and the allocator's gaps take
besides; a tenth of the GPU is left to them, which is a guess."""
OFFLINE: dict[str, tuple[Method, int]] = {
    "sft": ("sft", 1), "dpo": ("dpo", 2), "preference": ("reward_model", 2),
    "outcome": ("reward_model", 0), "process": ("process_reward", 0),
}  # fmt: skip
"""Kind of a row -> method, and completions of a prompt in a batch (0: as many as the pool has)."""
ONLINE = {"ppo": "samples_per_prompt", "grpo": "group_size"}
"""Kind of a row -> the key of the completions that are drawn of a prompt."""
UNITS = {"M": 1e6, "B": 1e9}
Content = Mapping[str, Any]


def main() -> None:
    """Print a table."""
    words = parser().parse_args()
    try:
        sys.stdout.write(plan(words) + "\n")
    except ValueError as error:
        sys.exit(str(error))


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


def plan(words: argparse.Namespace) -> str:
    """What there is to be printed."""
    if words.method is None:
        content, presets = params.read(), params.read(PRESETS_PATH)
        model = base(content["model"]) if words.model is None else named_shape(words.model)
        return all_stages(jobs(content, presets, model), words.gpu_gib)
    if words.model is None:
        raise ValueError("--method needs --model: a folder, a name, a size or widths")
    online = words.method in ONLINE
    scorer = "reward_model" if online and words.reward_models else "none"
    models = residents(words.method, scorer=scorer, members=words.reward_models, value=words.value)
    one = job(
        named_shape(words.model), models, (words.prompt_tokens, words.completion_tokens),
        per_prompt={"sft": 1, "dpo": 2, "reward_model": 2}.get(words.method, int(words.samples)),
        num_prompts=words.prompts, compute=vars(words) | {"pack_tokens": 0}, rank=words.lora_rank,
        samples=online,
    )  # fmt: skip
    return one_stage(one, words.gpu_gib)


def jobs(content: Content, presets: Content, model: Shape) -> dict[str, Job]:
    """Each row that trains, of the tables `policies` and `rewards` of params.yaml -> its job."""
    found, data = {}, content["data"]
    rows = {f"policies/{name}": (row["train"], row) for name, row in content["policies"].items()}
    rows |= {f"rewards/{name}": (row["by"], row) for name, row in content["rewards"].items()}
    for name, (kind, row) in rows.items():
        if kind in ONLINE:
            loop = content[kind]
            models, longest = of_row(content, presets, row), loop["max_new_tokens"]
            per_prompt, num_prompts = loop[ONLINE[kind]], loop["prompts_per_step"]
        elif kind in OFFLINE:
            method, per_prompt = OFFLINE[kind]
            models, longest = residents(method), data["max_completion_tokens"]
            per_prompt = per_prompt or content["sampling"]["preference"]["num_samples"]
            num_prompts = (content.get(kind) or presets[row["preset"]])["batch_size"]
        else:
            continue
        found[name] = job(
            model, models, (data["max_prompt_tokens"], longest), per_prompt=per_prompt,
            num_prompts=num_prompts, compute=content["compute"], rank=content["lora"]["rank"],
            samples=kind in ONLINE,
        )  # fmt: skip
    return found


def of_row(content: Content, presets: Content, row: Content) -> list[Resident]:
    """The models of a policy that is trained online, from its row and presets."""
    value = presets[row["preset"]]["value"]["trunk"] if row["train"] == "ppo" else "own"
    kind, number = scorer(content, presets, row["on"])
    return residents(row["train"], scorer=kind, members=number, value=value)


def scorer(content: Content, presets: Content, place: str) -> tuple[Scorer, int]:
    """What `rewards/<row>` asks, and how many models that is."""
    reward = content["rewards"][place.removeprefix("rewards/")]
    preset = presets[reward["preset"]]
    match reward["by"]:
        case "process":
            return "process_model", 1
        case "preference" | "outcome":
            return "reward_model", preset.get("members", 1)
    kinds = {part["value"]["kind"] for part in preset["components"].values()}
    if kinds & {"scorer", "process"}:
        return scorer(content, presets, reward["on"])
    return ("policy", 1) if "judge" in kinds else ("none", 1)


def job(
    model: Shape, models: list[Resident], longest: tuple[int, int], *, per_prompt: int,
    num_prompts: int, compute: Content, rank: int, samples: bool,
) -> Job:  # fmt: skip
    """A stage whose prompts and completions all have the tokens of the `longest`.

    The micro-batch is the most that `models/batch.micro_batches` puts together of an optimizer step
    of `num_prompts`, each with `per_prompt` completions; what is decoded at once, if the stage
    `samples` them itself, the most that the transformers engine takes: whole groups, one at least.
    """
    prompt, completion = longest
    max_tokens = compute["max_tokens"]
    together = max(1, min(per_prompt, (compute["row_tokens"] - prompt) // completion))
    group = prompt + together * completion
    packed = max(1, min(compute["pack_tokens"], max_tokens) // group)
    row, in_row = packed * group, packed * together
    rows = min(max(1, max_tokens // row), math.ceil(num_prompts * per_prompt / in_row))
    at_once = per_prompt * min(num_prompts, max(1, compute["max_batch"] // per_prompt))
    batch = prediction.MicroBatch(
        positions=rows * row, row=row, outputs=rows * in_row * completion, shared=in_row > 1
    )
    width, again = 2 if compute["dtype"] == "bfloat16" else 4, compute["gradient_checkpointing"]
    how = prediction.Precision(width=width, checkpointing=again, rank=rank)
    decoding = prediction.Decoding(rows=at_once, samples=per_prompt, prompt=prompt, new=completion)
    drawn = decoding if samples else None
    return Job(shape=model, residents=models, batch=batch, how=how, decoding=drawn)


def named_shape(word: str) -> Shape:
    """A folder with a config.json, a published model, the size of one, or widths; a ValueError."""
    if (config := Path(word) / "config.json").is_file():
        return shape.from_config(json.loads(config.read_text(encoding="utf-8")))
    if word.lower() in PUBLISHED:
        return PUBLISHED[word.lower()]
    if size := re.fullmatch(r"(\d+(?:\.\d+)?)([MB])", word.upper()):
        return PUBLISHED[shape.nearest_published(float(size[1]) * UNITS[size[2]])]
    sizes = {name: size for name, _, size in (part.partition("=") for part in word.split(","))}
    if all(map(str.isdecimal, sizes.values())):
        with suppress(TypeError, ZeroDivisionError):  # another name or too few, or no head
            return shape.of_widths(**{name: int(size) for name, size in sizes.items()})
    raise ValueError(
        f"--model: expected a folder with a config.json, one of {', '.join(PUBLISHED)}, a size as "
        f"7B or 600M, or whole numbers as hidden=512,layers=8,heads=8,intermediate=1408,vocab=4000 "
        f"(and, where they differ, kv_heads, head_dim, tied), found {word!r}"
    )


def base(model: Content) -> Shape:
    """Of section `model`, whose tokenizer may have fewer tokens; no hub id: nothing is fetched."""
    if model["path"] is not None:
        return named_shape(model["path"])
    tiny = model["tiny"]
    return shape.of_widths(
        hidden=tiny["hidden_size"], layers=tiny["num_layers"], heads=tiny["num_heads"],
        intermediate=tiny["intermediate_size"], vocab=tiny["vocab_size"],
    )  # fmt: skip


def one_stage(job: Job, gpu_gib: float) -> str:
    """All numbers of one stage, whether it fits, and what always has to."""
    found, batch = prediction.predict(job), job.batch
    models = (
        [role, f"{own['parameters']:,}", f"{own['trained']:,}",
         *(gib(own[name]) for name in ("weights", "moments", "gradients"))]
        for role, own in found.models.items()
    )  # fmt: skip
    phases = ([name, gib(size), gib(found.held + size)] for name, size in found.phases.items())
    answer = "fits" if prediction.fits(found.peak(), gpu_gib) else "does not fit"
    gradients = sum(model["gradients"] for model in found.models.values())
    header = ["model", "parameters", "trained", "weights", "moments", "gradients in an update"]
    parts = (
        markdown.table(header, models),
        f"Largest micro-batch: {batch.positions:,} positions, {batch.outputs:,} of them with "
        f"logits, rows of {batch.row:,}; products in {8 * job.how.width} bits"
        f"{', blocks recomputed' if job.how.checkpointing else ''}"
        f"{f', adapters of rank {job.how.rank}' if job.how.rank else ''}.",
        markdown.table(["phase", "besides weights and moments", "with them"], phases),
        f"**Peak {gib(found.peak())}: {answer} in {gpu_gib:g} GiB.** Without any activation "
        f"{gib(found.held + gradients)}.",
        FORMULAS,
    )
    return "\n\n".join(parts)


def all_stages(jobs: Mapping[str, Job], gpu_gib: float) -> str:
    """A row for each stage of a plan."""
    header = ["stage", "models", "weights and moments", "largest phase", "peak", "fits"]
    rows = []
    for name, job in jobs.items():
        found = prediction.predict(job)
        largest, size = max(found.phases.items(), key=lambda phase: phase[1])
        fit = "yes" if prediction.fits(found.peak(), gpu_gib) else "**no**"
        cells = [", ".join(found.models), gib(found.held), f"{largest}: {gib(size)}"]
        rows.append([name, *cells, gib(found.peak()), fit])
    return "\n\n".join([markdown.table(header, rows), f"Of a GPU of {gpu_gib:g} GiB.", FORMULAS])


def gib(size: int) -> str:
    """Bytes as GiB, or as MiB where that is not much."""
    return f"{size / GIB:,.2f} GiB" if size >= GIB / 10 else f"{size / 2**20:,.1f} MiB"


if __name__ == "__main__":
    main()
