"""A Bradley-Terry reward model, initialised from a policy, with held-out accuracy.

    python -m stages.train_reward_model <name> <start> <pairs> <heldout> <member> <flip>

Reads labelled pairs for training and, of other problems, for testing; writes an
`AutoModelForSequenceClassification` with one label, read at a completion's last token.
Ouyang et al., "Training language models to follow instructions" (2022), eq. 1. Departure:
the scale is kept centred. `member` is a number that seeds the head's start and the order of the
pairs, as in Coste et al., "Reward Model Ensembles Help Mitigate Overoptimization" (2024): several
with one word `ensemble` in the plan are an ensemble, which `assemble_ensembles` puts together.
`flip` is the per cent of the training labels that are made wrong, the same ones for each member.
"""

from pathlib import Path

from stages import params
from stages.loops import epochs, reward, work
from stages.loops.reward import RewardConfig
from stages.models import lora, model_tokenizer, policy, scalar_head, size
from stages.models.device import ComputeConfig, setup
from stages.models.lora import LoraConfig
from stages.params import Params
from stages.records import lines
from stages.records.preferences import Preference
from stages.reports import reward_model_plots, reward_model_quality
from stages.reports.problem_interval import QualityConfig
from stages.rewards import label_noise
from stages.runtime import outputs, process, progress, runs
from stages.seeding import derive

DATA = Path("data")
OUTPUT = DATA / "train_reward_model"


class Config(Params):
    """What train_reward_model reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    lora: LoraConfig
    reward_quality: QualityConfig
    train_reward_model: RewardConfig


def main(name: str, start: str, pairs_of: str, heldout_of: str, member: str, flip: str) -> None:
    """Write `reward_model/`, `metrics.json` and `plots/`."""
    output = OUTPUT / name
    with runs.start(f"train_reward_model@{name}", output, gpu=True) as run:
        config = params.load(Config)
        device = setup(config.compute)
        seed = derive(config.seed, "train_reward_model", int(member))
        tokenizer = model_tokenizer.load(DATA / start)
        pad_id = model_tokenizer.pad_id(tokenizer)
        model = scalar_head.from_policy(
            DATA / start, pad_id, config.compute, device, head_seed=derive(seed, "head")
        )
        merged = lora.attach(model, config.lora, seed)
        labelled = list(lines.read(DATA / pairs_of / "train.jsonl", Preference))
        pairs = label_noise.flip(labelled, int(flip), derive(config.seed, "flip"))
        heldout = list(lines.read(DATA / heldout_of / "heldout.jsonl", Preference))
        settings = config.train_reward_model
        schedule = epochs.batches(len(pairs), settings.num_epochs, settings.batch_size, seed)
        steps = reward.train(model, pairs, schedule, settings, config.compute, pad_id)
        history: list[dict[str, int | float]] = []
        for step in progress.track(steps, total=len(schedule), label=f"train_reward_model {name}"):
            run.log(step.index, step.metrics)
            history.append(step.metrics)
        scores = reward.score_pairs(model, heldout, config.compute, pad_id)
        tested = heldout, scores.numpy(), config.reward_quality
        quality = reward_model_quality.measure(*tested, derive(seed, "bootstrap"))
        metrics = {
            "generated_tokens": 0,
            "trained_tokens": sum(int(metrics["tokens/trained"]) for metrics in history),
            "work": work.summary(history, {"reward": size.measure(model)}),
            "pairs": len(pairs),
            "flipped_percent": int(flip),
            "heldout": quality,
        }
        with outputs.replace(output / "reward_model") as temporary:
            policy.save(merged(), tokenizer, temporary)
        with outputs.replace(output / "plots") as temporary:
            reward_model_plots.draw(temporary, quality, reward_model_quality.reliability(*tested))
        outputs.write_json(output / "metrics.json", metrics)


if __name__ == "__main__":
    process.run(main)
