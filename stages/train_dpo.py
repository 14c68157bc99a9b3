"""Preference learning of a policy on labelled pairs: DPO or a relative of it.

    python -m stages.train_dpo <name> <preset> <start> <pairs> <reference>

Rafailov et al., "Direct Preference Optimization" (2023), https://arxiv.org/abs/2305.18290; the
loss is the preset, an entry of the table `preference` in presets.yaml. The reference is the
policy as it starts, whose log-probs `compute_ref_logprobs` wrote. Started from another round's
policy, on pairs of its samples, this is iterative DPO (Xu et al. 2023,
https://arxiv.org/abs/2312.16682).
"""

import logging
from pathlib import Path

from stages import params
from stages.loops import checkpoints, pace, preference_family, preference_summary, work
from stages.loops.choices.preference_loss import PreferenceLoss
from stages.loops.preference import PreferenceConfig
from stages.models import lora, model_tokenizer, policy, size
from stages.models.device import ComputeConfig, setup
from stages.models.lora import LoraConfig
from stages.params import Params
from stages.records import lines
from stages.records.preferences import Preference
from stages.records.ref_logprob import RefLogprob
from stages.runtime import outputs, process, progress, runs
from stages.seeding import derive

logger = logging.getLogger(__name__)

TABLES = ("preference",)
DATA = Path("data")
REFERENCE = DATA / "compute_ref_logprobs"
OUTPUT = DATA / "train_dpo"


class TrainDpo(pace.Paced, PreferenceConfig):
    """Section of params.yaml."""


class Config(Params):
    """What train_dpo reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    lora: LoraConfig
    preference: PreferenceLoss
    train_dpo: TrainDpo


def main(name: str, preset: str, start: str, pairs_of: str, reference: str) -> None:
    """Write `policy/`, `checkpoints/` and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"train_dpo@{name}", output, gpu=True) as run:
        config = params.load(Config, pick={"preference": preset})
        seed = derive(config.seed, "train_dpo")
        tokenizer = model_tokenizer.load(DATA / start)
        pad_id, number = model_tokenizer.pad_id(tokenizer), config.train_dpo.num_checkpoints
        model = policy.load(DATA / start, config.compute, setup(config.compute))
        # Adapters start as no change, so the model with them is still the reference.
        merged = lora.attach(model, config.lora, seed)
        pairs = list(lines.read(DATA / pairs_of / "train.jsonl", Preference))
        stored = lines.read(REFERENCE / reference / "ref_logprobs.jsonl", RefLogprob)
        budget = config.train_dpo.token_budgets.get(name)
        num_steps, steps = preference_family.learn(
            model,
            pairs,
            stored,
            config.preference,
            config.train_dpo,
            budget,
            config.compute,
            seed,
            pad_id,
        )
        history: list[dict[str, int | float]] = []
        with outputs.replace(output / "checkpoints") as temporary:
            steps = checkpoints.along(steps, num_steps, number, merged, tokenizer, temporary)
            for step in progress.track(steps, total=num_steps, label=f"train_dpo {name}"):
                run.log(step.index, step.metrics)
                history.append(step.metrics)
        metrics = {"pairs": len(pairs), "steps": num_steps, **preference_summary.summarise(history)}
        metrics["work"] = work.summary(history, {"policy": size.measure(model)})
        if metrics["both_logprobs_fell"]:
            logger.warning(preference_summary.BOTH_FELL, metrics)
        with outputs.replace(output / "policy") as temporary:
            policy.save(merged(), tokenizer, temporary)
        outputs.write_json(output / "metrics.json", metrics)


if __name__ == "__main__":
    process.run(main)
