import pytest
import torch
from tiny_checkpoints import CPU, FAMILIES, PAD, build, compute, load, random_ids

from stages.loops.old_logprobs import check_on_policy, frozen_logprobs
from stages.models.batch import Group, micro_batches
from stages.models.policy import completion_logprobs


def batches():
    generator = torch.Generator().manual_seed(0)
    groups = [
        Group(
            prompt_ids=random_ids(generator, 4),
            completions=[random_ids(generator, n) for n in (5, 2, 3)],
            indices=range(3 * i, 3 * i + 3),
        )
        for i in range(4)
    ]
    return list(micro_batches(groups, compute(max_tokens=40), PAD, CPU))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_before_any_update_the_ratio_is_exactly_1(family, checkpointing):
    model = load(family, gradient_checkpointing=checkpointing).train()
    for batch, old in zip(
        batches(), frozen_logprobs(model, batches(), temperature=0.7), strict=True
    ):
        logprobs, _ = completion_logprobs(model, batch, temperature=0.7)
        assert logprobs.requires_grad
        assert not old.requires_grad
        check_on_policy(logprobs, old)
    assert model.training


def test_dropout_left_on_is_found():
    model = build("gpt2").train()
    parts = batches()
    old = frozen_logprobs(model, parts, temperature=1.0)
    logprobs, _ = completion_logprobs(model, parts[0], temperature=1.0)
    with pytest.raises(AssertionError, match=r"moved by .* before any update"):
        check_on_policy(logprobs, old[0])


def test_another_temperature_is_found():
    model = load("llama")
    parts = batches()
    old = frozen_logprobs(model, parts, temperature=1.0)
    logprobs, _ = completion_logprobs(model, parts[0], temperature=0.9)
    with pytest.raises(AssertionError):
        check_on_policy(logprobs, old[0])
