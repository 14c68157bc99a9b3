"""A policy's completions of the dev and test problems, from which everything is evaluated.

    python -m stages.sample <policy>

Writes, for each seed, N samples of each problem (`dev.jsonl`, `test.jsonl`) and its greedy
completion (`dev_greedy.jsonl`, `test_greedy.jsonl`). A completion's random stream depends on seed,
problem and sample alone, not on the policy, so that policies are compared on the same draws.
"""

from typing import Any

from stages import stage
from stages.engines.loading import SamplingConfig
from stages.loops import candidates
from stages.loops.candidates import CandidatesConfig
from stages.loops.run import Run
from stages.models import policy, row_policy, size
from stages.runtime import process

SPLITS = ("dev", "test")


class Config(SamplingConfig):
    """What sample reads of params.yaml."""

    sampling: dict[str, CandidatesConfig]


def main(*words: str) -> None:
    """Write the policy's samples."""
    stage.run(sample, "sample", words, Config, gpu=True)


def sample(run: Run) -> dict[str, Any]:
    """The samples of one seed's policy; their metrics."""
    config, row = run.config, run.row
    name, pools = row.name, {}
    for split in SPLITS:
        settings = config.sampling[split]
        pools[split] = candidates.read(split, settings, split)
        pools[f"{split}_greedy"] = candidates.read(split, settings, split, greedy=True)
    sampler = config.load_sampler(name, run.seed, candidates.longest(pools.values()))
    decode = policy.make_decode(row_policy.load_row_tokenizer(name, run.seed))
    measured = size.measure_policy(name, run.seed, config.model)
    return candidates.write(pools, sampler, decode, measured, run)


if __name__ == "__main__":
    process.run(main)
