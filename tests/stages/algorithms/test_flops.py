"""Counted operations against those that torch counts in the same passes."""

import pytest
import torch
from tiny_checkpoints import CPU, PAD, compute, load
from torch.utils.flop_counter import FlopCounterMode

from stages.algorithms import flops
from stages.algorithms.flops import Passes
from stages.models import size
from stages.models.batch import Group, micro_batches
from stages.models.policy import Policy

# Rows of one length: torch counts padding, too.
ROWS = [Group(prompt_ids=[5] * 6, completions=[[7] * 5], indices=[i]) for i in range(3)]
SHARED = [Group(prompt_ids=[5] * 6, completions=[[7] * 5, [8] * 5], indices=[0, 1])]


def count(model, groups, *, backward):
    """Operations of matrix products (attention's are named otherwise), and what passed."""
    (batch,) = micro_batches(groups, compute(), PAD, CPU)
    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(backward):
        logprobs, *_ = Policy(model)(batch, temperature=1.0)
        if backward:
            logprobs.sum().backward()
    by_name = {str(op).partition(".")[2]: n for op, n in counter.flop_counts["Global"].items()}
    passes = Passes(positions=batch.num_tokens, outputs=int(batch.mask.sum()))
    return sum(n for op, n in by_name.items() if op in ("mm", "addmm", "bmm")), passes


@pytest.mark.parametrize("groups", [ROWS, SHARED], ids=["rows", "shared_prompt"])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"])
@pytest.mark.parametrize("backward", [False, True])
def test_operations_are_those_that_torch_counts(family, groups, backward):
    model = load(family)
    expected, passes = count(model, groups, backward=backward)
    predict = flops.count_training_flops if backward else flops.count_forward_flops
    assert predict(size.count_matrices(model), passes) == expected
    assert groups is ROWS or passes == Passes(positions=16, outputs=10)
