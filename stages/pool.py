"""Completions to label or to learn from: of a split's problems, and held-out ones of dev's.

    python -m stages.pool <pool> --from <policy> --split <split>

Writes, for each seed, N completions of each problem of the split (`train.jsonl`) and of each
dev problem (`heldout.jsonl`); `pool.json` says whose they are, and of which split.
"""

from typing import Any

from stages import stage
from stages.config import find_entry
from stages.engines.loading import SamplingConfig
from stages.loops import candidates
from stages.loops.candidates import CandidatesConfig
from stages.loops.run import Run
from stages.models import policy, row_policy, size
from stages.runtime import outputs, process

HELDOUT = "heldout"


class Config(SamplingConfig):
    """What pool reads of params.yaml."""

    sampling: dict[str, CandidatesConfig]


def main(*words: str) -> None:
    """Write the row's pool."""
    stage.run(sample, "pool", words, Config, gpu=True, prepare=describe)


def describe(run: Run) -> None:
    """Write whose completions the pool holds, and of which split."""
    content = {"split": run.row.preset, "policy": run.row.policy}
    outputs.write_json(run.output / "pool.json", content)


def sample(run: Run) -> dict[str, Any]:
    """The completions of one seed's policy; their metrics."""
    config, row = run.config, run.row
    settings = find_entry(config.sampling, row.preset, "section 'sampling'")
    pools = {
        "train": candidates.read(row.preset, settings, row.preset),
        # Not the draws of `sample`: what is labelled is not what policies are evaluated on.
        HELDOUT: candidates.read("dev", config.sampling[HELDOUT], HELDOUT),
    }
    sampler = config.load_sampler(row.policy, run.seed, candidates.longest(pools.values()))
    decode = policy.make_decode(row_policy.load_row_tokenizer(row.policy, run.seed))
    measured = size.measure_policy(row.policy, run.seed, config.model)
    return candidates.write(pools, sampler, decode, measured, run)


if __name__ == "__main__":
    process.run(main)
