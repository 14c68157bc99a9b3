"""Sample completions of a policy, for evaluation or as a pool to label.

    python -m stages sample <policy>
    python -m stages pool <pool> --from <policy> --split <split>

`sample` writes, for each seed, N samples of each dev and test problem (`dev.jsonl`, `test.jsonl`)
and its greedy completion (`dev_greedy.jsonl`, `test_greedy.jsonl`). If answers can be checked, it
also writes a few samples at other temperatures (`dev_at_0.5.jsonl`), so that each policy can be
evaluated at its best temperature; `temperatures.jsonl` has the temperature of each file. `compare`
chooses the best one, so that an edit of the answer checker needs no new samples. A completion's
random stream depends only on seed, problem and sample, so policies and temperatures are compared on
the same random numbers.

`pool` writes, for each seed, N completions of each problem of the split (`train.jsonl`) and of each
dev problem (`heldout.jsonl`), to learn from or to label; `pool.json` names the policy and the
split. The dev problems have other random streams than in `sample`: completions that are labelled
are not those of the evaluation.
"""

from typing import Any, Self

from pydantic import Field, model_validator

from stages import stage
from stages.config import Params, find_entry
from stages.engines.loading import SamplingConfig
from stages.loops import pool_sampling
from stages.loops.pool_sampling import PoolRequest, PoolSamplingConfig
from stages.loops.run import Run
from stages.models import model_tokenizer, row_policy, size
from stages.records import temperatures
from stages.records.temperatures import SampledFile
from stages.runtime import outputs

HELDOUT = "heldout"


class Config(SamplingConfig):
    """Keys of params.yaml that pool reads, and that sample reads among others."""

    sampling: dict[str, PoolSamplingConfig]


class TemperaturesConfig(Params):
    """Temperatures in addition to that of `sampling.test` and to 0 (greedy)."""

    tried: list[float]
    num_samples: int = Field(gt=0)
    """Samples of each dev and test problem at each of these temperatures."""


class EvaluationSamplesConfig(Config):
    """Keys of params.yaml that sample reads."""

    temperatures: TemperaturesConfig

    @model_validator(mode="after")
    def check_temperatures(self) -> Self:
        """Raise a ValueError unless dev and test have the same temperature, and `tried` suits it.

        Each of `tried` is at least `LOWEST`; no two of `tried` and `sampling.test` may be equal to
        six digits, since they would share a file.
        """
        dev, test = (
            find_entry(self.sampling, split, "section 'sampling'").temperature
            for split in ("dev", "test")
        )
        if dev != test:
            raise ValueError(
                f"sampling.dev.temperature: expected that of sampling.test, {test}, found {dev}. "
                f"The dev problems choose a temperature for the test problems: set both to the same"
            )
        tried = self.temperatures.tried
        names = {f"{temperature:g}" for temperature in (*tried, test)}  # of files
        if min(tried, default=1.0) < LOWEST or len(names) <= len(tried):
            raise ValueError(
                f"temperatures.tried: expected temperatures from {LOWEST}, each once and none that "
                f"of sampling.test ({test}), which is always tried, as 0 is; found {tried}"
            )
        return self


LOWEST = 0.01
"""Temperature below which sampling is greedy up to rounding."""
CONFIGS = {"sample": EvaluationSamplesConfig, "pool": Config}


def main(*words: str) -> None:
    """Write the samples of a policy, or a pool."""
    if words[0] == "pool":
        stage.run(sample_pool, words, Config, gpu=True, prepare=write_origin)
    else:
        stage.run(sample_for_evaluation, words, EvaluationSamplesConfig, gpu=True)


def sample_for_evaluation(run: Run) -> dict[str, Any]:
    """Sample dev and test problems with one seed's policy; returns metrics of the samples."""
    pools: dict[str, PoolRequest] = {}
    files: list[SampledFile] = []
    for split in ("dev", "test"):
        settings = run.config.sampling[split]
        pools[split] = pool_sampling.read_request(split, settings, split)
        pools[f"{split}_greedy"] = pool_sampling.read_request(split, settings, split, greedy=True)
        at = {split: settings.temperature, f"{split}_greedy": 0.0}
        if pools[split].prompts[0].answer is not None:
            for temperature in run.config.temperatures.tried:
                name = f"{split}_at_{temperature:g}"
                changes = {
                    "temperature": temperature, "num_samples": run.config.temperatures.num_samples,
                }  # fmt: skip
                pools[name] = pool_sampling.read_request(
                    split, settings.model_copy(update=changes), split
                )
                at[name] = temperature
        files += [SampledFile(name=name, split=split, temperature=t) for name, t in at.items()]
    run.write(temperatures.FILE, files)
    return sample(run, run.row.name, pools)


def write_origin(run: Run) -> None:
    """Write the policy and the split of a pool."""
    content = {"split": run.row.preset, "policy": run.row.policy}
    outputs.write_json(run.output / "pool.json", content)


def sample_pool(run: Run) -> dict[str, Any]:
    """Sample a pool with one seed's policy; returns metrics of the completions."""
    split, sampling = run.row.preset, run.config.sampling
    settings = find_entry(sampling, split, "section 'sampling'")
    pools = {
        "train": pool_sampling.read_request(split, settings, split),
        HELDOUT: pool_sampling.read_request("dev", sampling[HELDOUT], HELDOUT),
    }
    return sample(run, run.row.policy, pools)


def sample(run: Run, name: str, pools: dict[str, PoolRequest]) -> dict[str, Any]:
    """Write completions of pools by this seed's policy `name`; returns their metrics."""
    config, seed = run.config, run.seed
    sampler = config.load_sampler(name, seed, pool_sampling.max_length(pools.values()))
    decode = model_tokenizer.make_decode(row_policy.load_row_tokenizer(name, seed))
    return pool_sampling.write_pools(
        pools, sampler, decode, size.measure_policy(name, seed, config.model), run
    )
