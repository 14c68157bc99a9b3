"""A pool of completions of each problem of a split, by one policy.

    python -m stages.sample_candidates <name> <policy> <split>

Reads a policy (or the base model) and prompts; writes N sampled completions a problem
(`pool.jsonl`) and the greedy one (`greedy.jsonl`). Everything evaluated later is computed
from these files, so that all methods see the same samples. The engine is a parameter; a
completion's random stream depends on seed, problem and sample alone.
"""

from pathlib import Path

from stages import params
from stages.engines import samplers
from stages.engines.samplers import EngineName
from stages.loops import candidates, work
from stages.loops.candidates import CandidatesConfig
from stages.models import policy, size
from stages.models import start as models_start
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig
from stages.params import Params
from stages.records import lines
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.runtime import outputs, process, progress, runs

TABLES = ("sample_candidates",)
PROMPTS = Path("data/prepare_data/prompts")
OUTPUT = Path("data/sample_candidates")


class Config(Params):
    """What sample_candidates reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    model: ModelConfig
    engine: EngineName
    sample_candidates: CandidatesConfig


def main(name: str, start: str, split: str) -> None:
    """Write `pool.jsonl`, `greedy.jsonl` and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"sample_candidates@{name}", output, gpu=True) as run:
        config = params.load(Config, pick={"sample_candidates": split})
        settings = config.sample_candidates
        prompts = list(lines.read(PROMPTS / f"{split}.jsonl", Prompt))
        longest = max(len(prompt.prompt_ids) for prompt in prompts) + settings.max_new_tokens
        sampler = samplers.load(
            config.engine, start, model=config.model, compute=config.compute, max_length=longest
        )
        decode = policy.decoder(models_start.tokenizer(start))
        parts = candidates.chunks(prompts)
        history: list[dict[str, int | float]] = []
        pools: dict[str, list[Completion]] = {"greedy": [], "pool": []}
        steps = candidates.sample(sampler, decode, parts, settings, config.seed, split)
        for greedy, pool in progress.track(steps, total=len(parts), label=f"sample {name}"):
            run.log(pool.index, greedy.metrics | pool.metrics)
            history += [greedy.metrics, pool.metrics]
            pools["greedy"] += greedy.rows
            pools["pool"] += pool.rows
        for kind, rows in pools.items():
            with outputs.replace(output / f"{kind}.jsonl") as temporary:
                lines.write(temporary, rows)
        cut = [row.finish_reason == "length" for row in pools["pool"]]
        metrics = {
            "problems": len(prompts),
            "generated_tokens": sum(candidates.num_tokens(rows) for rows in pools.values()),
            "work": work.summary(history, {"policy": size.of_start(start, config.model)}),
            "mean_tokens": candidates.num_tokens(pools["pool"]) / len(cut),
            "truncated": sum(cut) / len(cut),
        }
        outputs.write_json(output / "metrics.json", metrics)


if __name__ == "__main__":
    process.run(main)
