"""Completions of a policy: the samples that everything is evaluated from, and pools to label.

    python -m stages sample <policy>
    python -m stages pool <pool> --from <policy> --split <split>

`sample` writes, for each seed, N samples of each dev and test problem (`dev.jsonl`, `test.jsonl`)
and its greedy completion (`dev_greedy.jsonl`, `test_greedy.jsonl`). A completion's random stream
depends on seed, problem and sample alone, not on the policy, so that policies are compared on the
same random numbers.

`pool` writes, for each seed, N completions of each problem of the split (`train.jsonl`) and of each
dev problem (`heldout.jsonl`), to learn from or to label; `pool.json` says of which policy and split
they are. The streams of the dev problems are others than those of `sample`: what is labelled is not
what policies are evaluated on.
"""

from typing import Any

from stages import stage
from stages.config import find_entry
from stages.engines.loading import SamplingConfig
from stages.loops import candidates
from stages.loops.candidates import CandidatesConfig, Pool
from stages.loops.run import Run
from stages.models import model_tokenizer, row_policy, size
from stages.runtime import outputs, process

HELDOUT = "heldout"


class Config(SamplingConfig):
    """Keys of params.yaml that sample and pool read."""

    sampling: dict[str, CandidatesConfig]


CONFIGS = {"sample": Config, "pool": Config}


def main(*words: str) -> None:
    """Write the samples of a policy, or a pool."""
    if words[0] == "pool":
        stage.run(sample_pool, words, Config, gpu=True, prepare=write_origin)
    else:
        stage.run(sample_for_evaluation, words, Config, gpu=True)


def sample_for_evaluation(run: Run) -> dict[str, Any]:
    """Sample dev and test problems with the policy of one seed; returns the samples' metrics."""
    pools = {}
    for split in ("dev", "test"):
        settings = run.config.sampling[split]
        pools[split] = candidates.read(split, settings, split)
        pools[f"{split}_greedy"] = candidates.read(split, settings, split, greedy=True)
    return sample(run, run.row.name, pools)


def write_origin(run: Run) -> None:
    """Write the policy and the split of a pool."""
    content = {"split": run.row.preset, "policy": run.row.policy}
    outputs.write_json(run.output / "pool.json", content)


def sample_pool(run: Run) -> dict[str, Any]:
    """Sample a pool with the policy of one seed; returns the completions' metrics."""
    split, sampling = run.row.preset, run.config.sampling
    settings = find_entry(sampling, split, "section 'sampling'")
    pools = {
        "train": candidates.read(split, settings, split),
        HELDOUT: candidates.read("dev", sampling[HELDOUT], HELDOUT),
    }
    return sample(run, run.row.policy, pools)


def sample(run: Run, name: str, pools: dict[str, Pool]) -> dict[str, Any]:
    """Write the pools by the policy `name` of this seed; returns their metrics."""
    config, seed = run.config, run.seed
    sampler = config.load_sampler(name, seed, candidates.longest(pools.values()))
    decode = model_tokenizer.make_decode(row_policy.load_row_tokenizer(name, seed))
    return candidates.write(
        pools, sampler, decode, size.measure_policy(name, seed, config.model), run
    )


if __name__ == "__main__":
    process.run(main)
