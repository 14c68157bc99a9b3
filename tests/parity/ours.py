"""Our side: the functions that the loops are made of, on given token ids and weights."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from parity.rows import Computed, Weights
from tiny_checkpoints import CPU, PAD, compute, gradients
from torch import Tensor
from transformers import PreTrainedModel

from stages.loops import state
from stages.models.batch import Batch, Group, micro_batches


def one_batch(prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> Batch:
    """Everything in one micro-batch, each completion in a row of its own, in order."""
    groups = [
        Group(prompt_ids=prompt, completions=[ids], indices=[i])
        for i, (prompt, ids) in enumerate(zip(prompts, completions, strict=True))
    ]
    (batch,) = micro_batches(groups, compute(row_tokens=0), PAD, CPU)
    return batch


def computed(
    model: PreTrainedModel, weights: Weights, loss: Callable[[PreTrainedModel], Tensor]
) -> Computed:
    """The loss and its gradients with these weights in `model`."""
    model.load_state_dict(weights)
    model.zero_grad(set_to_none=True)
    value = loss(model)
    value.backward()
    return Computed(loss=value.item(), gradients=gradients(model))


def watch(monkeypatch: pytest.MonkeyPatch, loop: Any, model: PreTrainedModel) -> list[Weights]:
    """The gradients of `model` at each optimizer step that `loop` takes, as it takes them."""
    seen: list[Weights] = []
    # A loop that has no optimizer step of its own leaves it to `optimise`.
    loop = loop if hasattr(loop, "step_optimizer") else state
    update = loop.step_optimizer

    def spy(*args: Any) -> dict[str, float]:
        seen.append(gradients(model))
        return update(*args)

    monkeypatch.setattr(loop, "step_optimizer", spy)
    return seen
