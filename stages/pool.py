"""Completions to label or to learn from: of a split's problems, and held-out ones of dev's.

    python -m stages.pool <pool> --from <policy> --split <split>

Writes, for each seed, N completions of each problem of the split (`train.jsonl`) and of each
dev problem (`heldout.jsonl`); `pool.json` says whose they are, and of which split.
"""

from pathlib import Path
from typing import Any

from stages import row_run
from stages.config import find_entry
from stages.engines.loading import SamplingConfig
from stages.loops import candidates
from stages.loops.candidates import CandidatesConfig
from stages.models import policy, row_policy, size
from stages.rows import Row
from stages.runtime import outputs, process
from stages.runtime.seeds import SeedRun

HELDOUT = "heldout"


class Config(SamplingConfig):
    """What pool reads of params.yaml."""

    sampling: dict[str, CandidatesConfig]


def main(*words: str) -> None:
    """Write the row's pool."""
    with row_run.start("pool", words, Config) as job:
        whose = {"split": job.row.preset, "policy": job.row.policy}
        outputs.write_json(job.folders[0] / "pool.json", whose)
        job.each_seed(sample, gpu=True)


def sample(config: Config, row: Row, own: Path, run: SeedRun) -> dict[str, Any]:
    """The completions of one seed's policy; their metrics."""
    settings = find_entry(config.sampling, row.preset, "section 'sampling'")
    pools = {
        "train": candidates.read(row.preset, settings, row.preset),
        # Not the draws of `sample`: what is labelled is not what policies are evaluated on.
        HELDOUT: candidates.read("dev", config.sampling[HELDOUT], HELDOUT),
    }
    sampler = config.load_sampler(row.policy, run.seed, candidates.longest(pools.values()))
    decode = policy.make_decode(row_policy.load_row_tokenizer(row.policy, run.seed))
    measured = size.measure_policy(row.policy, run.seed, config.model)
    return candidates.write(pools, sampler, decode, measured, own, run)


if __name__ == "__main__":
    process.run(main)
