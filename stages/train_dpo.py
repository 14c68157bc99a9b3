"""Direct preference optimisation of a policy on labelled pairs.

    python -m stages.train_dpo <name> <preset> <start> <pairs>

Rafailov et al., "Direct Preference Optimization" (2023), https://arxiv.org/abs/2305.18290.
The reference is the policy as it starts; its log-probs are computed once, before the first
step. Started from another round's policy, on pairs of its samples, this is iterative DPO (Xu et
al. 2023, https://arxiv.org/abs/2312.16682).
"""

import json
import sys
from pathlib import Path

from stages import params
from stages.loops import epochs, preference
from stages.loops.preference import PreferenceConfig, PreferencePreset
from stages.models import lora, model_tokenizer, policy
from stages.models.device import ComputeConfig, setup
from stages.models.lora import LoraConfig
from stages.params import Params
from stages.records import lines
from stages.records.preference import Preference
from stages.runtime import outputs, progress, runs
from stages.seeding import derive

TABLES = ("preference",)
DATA = Path("data")
PAIRS = DATA / "label_preferences"
OUTPUT = DATA / "train_dpo"


class Config(Params):
    """What train_dpo reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    lora: LoraConfig
    preference: PreferencePreset
    train_dpo: PreferenceConfig


def main(name: str, preset: str, start: str, pairs_of: str) -> None:
    """Write `policy/` and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"train_dpo@{name}", output, gpu=True) as run:
        config = params.load(Config, pick={"preference": preset})
        device = setup(config.compute)
        seed = derive(config.seed, "train_dpo")
        tokenizer = model_tokenizer.load(DATA / start)
        model = policy.load(DATA / start, config.compute, device)
        pairs = list(lines.read(PAIRS / pairs_of / "train.jsonl", Preference))
        pad_id = model_tokenizer.pad_id(tokenizer)
        ref_logprobs = preference.reference_logprobs(model, pairs, config.compute, pad_id)
        merged = lora.attach(model, config.lora, seed)
        schedule = epochs.batches(
            len(pairs), config.train_dpo.num_epochs, config.train_dpo.batch_size, seed
        )
        steps = preference.train(
            model,
            pairs,
            ref_logprobs,
            schedule,
            config.train_dpo,
            config.preference,
            config.compute,
            pad_id,
        )
        trained_tokens, last = 0, {}
        for step in progress.track(steps, total=len(schedule), label=f"train_dpo {name}"):
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
        with outputs.replace(output / "policy") as temporary:
            policy.save(merged(), tokenizer, temporary)
        with outputs.replace(output / "metrics.json") as temporary:
            temporary.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
