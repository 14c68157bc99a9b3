import pytest
import torch
from tiny_checkpoints import CPU, PAD, compute, load
from torch.utils.flop_counter import FlopCounterMode

from stages.algorithms import flops
from stages.algorithms.flops import Matrices, Passes
from stages.models import row_policy, size
from stages.models.batch import Group, micro_batches
from stages.models.policy import Policy
from stages.models.row_policy import LoraConfig

PRODUCTS = {"mm", "addmm", "bmm"}


def test_a_hand_worked_model():
    # 100 numbers of blocks, 30 of the output matrix; 10 positions, 4 of which are predicted from
    whole = Matrices(body=100, output=30, trained_body=100, trained_output=30)
    seen = Passes(positions=10, outputs=4)
    assert flops.count_forward_flops(whole, seen) == 2 * (1000 + 120)
    assert flops.count_training_flops(whole, seen) == 6 * (1000 + 120)
    # 100 numbers of which 8 are adapters: 4 a position for all, 2 more for those 8
    adapted = Matrices(body=100, output=30, trained_body=8, trained_output=0)
    assert flops.count_training_flops(adapted, seen) == 4 * (1000 + 120) + 2 * 80


def counted(model, groups, *, backward):
    """What torch counts in the matrix products of a pass (attention is not one of its names)."""
    (batch,) = micro_batches(groups, compute(), PAD, CPU)
    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(backward):
        logprobs, *_ = Policy(model)(batch, temperature=1.0)
        if backward:
            logprobs.sum().backward()
    by_name = {str(op).partition(".")[2]: n for op, n in counter.flop_counts["Global"].items()}
    passes = Passes(positions=batch.num_tokens, outputs=int(batch.mask.sum()))
    return sum(n for op, n in by_name.items() if op in PRODUCTS), passes


# Rows of one length: torch counts padding, too.
GROUPS = [Group(prompt_ids=[5] * 6, completions=[[7] * 5], indices=[i]) for i in range(3)]


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"])
@pytest.mark.parametrize("backward", [False, True])
def test_the_operations_are_those_that_torch_counts(family, backward):
    model = load(family)
    result, passes = counted(model, GROUPS, backward=backward)
    predict = flops.count_training_flops if backward else flops.count_forward_flops
    assert predict(size.count_matrices(model), passes) == result


def test_a_shared_prompt_is_one_prompt():
    model = load("llama")
    shared = [Group(prompt_ids=[5] * 6, completions=[[7] * 5, [8] * 5], indices=[0, 1])]
    result, passes = counted(model, shared, backward=False)
    assert passes == Passes(positions=16, outputs=10)
    assert flops.count_forward_flops(size.count_matrices(model), passes) == result


def test_frozen_matrices_have_no_gradient_of_their_own():
    model = load("llama")
    row_policy.add_adapters(model, LoraConfig(rank=2, alpha=4), 0)
    result, passes = counted(model, GROUPS, backward=True)
    predicted = flops.count_training_flops(size.count_matrices(model), passes)
    # The first block's input is the embedding of frozen weights: q, k and v send nothing back.
    first = model.base_model.layers[0].self_attn
    spared = sum(m.base_layer.weight.numel() for m in (first.q_proj, first.k_proj, first.v_proj))
    spared += sum(
        m.lora_A["default"].weight.numel() for m in (first.q_proj, first.k_proj, first.v_proj)
    )
    assert predicted - 2 * spared * passes.positions == result
