"""Preference learning of a policy on labelled pairs: DPO or a relative of it.

    python -m stages.train_dpo <policy> --train dpo --preset .. --from .. --on pairs/..

Rafailov et al., "Direct Preference Optimization" (2023), https://arxiv.org/abs/2305.18290; the
loss is the preset. The reference is the policy as it starts: its log-probs of all completions are
computed before the first step. Started from another round's policy, on pairs of its samples, this
is iterative DPO (Xu et al. 2023, https://arxiv.org/abs/2312.16682).
"""

import logging
from functools import partial
from typing import Any

from stages import params, rows
from stages.loops import preference_run, training, work
from stages.loops.preference import PreferenceConfig, PreferencePreset
from stages.models import model_tokenizer, size
from stages.models import start as models_start
from stages.models.device import ComputeConfig, setup
from stages.models.start import LoraConfig, ModelConfig
from stages.params import Params
from stages.records import lines
from stages.records.preferences import Preference
from stages.rows import Row
from stages.runtime import process, runs, seeds
from stages.runtime.seeds import SeedRun
from stages.seeding import derive

logger = logging.getLogger(__name__)


class Config(Params):
    """What train_dpo reads of params.yaml, and its preset."""

    seeds: list[int]
    compute: ComputeConfig
    model: ModelConfig
    lora: LoraConfig
    dpo: PreferenceConfig
    preset: PreferencePreset


def main(*words: str) -> None:
    """Write `model/` and `training/` of the row's policy."""
    row = rows.parse(words)
    with runs.start(f"train@{row.name}") as run:
        config = params.load(Config, row.preset)
        with training.outputs_of(row.name) as folders:
            seeds.side_by_side(partial(train, config, row, folders), config.seeds, run, gpu=True)


def train(config: Config, row: Row, folders: training.Folders, run: SeedRun) -> dict[str, Any]:
    """The policy of one seed; its metrics."""
    settings, compute = config.dpo, config.compute
    device, seed = setup(compute), derive(run.seed, "train_dpo")
    tokenizer = models_start.tokenizer(row.policy, run.seed)
    model = models_start.load(row.policy, run.seed, config.model, compute, device)
    path = training.per_seed(row.source, run.seed) / "train.jsonl"
    pairs = list(lines.read(path, Preference))
    # Adapters start as no change, so the model with them is still the reference.
    merged = models_start.attach(model, config.lora, seed)
    learning = preference_run.learn(
        model, pairs, config.preset, settings, compute, seed, model_tokenizer.pad_id(tokenizer)
    )
    number, kept = learning.num_steps, settings.num_checkpoints
    history = training.take(learning.steps, number, kept, merged, tokenizer, folders, run)
    done = [step.metrics for step in history]
    metrics = {
        "pairs": len(pairs),
        "steps": number,
        **preference_run.summarise(done),
        "work": work.summary([learning.reference_work, *done], {"policy": size.measure(model)}),
    }
    if metrics["both_logprobs_fell"]:
        logger.warning(preference_run.BOTH_FELL, metrics)
    training.write(folders, run.seed, merged(), tokenizer, history, metrics)
    return metrics


if __name__ == "__main__":
    process.run(main)
