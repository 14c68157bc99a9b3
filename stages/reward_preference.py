"""A Bradley-Terry reward model from a policy, or an ensemble of them, with held-out accuracy.

    python -m stages.reward_preference <reward> --by preference --preset .. --from .. --on pairs/..

Reads labelled pairs for training and, of other problems, for testing; writes for each seed an
`AutoModelForSequenceClassification` with one label, read at a completion's last token. Ouyang et
al., "Training language models to follow instructions" (2022), eq. 1. Departure: the scale is kept
centred. `members` above 1 makes an ensemble whose members differ in the head's start and the order
of the pairs (Coste et al., "Reward Model Ensembles Help Mitigate Overoptimization" (2024));
`flip_percent` of the training labels are made wrong, the same ones for each member.
"""

from typing import Any

import torch
from pydantic import Field

from stages import stage
from stages.loops import epochs, reward, training, work
from stages.loops.preference import pair_groups
from stages.loops.reward import RewardConfig
from stages.loops.run import Run
from stages.models import model_tokenizer, policy, row_policy, scalar_head, size
from stages.models.device import setup
from stages.models.scalar_head import ScalarHead
from stages.models.sharding import shard_model
from stages.records import lines
from stages.records.preferences import Preference
from stages.report import reward_quality
from stages.report.evaluation_config import Bins, EvaluationConfig
from stages.rewards import reward_file, verifier_labels
from stages.rewards.reward_file import Aggregate
from stages.runtime import process
from stages.seeding import derive_seed


class RewardModelPreset(RewardConfig):
    """How a reward model is trained and tested."""

    members: int = Field(ge=1)
    """Reward models that score together."""
    aggregate: Aggregate
    """How the members' scores become one, wherever they score."""
    flip_percent: int = Field(ge=0, le=100)
    """Training labels that are made wrong, to measure how much noise a reward model bears."""
    quality: Bins


class Config(training.TrainingConfig):
    """What reward_preference reads of params.yaml, and its preset."""

    evaluation: EvaluationConfig
    preset: RewardModelPreset


def main(*words: str) -> None:
    """Write `reward.json`, and `model/` and `metrics.json` of each seed."""
    stage.run(train, "reward", words, Config, gpu=True, prepare=describe)


def describe(run: Run) -> None:
    """Write `reward.json`."""
    content = reward_file.of_model("preference", run.config.preset.aggregate)
    reward_file.write(run.output, content)


def train(run: Run) -> dict[str, Any]:
    """The reward model of one seed, or all members of its ensemble."""
    config, row = run.config, run.row
    preset, compute, device = config.preset, config.compute, setup(config.compute)
    source = run.source
    labelled = list(lines.read_lines(source / "train.jsonl", Preference))
    pairs = verifier_labels.flip_labels(
        labelled, preset.flip_percent, derive_seed(run.seed, "flip")
    )
    heldout = list(lines.read_lines(source / "heldout.jsonl", Preference))
    groups = pair_groups(heldout, range(len(heldout)))
    tokenizer = row_policy.load_row_tokenizer(row.policy, run.seed)
    pad_id = model_tokenizer.pad_id(tokenizer)
    start = row_policy.locate_policy_folder(row.policy, run.seed, config.model)
    history: list[dict[str, int | float]] = []
    scores, sizes = [], []
    for member in range(preset.members):
        seed = derive_seed(run.seed, "reward_preference", member)
        head_seed = derive_seed(seed, "head")
        model = scalar_head.init_scalar_model(start, pad_id, compute, device, head_seed=head_seed)
        row_policy.add_adapters(model, config.lora, seed)
        learner = shard_model(ScalarHead(model, compute, pad_id))
        schedule = epochs.batches(len(pairs), preset.num_epochs, preset.batch_size, seed)
        name = f"member {member}"
        state = run.resume(name)
        steps = reward.train(learner, pairs, schedule, preset, state)
        history += run.record(steps, total=len(schedule))
        scores.append(reward.score(learner, groups))
        place = run.output / "model" / str(member) if preset.members > 1 else run.output / "model"
        sizes.append(size.measure_model(model))
        policy.save_model(model, tokenizer, place)
    found = preset.aggregate(scores=torch.stack(scores)).view(len(heldout), 2)
    quality = config.evaluation.quality(preset.quality)
    seed = derive_seed(run.seed, "reward_preference", "bootstrap")
    return {
        **work.learned(history, {"reward": sizes[-1]}),
        "pairs": len(pairs),
        "heldout": reward_quality.evaluate_pairs(heldout, found.numpy(), quality, seed),
    }


if __name__ == "__main__":
    process.run(main)
