"""A pool of completions of each problem of a split, by one policy.

    python -m stages.sample_candidates <policy> <split>

Reads a policy and prompts; writes N sampled completions a problem (`pool.jsonl`) and the
greedy one (`greedy.jsonl`). Everything evaluated later is computed from these files, so
that all methods see the same samples. The engine is a parameter; a completion's random
stream depends on seed, problem and sample alone.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from stages import params
from stages.models import model_tokenizer, policy
from stages.models.device import ComputeConfig, setup
from stages.params import Params
from stages.records import lines
from stages.records.completion import Completion
from stages.records.prompt import Prompt
from stages.runtime import outputs, progress, runs
from stages.sampler import Sampler
from stages.seeding import derive

VARIANTS = ("preference", "dev", "test")
PROMPTS = Path("data/prepare_data/prompts")
# Problems handed to the engine at once: large enough to fill its batches, small enough
# for progress to be seen.
CHUNK = 128


class SampleCandidates(Params):
    """How a split is sampled."""

    num_samples: int = Field(gt=0)
    """N, completions of each problem."""
    temperature: float = Field(gt=0)
    """Of sampling; the greedy completion is always drawn besides."""
    max_new_tokens: int = Field(gt=0)
    """Longest completion."""


class Config(Params):
    """What sample_candidates reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    engine: Literal["transformers", "vllm"]
    sample_candidates: SampleCandidates


def main() -> None:
    """Write `pool.jsonl`, `greedy.jsonl` and `metrics.json`."""
    name, split = sys.argv[1:]
    model_path = Path(f"data/train_{name}/policy")
    output = Path(f"data/sample_candidates/{name}-{split}")
    with runs.start(f"sample_candidates@{name}-{split}", output, gpu=True) as run:
        config = params.load(Config, variant=split)
        prompts = list(lines.read(PROMPTS / f"{split}.jsonl", Prompt))
        longest = max(len(prompt.prompt_ids) for prompt in prompts)
        sampler = load_sampler(
            config, model_path, longest + config.sample_candidates.max_new_tokens
        )
        tokenizer = model_tokenizer.load(model_path)
        pools: dict[str, list[Completion]] = {"pool": [], "greedy": []}
        chunks = [prompts[i : i + CHUNK] for i in range(0, len(prompts), CHUNK)]
        for index, chunk in enumerate(progress.track(chunks, label=f"sample {name} {split}")):
            for kind, num_samples, temperature in (
                ("greedy", 1, 0.0),
                (
                    "pool",
                    config.sample_candidates.num_samples,
                    config.sample_candidates.temperature,
                ),
            ):
                seeds = [derive(config.seed, "sample", split, prompt.id) for prompt in chunk]
                drawn = sampler.sample(
                    [prompt.prompt_ids for prompt in chunk],
                    seeds,
                    num_samples=num_samples,
                    temperature=temperature,
                    max_new_tokens=config.sample_candidates.max_new_tokens,
                )
                decode = policy.decoder(tokenizer)
                pools[kind] += [
                    Completion(
                        id=prompt.id,
                        index=number,
                        completion=decode(sample.token_ids),
                        completion_ids=sample.token_ids,
                        logprob_sum=round(sum(sample.logprobs), 6),
                        finish_reason=sample.finish_reason,
                        seed=seed,
                    )
                    for prompt, seed, samples in zip(chunk, seeds, drawn, strict=True)
                    for number, sample in enumerate(samples)
                ]
            run.log(index, {"tokens/generated": num_tokens(pools["pool"] + pools["greedy"])})
        for kind, rows in pools.items():
            with outputs.replace(output / f"{kind}.jsonl") as temporary:
                lines.write(temporary, rows)
        cut = [row.finish_reason == "length" for row in pools["pool"]]
        metrics = {
            "problems": len(prompts),
            "generated_tokens": num_tokens(pools["pool"] + pools["greedy"]),
            "mean_tokens": num_tokens(pools["pool"]) / len(cut),
            "truncated": sum(cut) / len(cut),
        }
        with outputs.replace(output / "metrics.json") as temporary:
            temporary.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")


def load_sampler(config: Config, model_path: Path, max_length: int) -> Sampler:
    """The engine that `config` names, on the policy at `model_path`."""
    device = setup(config.compute)
    match config.engine:
        case "transformers":
            from stages.engines import transformers

            return transformers.from_model(
                policy.load(model_path, config.compute, device),
                model_tokenizer.load(model_path),
                max_batch=config.compute.max_batch,
            )
        case "vllm":
            from stages.engines import vllm

            return vllm.load(model_path, dtype=config.compute.dtype, max_model_len=max_length)


def num_tokens(rows: Sequence[Completion]) -> int:
    """Tokens generated."""
    return sum(len(row.completion_ids) for row in rows)


if __name__ == "__main__":
    main()
