"""Kahneman-Tversky optimisation against TRL's `KTOTrainer`."""

import pytest
import torch
from parity import ours, reference
from parity.characters import text, tokenizer
from tiny_checkpoints import load
from tiny_rollouts import make_pairs

from stages.algorithms.losses.preference.kto import kto_reference_point
from stages.loops.choices.preference_loss import KtoLoss
from stages.loops.ref_logprobs import sequence_logprobs

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


@pytest.mark.parametrize(("policy_seed", "reference_seed"), [(0, 1), (1, 0)])
def test_kto(policy_seed, reference_seed, tmp_path, agree):
    step = train(tmp_path, policy_seed, reference_seed)
    (inputs,) = step.batches
    prompts, completions = token_lists(inputs, "")
    same_prompts, mismatched = token_lists(inputs, "KL_")
    assert same_prompts == prompts
    assert sorted(mismatched) == sorted(completions)
    batch, shifted = ours.one_batch(prompts, completions), ours.one_batch(prompts, mismatched)
    desirable = inputs["label"].bool()[torch.tensor(batch.indices)]
    kto = KtoLoss(kind="kto", beta=0.3, desirable_weight=1.2, undesirable_weight=0.8)
    frozen = load("llama", reference_seed)
    points = []

    def loss(policy):
        with torch.no_grad():
            point = kto_reference_point(
                sequence_logprobs(policy, shifted), sequence_logprobs(frozen, shifted)
            )
            ref = sequence_logprobs(frozen, batch)
        points.append(point.item())
        return kto(sequence_logprobs(policy, batch), ref, desirable, point)[0].mean()

    found = ours.computed(load("llama"), step.weights, loss)
    # The two cases are each other's mirror image: an estimate below 0 counts as 0.
    assert (points[0] == 0) == (policy_seed == 0)
    agree(
        "KTO",
        f"reference point {'above' if points[0] else 'clamped to'} 0",
        found,
        step.computed,
        note="on TRL's mismatched pairs: each prompt with the completion before it in the batch; "
        "ours takes the one after it",
    )
