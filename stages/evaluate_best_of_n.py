"""A policy's large pool of completions of some problems, scored: what best-of-n chooses from.

    python -m stages.evaluate_best_of_n <name> <policy> <reward_model> <ensemble> <split>

Best-of-n is over-optimised only where n is large, and its estimators need pools several times as
large (stages/algorithms/selection): far larger than what policies are compared on, of fewer
problems. Writes, for each problem (`rows.jsonl`), which completions are right and what a reward
model and an ensemble find them worth; `no_model` where there is none. report_overoptimization
draws the curves.
"""

from pathlib import Path

from stages import params
from stages.engines import samplers
from stages.engines.samplers import EngineName
from stages.loops import checkpoint_judges, scored_pools
from stages.loops.scored_pools import BestOfNConfig
from stages.models import start as models_start
from stages.models.aggregate import Aggregate
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig, setup
from stages.params import Params
from stages.records import lines
from stages.records.prompt import Prompt
from stages.records.scored_pool import ScoredPool
from stages.runtime import outputs, process, progress, runs
from stages.seeding import derive

PROMPTS = Path("data/prepare_data/prompts")
OUTPUT = Path("data/evaluate_best_of_n")


class Config(Params):
    """What evaluate_best_of_n reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    model: ModelConfig
    ensemble: Aggregate
    engine: EngineName
    evaluate_best_of_n: BestOfNConfig


def main(name: str, start: str, reward_model: str, several: str, split: str) -> None:
    """Write `rows.jsonl` and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"evaluate_best_of_n@{name}", output, gpu=True) as run:
        config = params.load(Config)
        settings, compute, device = config.evaluate_best_of_n, config.compute, setup(config.compute)
        prompts = list(lines.read(PROMPTS / f"{split}.jsonl", Prompt))
        longest = max(len(prompt.prompt_ids) for prompt in prompts) + settings.max_new_tokens
        sampler = samplers.load(
            config.engine, start, model=config.model, compute=compute, max_length=longest
        )
        scorers = checkpoint_judges.scorers(reward_model, several, config.ensemble, compute, device)
        tokenizer, seed = models_start.tokenizer(start), derive(config.seed, "evaluate_best_of_n")
        steps = scored_pools.measure(
            sampler, tokenizer, scorers, prompts, settings, compute, device, seed
        )
        rows: list[ScoredPool] = []
        generated = 0
        for step in progress.track(steps, label=f"best-of-n {name}"):
            run.log(step.index, step.metrics)
            generated += int(step.metrics["tokens/generated"])
            rows += step.rows
        metrics = {
            "problems": len(rows),
            "distinct": sum(row.num_distinct for row in rows) / len(rows),
            "accuracy": sum(sum(row.correct) / len(row.correct) for row in rows) / len(rows),
            "generated_tokens": generated,
        }
        with outputs.replace(output / "rows.jsonl") as temporary:
            lines.write(temporary, rows)
        outputs.write_json(output / "metrics.json", metrics)


if __name__ == "__main__":
    process.run(main)
