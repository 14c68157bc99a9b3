"""Our side: the functions that the loops are made of, on given token ids and weights."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from parity.rows import Computed, Weights
from tiny_checkpoints import CPU, PAD, compute, gradients
from torch import Tensor
from transformers import PreTrainedModel

from stages.loops import state
from stages.loops.work import Step
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


def take_step(
    monkeypatch: pytest.MonkeyPatch, model: PreTrainedModel, steps: Iterator[Step], name: str
) -> tuple[Computed, Step]:
    """The one step of a loop: its loss, by its name among the metrics, and `model`'s gradients."""
    seen: list[Weights] = []
    update = state.step_optimizer

    def spy(*args: Any) -> dict[str, float]:
        seen.append(gradients(model))
        return update(*args)

    with monkeypatch.context() as patch:
        patch.setattr(state, "step_optimizer", spy)
        (step,) = steps
    return Computed(loss=step.metrics[name], gradients=seen[0]), step
