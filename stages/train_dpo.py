"""Direct preference optimisation from the SFT policy on labelled pairs.

Rafailov et al., "Direct Preference Optimization" (2023), https://arxiv.org/abs/2305.18290.
The reference is the SFT policy; its log-probs are computed once, before the first step.
"""

import json
from pathlib import Path

from stages import params
from stages.loops import epochs, preference
from stages.loops.preference import PreferenceConfig
from stages.models import lora, model_tokenizer, policy
from stages.models.device import ComputeConfig, setup
from stages.models.lora import LoraConfig
from stages.params import Params
from stages.records import lines
from stages.records.preference import Preference
from stages.runtime import outputs, progress, runs
from stages.seeding import derive

SFT = Path("data/train_sft/policy")
PAIRS = Path("data/label_preferences/train.jsonl")
OUTPUT = Path("data/train_dpo")


class Config(Params):
    """What train_dpo reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    lora: LoraConfig
    train_dpo: PreferenceConfig


def main() -> None:
    """Write `policy/` and `metrics.json`."""
    with runs.start("train_dpo", OUTPUT, gpu=True) as run:
        config = params.load(Config)
        device = setup(config.compute)
        seed = derive(config.seed, "train_dpo")
        tokenizer = model_tokenizer.load(SFT)
        model = policy.load(SFT, config.compute, device)
        pairs = list(lines.read(PAIRS, Preference))
        pad_id = model_tokenizer.pad_id(tokenizer)
        ref_logprobs = preference.reference_logprobs(model, pairs, config.compute, pad_id)
        merged = lora.attach(model, config.lora, seed)
        schedule = epochs.batches(
            len(pairs), config.train_dpo.num_epochs, config.train_dpo.batch_size, seed
        )
        steps = preference.train(
            model, pairs, ref_logprobs, schedule, config.train_dpo, config.compute, pad_id
        )
        trained_tokens, last = 0, {}
        for step in progress.track(steps, total=len(schedule), label="train_dpo"):
            run.log(step.index, step.metrics)
            trained_tokens += int(step.metrics["tokens/trained"])
            last = step.metrics
        metrics = {
            "generated_tokens": 0,
            "trained_tokens": trained_tokens,
            "pairs": len(pairs),
            "final_margin_accuracy": last["margin/accuracy"],
            "final_chosen_log_ratio": last["logprobs/chosen"],
            "final_rejected_log_ratio": last["logprobs/rejected"],
        }
        with outputs.replace(OUTPUT / "policy") as temporary:
            policy.save(merged(), tokenizer, temporary)
        with outputs.replace(OUTPUT / "metrics.json") as temporary:
            temporary.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
