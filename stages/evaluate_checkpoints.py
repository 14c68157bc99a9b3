"""What a training run did on its way: every checkpoint on the problems of one split.

    python -m stages.evaluate_checkpoints <name> <run> <reference> <reward_model> <ensemble> <split>

Samples completions of each problem by the policy that the run started from (step 0), by each of
its checkpoints and by the policy that it wrote, with the same random streams; writes, for each
step and problem (`rows.jsonl`), how many are right by the answer checker, what a reward model and
an ensemble find them worth, the divergence from the start in nats, length, entropy, truncation
and repetition; and their means with intervals over problems (`metrics.json`). `run` is the entry
of train_dpo, train_ppo or train_grpo, `reference` the policy that it started from, as folders
under data/; `no_model` where there is no reward model or no ensemble.

The split is never `test`: which step is best is chosen here, and reported there.
"""

from pathlib import Path

from stages import params
from stages.engines import samplers
from stages.engines.samplers import EngineName
from stages.loops import candidates, checkpoint_judges, checkpoint_measures, checkpoints
from stages.loops.checkpoint_judges import Judges
from stages.loops.checkpoint_measures import CheckpointsConfig
from stages.models import model_tokenizer, policy
from stages.models import start as models_start
from stages.models.aggregate import Aggregate
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig, setup
from stages.params import Params
from stages.records import lines, pools
from stages.records.checkpoint_result import CheckpointResult
from stages.records.prompt import Prompt
from stages.reports import checkpoint_summary
from stages.runtime import outputs, process, progress, runs
from stages.seeding import derive

DATA = Path("data")
PROMPTS = DATA / "prepare_data/prompts"
OUTPUT = DATA / "evaluate_checkpoints"


class Config(Params):
    """What evaluate_checkpoints reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    model: ModelConfig
    ensemble: Aggregate
    engine: EngineName
    evaluate_checkpoints: CheckpointsConfig


def main(
    name: str, run_of: str, reference: str, reward_model: str, ensemble_of: str, split: str
) -> None:
    """Write `rows.jsonl` and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"evaluate_checkpoints@{name}", output, gpu=True) as run:
        config = params.load(Config)
        settings = config.evaluate_checkpoints
        words, device = (reference, reward_model, ensemble_of), setup(config.compute)
        judges = checkpoint_judges.load(
            *words, config.ensemble, config.model, config.compute, device
        )
        prompts = list(lines.read(PROMPTS / f"{split}.jsonl", Prompt))
        policies = list(checkpoints.policies(DATA, run_of, reference))
        rows: list[CheckpointResult] = []
        for index, (step, word) in enumerate(progress.track(policies, label=f"evaluate {name}")):
            found = evaluate(step, word, judges, prompts, config, split)
            accuracy = sum(row.correct for row in found) / len(found)
            run.log(index, {"step": step, "correct": accuracy})
            rows += found
        metrics = checkpoint_summary.summarise(
            rows,
            num_resamples=settings.num_bootstrap,
            confidence=settings.confidence,
            seed=derive(config.seed, "evaluate_checkpoints", "bootstrap"),
        )
        with outputs.replace(output / "rows.jsonl") as temporary:
            lines.write(temporary, rows)
        outputs.write_json(output / "metrics.json", metrics)


def evaluate(
    step: int, word: str, judges: Judges, prompts: list[Prompt], config: Config, split: str
) -> list[CheckpointResult]:
    """Sample from one policy, and measure what it drew."""
    settings, compute = config.evaluate_checkpoints, config.compute
    number, heat = settings.num_samples, settings.temperature
    longest = max(len(prompt.prompt_ids) for prompt in prompts) + settings.max_new_tokens
    tokenizer, shared = models_start.tokenizer(word), {"model": config.model, "compute": compute}
    sampler = samplers.load(config.engine, word, max_length=longest, **shared)
    decode, pad_id = policy.decoder(tokenizer), model_tokenizer.pad_id(tokenizer)
    drawn = candidates.draw(
        sampler, decode, prompts, settings, config.seed, split, num_samples=number, temperature=heat
    )
    model = models_start.load(word, config.model, compute, setup(compute))
    problems = pools.by_problem(prompts, drawn)
    return checkpoint_measures.measure(
        model, judges, problems, compute, pad_id, step=step, temperature=heat
    )


if __name__ == "__main__":
    process.run(main)
