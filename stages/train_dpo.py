"""Preference learning from the SFT policy on labelled pairs: DPO or a relative of it.

Rafailov et al., "Direct Preference Optimization" (2023), https://arxiv.org/abs/2305.18290;
the loss is `preference` of params.yaml. The reference is the SFT policy, whose log-probs
`compute_ref_logprobs` wrote.
"""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

from transformers import PreTrainedModel

from stages import params
from stages.loops import epochs, kto, preference, preference_summary, stored_logprobs
from stages.loops.choices.preference_loss import KtoLoss, PreferenceLoss
from stages.loops.judged_rows import judged_rows
from stages.loops.preference import PreferenceConfig
from stages.loops.step import Step
from stages.models import lora, model_tokenizer, policy
from stages.models.device import ComputeConfig, setup
from stages.models.lora import LoraConfig
from stages.params import Params
from stages.records import lines
from stages.records.preference import Preference
from stages.records.ref_logprob import RefLogprob
from stages.runtime import outputs, progress, runs
from stages.seeding import derive

logger = logging.getLogger(__name__)

SFT = Path("data/train_sft/policy")
PAIRS = Path("data/label_preferences/train.jsonl")
REFERENCE = Path("data/compute_ref_logprobs/ref_logprobs.jsonl")
OUTPUT = Path("data/train_dpo")


class Config(Params):
    """What train_dpo reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    lora: LoraConfig
    preference: PreferenceLoss
    train_dpo: PreferenceConfig


def main() -> None:
    """Write `policy/` and `metrics.json`."""
    with runs.start("train_dpo", OUTPUT, gpu=True) as run:
        config = params.load(Config)
        device = setup(config.compute)
        seed = derive(config.seed, "train_dpo")
        tokenizer = model_tokenizer.load(SFT)
        model = policy.load(SFT, config.compute, device)
        # Adapters start as no change, so the model with them is still the reference.
        merged = lora.attach(model, config.lora, seed)
        pairs = list(lines.read(PAIRS, Preference))
        pad_id = model_tokenizer.pad_id(tokenizer)
        num_steps, steps = learn(model, pairs, config, seed, pad_id)
        history: list[dict[str, int | float]] = []
        for step in progress.track(steps, total=num_steps, label="train_dpo"):
            run.log(step.index, step.metrics)
            history.append(step.metrics)
        metrics = {"pairs": len(pairs), **preference_summary.summarise(history)}
        if metrics["both_logprobs_fell"]:
            logger.warning(preference_summary.BOTH_FELL, metrics)
        with outputs.replace(OUTPUT / "policy") as temporary:
            policy.save(merged(), tokenizer, temporary)
        with outputs.replace(OUTPUT / "metrics.json") as temporary:
            temporary.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")


def learn(
    model: PreTrainedModel, pairs: list[Preference], config: Config, seed: int, pad_id: int
) -> tuple[int, Iterator[Step]]:
    """The number of steps and the steps, of the loop that the loss needs."""
    stored, settings, compute = lines.read(REFERENCE, RefLogprob), config.train_dpo, config.compute
    match config.preference:
        case KtoLoss() as loss:
            rows = judged_rows(pairs)
            schedule = epochs.batches(len(rows), settings.num_epochs, settings.batch_size, seed)
            ref = kto.reference(model, rows, stored, schedule, compute, pad_id)
            steps = kto.train(model, rows, ref, schedule, loss, settings, compute, pad_id)
        case loss:
            schedule = epochs.batches(len(pairs), settings.num_epochs, settings.batch_size, seed)
            ref = stored_logprobs.of_pairs(pairs, stored)
            steps = preference.train(model, pairs, ref, schedule, loss, settings, compute, pad_id)
    return len(schedule), steps


if __name__ == "__main__":
    main()
