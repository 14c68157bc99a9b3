"""An outcome reward model: how likely a completion's final answer is right, in even pools.

    python -m stages.reward_outcome <reward> --by outcome --preset .. --from .. --on pools/<pool>

Reads a pool of each seed, whose completions the answer checker labels; those of dev problems are
tested on. Writes for each seed a model in the format of `reward_preference`, whose one label is the
logit. Cobbe et al., "Training Verifiers to Solve Math Word Problems" (2021), section 4,
https://arxiv.org/abs/2110.14168. Departures: one prediction a completion, not one a token; no
language-modelling loss beside it; right and wrong weigh the same within each problem, so what is
learned is P(right) had both been equally likely beforehand (`rewards/verifier_labels`).
"""

from typing import Any

from stages import stage
from stages.loops import epochs, reward, training, work
from stages.loops.reward import OutcomeConfig
from stages.loops.run import Run
from stages.models import model_tokenizer, policy, row_policy, scalar_head, size
from stages.models.device import setup
from stages.models.scalar_head import ScalarHead
from stages.models.sharding import shard_model
from stages.records import pools
from stages.report import reward_quality
from stages.report.evaluation_config import Bins, EvaluationConfig
from stages.rewards import reward_file, verifier_labels
from stages.runtime import process
from stages.seeding import derive_seed


class OutcomePreset(OutcomeConfig):
    """How an outcome model is trained and tested."""

    quality: Bins


class Config(training.TrainingConfig):
    """What reward_outcome reads of params.yaml, and its preset."""

    evaluation: EvaluationConfig
    preset: OutcomePreset


def main(*words: str) -> None:
    """Write `reward.json`, and `model/` and `metrics.json` of each seed."""
    stage.run(train, "reward", words, Config, gpu=True, prepare=describe)


def describe(run: Run) -> None:
    """Write `reward.json`."""
    reward_file.write(run.output, reward_file.of_model("outcome"))


def train(run: Run) -> dict[str, Any]:
    """The outcome model of one seed."""
    config, row = run.config, run.row
    preset, compute = config.preset, config.compute
    device, seed = setup(compute), derive_seed(run.seed, "reward_outcome")
    read = {side: pools.read_pools(row.source, run.seed, side) for side in pools.SIDES}
    judged = {
        side: [verifier_labels.judge(*one) for one in run.track(some, label=f"check {side}")]
        for side, some in read.items()
    }
    problems = verifier_labels.learned_outcomes(
        judged["train"],
        max_per_problem=preset.max_per_problem,
        one_class_weight=preset.one_class_weight,
        seed=derive_seed(seed, "draw"),
    )
    heldout = verifier_labels.tested_outcomes(judged["heldout"])
    tokenizer = row_policy.load_row_tokenizer(row.policy, run.seed)
    pad_id = model_tokenizer.pad_id(tokenizer)
    start = row_policy.locate_policy_folder(row.policy, run.seed, config.model)
    model = scalar_head.init_scalar_model(start, pad_id, compute, device)
    row_policy.add_adapters(model, config.lora, seed)
    learner = shard_model(ScalarHead(model, compute, pad_id))
    schedule = epochs.batches(len(problems), preset.num_epochs, preset.batch_size, seed)
    state = run.resume()
    steps = reward.train_outcomes(learner, problems, schedule, preset, state)
    history = run.record(steps, total=len(schedule))
    groups = reward.problem_groups(heldout, compute.row_tokens)
    scores = reward.score(learner, groups)
    policy.save_model(model, tokenizer, run.output / "model")
    return {
        **work.learned(history, {"reward": size.measure_model(model)}),
        "problems": len(problems),
        "completions": sum(map(len, problems)),
        "heldout": reward_quality.evaluate_outcomes(
            [one for problem in heldout for one in problem],
            scores.numpy(),
            config.evaluation.quality(preset.quality),
            derive_seed(seed, "bootstrap"),
        ),
    }


if __name__ == "__main__":
    process.run(main)
