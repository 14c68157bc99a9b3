"""Preference learning of a policy on labelled pairs: DPO or a relative of it.

    python -m stages train_dpo <policy> --train dpo --preset .. --from .. --on pairs/..

Rafailov et al., "Direct Preference Optimization" (2023), https://arxiv.org/abs/2305.18290; the
preset names the loss. The reference is the initial policy: its log-probs of all completions are
computed before the first step. From the policy of an earlier round, on pairs of its samples, this
is iterative DPO (Xu et al. 2023, https://arxiv.org/abs/2312.16682).
"""

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

from stages import stage
from stages.loops import kto, preference, ref_logprobs, training, work
from stages.loops.kto import KtoReference
from stages.loops.preference import KTO, PreferenceConfig, PreferencePreset
from stages.loops.run import Run
from stages.loops.work import Step
from stages.models import model_tokenizer, policy, row_policy, size
from stages.models.device import setup
from stages.models.policy import Policy
from stages.models.sharding import shard_model
from stages.records import lines
from stages.records.preferences import LABELLED, UnpairedExample, read_pairs
from stages.seeding import derive_seed


class Config(training.TrainingConfig):
    """Keys of params.yaml that train_dpo reads, and its preset."""

    dpo: PreferenceConfig
    preset: PreferencePreset


def main(*words: str) -> None:
    """Write `model/` and `training/` of the row's policy."""
    stage.run(train, words, Config, gpu=True)


def train(run: Run) -> dict[str, Any]:
    """Train the policy of one seed; returns its metrics."""
    config, row = run.config, run.row
    device, seed = setup(config.compute), derive_seed(run.seed, "train_dpo")
    tokenizer = row_policy.load_row_tokenizer(row.policy, run.seed)
    model = row_policy.load_row_policy(row.policy, run.seed, config.model, config.compute, device)
    examples = read_examples(run)
    # New adapters change nothing, so the model with them is still the reference.
    row_policy.add_adapters(model, config.lora, seed)
    learner = shard_model(Policy(model, config.compute, model_tokenizer.pad_id(tokenizer)))
    num_steps, steps, reference_work = start_loop(run, learner, examples, seed)
    save = partial(policy.save_model, model, tokenizer, dtype=config.compute.dtype)
    history = run.record(
        steps, total=num_steps, num_checkpoints=config.dpo.num_checkpoints, save=save
    )
    run.write_policy(save)
    return {
        "completions" if config.preset.kind == KTO else "pairs": len(examples),
        "steps": num_steps,
        **preference.summarise(history),
        "work": work.sum_work([reference_work, *history], {"policy": size.measure_model(model)}),
    }


def read_examples(run: Run) -> list[Any]:
    """Preference pairs; for KTO single completions, desirable or not, of people or out of pairs."""
    labelled = run.source / f"train{LABELLED}.jsonl"
    if run.config.preset.kind != KTO:
        return read_pairs(run.source, "train")
    if labelled.exists():
        return list(lines.read_lines(labelled, UnpairedExample))
    return kto.make_unpaired_examples(read_pairs(run.source, "train"))


def start_loop(
    run: Run, model: Policy, examples: list[Any], seed: int
) -> tuple[int, Iterator[Step], dict[str, int | float]]:
    """Number of steps, the steps of the loss's loop, and the `work` of the reference.

    The reference is `model` before training: its log-probs are computed here, before any step.
    """
    sizes, preset, reference = run.config.dpo, run.config.preset, dict[str, int | float]()

    def schedule(lengths: list[int]) -> list[list[int]]:
        return preference.make_schedule(lengths, preset, sizes, seed)

    if preset.kind == KTO:
        completions = ref_logprobs.list_unpaired_completions(examples)
        batches = schedule([len(row.completion_ids) for row in examples])
        pairs = [kto.make_mismatched_groups(examples, numbers) for numbers in batches]
        work.add_counts(reference, ref_logprobs.count_read_passes([*chain(*pairs)]))
        logprobs = run.once(lambda: kto.compute_reference(model, examples, batches).all())
        ref = KtoReference(matched=logprobs[0], mismatched=logprobs[1:])
        steps = kto.train(model, examples, ref, batches, preset, sizes, run.resume())
    else:
        completions = ref_logprobs.list_pair_completions(examples)
        batches = schedule([len(pair.chosen_ids) + len(pair.rejected_ids) for pair in examples])
        logprobs = run.once(lambda: [ref_logprobs.compute(model, completions)])
        ref = logprobs[0].view(-1, 2)
        steps = preference.train(model, examples, ref, batches, preset, sizes, run.resume())
    work.add_counts(reference, ref_logprobs.count_passes(completions, run.config.compute))
    return len(batches), steps, reference
