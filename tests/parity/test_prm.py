"""The loss of step labels against TRL 1.9.2, the last but experimental `PRMTrainer`.

TRL 1.9.2 runs in a process of its own (prm_trl_1_9.py) and writes what it computed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from parity import ours, steps, trl_1_9
from parity.reference import Computed, Weights
from parity.steps import LONGEST, MICRO_BATCHES, TENSORS, Solution, solutions
from parity.trl_1_9 import TRL, needs_trl_1_9
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from stages.algorithms.losses.reward_and_value_losses import step_label_loss
from stages.models.forward_check import compute_hidden_states

pytestmark = needs_trl_1_9
WHOLE = 1024
TokenRow = tuple[list[int], list[int]]
"""Token ids without padding, and the label of each: -100 where there is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One optimizer step of TRL's: the weights before it, and the rows of each micro-batch."""

    computed: Computed
    weights: Weights
    micro_batches: list[list[TokenRow]]

    @staticmethod
    def read(path: Path) -> "Step":
        parts: dict[str, Weights] = {"loss": {}, "weights": {}, "gradients": {}, "batches": {}}
        for key, value in load_file(path).items():
            kind, _, name = key.partition("/")
            parts[kind][name] = value
        number = len(parts["batches"]) // len(TENSORS)
        batches = [[parts["batches"][f"{i}/{name}"] for name in TENSORS] for i in range(number)]
        return Step(
            computed=Computed(loss=parts["loss"][""].item(), gradients=parts["gradients"]),
            weights=parts["weights"],
            micro_batches=[
                [
                    (ids[real.bool()].tolist(), labels[real.bool()].tolist())
                    for ids, real, labels in zip(*batch, strict=True)
                ]
                for batch in batches
            ],
        )


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Step]:
    """The step of a case of `steps.CASES`."""
    folder = tmp_path_factory.mktemp("prm")
    trl_1_9.run("parity.prm_trl_1_9", str(folder))
    return lambda case: Step.read(folder / f"{case}.safetensors")


def token_row(solution: Solution, longest: int) -> TokenRow:
    """Our own token ids and labels of a solution, cut at `longest` tokens."""
    completion = solution.completion_ids()
    labels = [-100] * len(completion)
    for end, label in zip(solution.ends(), solution.labels, strict=True):
        labels[end] = label
    start = solution.prompt_ids
    return [*start, *completion][:longest], [*[-100] * len(start), *labels][:longest]


def split(step: Step, longest: int = WHOLE) -> list[list[Solution]]:
    """The solutions of each of TRL's micro-batches, whose rows must be ours."""
    known = [(token_row(solution, longest), solution) for solution in solutions()]
    parts = []
    for rows in step.micro_batches:
        parts.append([])
        for row in rows:
            (place,) = (i for i, (expected, _) in enumerate(known) if expected == row)
            parts[-1].append(known.pop(place)[1])
    assert not known
    return parts


def step_losses(model: PreTrainedModel, rows: Sequence[Solution], longest: int = WHOLE) -> Tensor:
    """The head at the last token of each step that is within `longest` tokens, and the loss."""
    batch = ours.one_batch([r.prompt_ids for r in rows], [r.completion_ids() for r in rows])
    positions, labels = [], []
    for index, last in zip(batch.indices, batch.last_index.tolist(), strict=True):
        row = rows[index]
        first = last - (len(row.completion_ids()) - 1)
        for end, label in zip(row.ends(), row.labels, strict=True):
            if len(row.prompt_ids) + end < longest:
                positions.append(first + end)
                labels.append(label)
    scores = model.score(compute_hidden_states(model, batch)[positions])
    return step_label_loss(scores, torch.tensor(labels, dtype=scores.dtype))


def test_one_step(found, agree):
    step = found("whole")
    (rows,) = split(step)
    labels = [label for solution in rows for label in solution.labels]
    assert set(labels) == {0, 1}
    agree(
        "process reward model",
        "`losses/reward_and_value_losses`, one step, mean over labelled tokens",
        ours.computed(steps.step_model(), step.weights, lambda m: step_losses(m, rows).mean()),
        step.computed,
        note="TRL tokenizes prompt, steps and separator apart and puts the label on the "
        "separator's last token, as here; its `disable_dropout` reaches the head's dropout, "
        "not the attention's (first row)",
        trl=TRL,
    )


def test_two_micro_batches(found, agree):
    step = found("micro_batches")
    parts = split(step)
    assert len(parts) == MICRO_BATCHES
    assert len({sum(len(row.steps) for row in part) for part in parts}) > 1

    agree(
        "process reward model",
        "`losses/reward_and_value_losses`, two micro-batches",
        ours.computed(
            steps.step_model(),
            step.weights,
            lambda m: sum(step_losses(m, part).mean() for part in parts),
        ),
        step.computed,
        note="the sum of the micro-batches' means, undivided, which grows with their number: the "
        "step's number of labels does not reach the loss of transformers' token classifiers; "
        "ours is a mean over the step's labels, whatever the split",
        trl=TRL,
    )


def test_truncated(found, agree):
    step = found("truncated")
    (rows,) = split(step, LONGEST)
    kept = [sum(label >= 0 for label in labels) for _, labels in step.micro_batches[0]]
    assert sum(kept) < sum(len(row.steps) for row in rows)
    agree(
        "process reward model",
        f"`losses/reward_and_value_losses`, `max_length` {LONGEST}",
        ours.computed(
            steps.step_model(), step.weights, lambda m: step_losses(m, rows, LONGEST).mean()
        ),
        step.computed,
        note="TRL cuts the end of a solution and its labels (1024 tokens by default); "
        "where no label is left, its loss is NaN and ours a ValueError",
        trl=TRL,
    )


def test_a_batch_without_labels(found):
    step = found("without_labels")
    assert all(label == -100 for _, labels in step.micro_batches[0] for label in labels)
    assert math.isnan(step.computed.loss)
    with pytest.raises(ValueError, match="at least one labelled step"):
        step_losses(steps.step_model(), solutions(), 3)
