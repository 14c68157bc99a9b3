"""Kahneman-Tversky optimisation against TRL's `KTOTrainer`."""

import pytest
from parity import ours, reference
from parity.characters import text, tokenizer
from parity.reference import Computed
from tiny_checkpoints import PAD, compute, load
from tiny_rollouts import OPTIM, make_pairs

from stages.loops import kto
from stages.loops.preference import PreferenceConfig, PreferencePreset
from stages.models.policy import Policy
from stages.optim import OptimConfig
from stages.records.preferences import UnpairedExample

ROWS = [
    (pair.prompt_ids, ids, desirable)
    for pair in make_pairs(3)
    for ids, desirable in ((pair.chosen_ids, True), (pair.rejected_ids, False))
]


def train(folder, policy_seed, reference_seed):
    from datasets import Dataset
    from trl import KTOConfig, KTOTrainer

    trainer = KTOTrainer(
        model=reference.model(policy_seed),
        ref_model=reference.model(reference_seed),
        args=KTOConfig(
            **reference.arguments(
                folder,
                per_device_train_batch_size=len(ROWS),
                max_steps=1,
                beta=0.3,
                desirable_weight=1.2,
                undesirable_weight=0.8,
            )
        ),
        train_dataset=Dataset.from_list(
            [
                {"prompt": text(prompt), "completion": text(ids), "label": desirable}
                for prompt, ids, desirable in ROWS
            ]
        ),
        processing_class=tokenizer(),
    )
    (step,) = reference.run(trainer)
    return step


def token_lists(batch, prefix):
    """Prompts and completions of TRL's batch, without padding."""
    names = (f"{prefix}input_ids", f"{prefix}attention_mask", f"{prefix}completion_mask")
    prompts, completions = [], []
    for ids, real, completion in zip(*(batch[name] for name in names), strict=True):
        prompts.append(ids[real.bool() & ~completion.bool()].tolist())
        completions.append(ids[completion.bool()].tolist())
    return prompts, completions


def our_step(rows, schedule, reference_seed, policy_seed, monkeypatch):
    """One step of our loop; also its reference point."""
    frozen = load("llama", reference_seed)
    ref = kto.compute_reference(Policy(frozen, compute(), PAD), rows, schedule)
    model = load("llama", policy_seed)
    seen = ours.watch(monkeypatch, kto, model)
    config = PreferenceConfig(
        num_epochs=1, batch_size=len(rows), num_checkpoints=0, optim=OptimConfig(**OPTIM)
    )
    numbers = {"beta": 0.3, "desirable_weight": 1.2, "undesirable_weight": 0.8}
    loss = PreferencePreset.model_validate({"kind": "kto", **numbers})
    (step,) = kto.train(Policy(model, compute(), PAD), rows, ref, schedule, loss, config)
    computed = Computed(loss=step.metrics["loss/preference"], gradients=seen[0])
    return computed, step.metrics["kl/reference_point"]


@pytest.mark.parametrize(("policy_seed", "reference_seed"), [(0, 1), (1, 0)])
def test_kto(policy_seed, reference_seed, tmp_path, monkeypatch, agree):
    step = train(tmp_path, policy_seed, reference_seed)
    (inputs,) = step.batches
    prompts, completions = token_lists(inputs, "")
    rows = [
        UnpairedExample(
            id=str(number),
            prompt_ids=prompt,
            completion_ids=ids,
            desirable=bool(desirable),
        )
        for number, (prompt, ids, desirable) in enumerate(
            zip(prompts, completions, inputs["label"], strict=True)
        )
    ]
    # Read backwards, the completion after a row is the one before it, which TRL takes.
    schedule = [list(reversed(range(len(rows))))]
    groups = kto.make_mismatched_groups(rows, schedule[0])
    assert token_lists(inputs, "KL_") == (
        [group.prompt_ids for group in reversed(groups)],
        [group.completions[0] for group in reversed(groups)],
    )
    result, point = our_step(rows, schedule, reference_seed, policy_seed, monkeypatch)
    # The two cases are each other's mirror image: an estimate below 0 counts as 0.
    assert (point == 0) == (policy_seed == 0)
    agree(
        "KTO",
        f"`loops/kto.train`, one step, reference point {'above' if point else 'clamped to'} 0",
        result,
        step.computed,
        note="TRL mismatches a prompt with the completion before it, ours with the one after it, "
        "and not where both are of one problem",
    )
