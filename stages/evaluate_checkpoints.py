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

import json
from collections.abc import Iterator
from pathlib import Path

from stages import params
from stages.engines import samplers
from stages.engines.samplers import EngineName
from stages.loops import candidates, checkpoint_measures, checkpoints
from stages.loops.checkpoint_measures import CheckpointsConfig, Judges
from stages.models import ensemble, model_tokenizer, policy
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
NO_MODEL = "no_model"


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
        judges = load_judges(reference, reward_model, ensemble_of, config)
        prompts = list(lines.read(PROMPTS / f"{split}.jsonl", Prompt))
        policies = list(along(run_of, reference))
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
        with outputs.replace(output / "metrics.json") as temporary:
            temporary.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")


def load_judges(reference: str, reward_model: str, ensemble_of: str, config: Config) -> Judges:
    """The models that words name, in eval mode."""
    compute, device = config.compute, setup(config.compute)
    single, several = (
        None if word == NO_MODEL else ensemble.load(DATA / word, config.ensemble, compute, device)
        for word in (reward_model, ensemble_of)
    )
    start = models_start.load(reference, config.model, compute, device).eval()
    return Judges(reference=start, reward_model=single, ensemble=several)


def along(run_of: str, reference: str) -> Iterator[tuple[int, str]]:
    """(steps taken, word) of the start, of each checkpoint and of the policy that the run wrote."""
    folder = DATA / run_of
    taken = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))["steps"]
    yield 0, reference
    for step, path in checkpoints.numbered(folder / "checkpoints"):
        yield step, str(path.relative_to(DATA))
    yield taken, f"{run_of}/policy"


def evaluate(
    step: int, word: str, judges: Judges, prompts: list[Prompt], config: Config, split: str
) -> list[CheckpointResult]:
    """Sample from one policy, and measure what it drew."""
    settings, compute = config.evaluate_checkpoints, config.compute
    longest = max(len(prompt.prompt_ids) for prompt in prompts) + settings.max_new_tokens
    tokenizer = models_start.tokenizer(word)
    drawn = candidates.draw(
        samplers.load(config.engine, word, model=config.model, compute=compute, max_length=longest),
        policy.decoder(tokenizer),
        prompts,
        settings,
        config.seed,
        split,
        num_samples=settings.num_samples,
        temperature=settings.temperature,
    )
    return checkpoint_measures.measure(
        models_start.load(word, config.model, compute, setup(compute)),
        judges,
        pools.by_problem(prompts, drawn),
        compute,
        model_tokenizer.pad_id(tokenizer),
        step=step,
        temperature=settings.temperature,
    )


if __name__ == "__main__":
    process.run(main)
