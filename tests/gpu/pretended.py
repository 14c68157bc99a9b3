"""The real shapes on tensors without numbers: what needs no GPU to be measured."""

from dataclasses import replace

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from stages.algorithms.logprobs import token_logprobs
from stages.models.forward_check import compute_hidden_states, get_output_layer
from tests.gpu.measurements import PROMPT, Measurement, _batch, _memory
from tests.gpu.scales import COMPUTE, Scale, build
from tests.live_memory import LiveMemory


def memory(scale: Scale) -> list[Measurement]:
    """Live bytes of SFT's forward and backward pass with weights and moments held."""
    cpu = torch.device("cpu")
    real = _batch(scale, [scale.sft_tokens], cpu)
    counted = real.token_ids[real.mask]
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        model = build(scale.trained).train()
        if COMPUTE.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        # AdamW's two moments; a step has one row, so gradients come with its backward pass.
        moments = [torch.zeros_like(p) for p in model.parameters() for _ in range(2)]
        held = [*model.parameters(), *model.buffers(), *moments]
        batch = replace(real, input_ids=mode.from_tensor(real.input_ids))
        ids = mode.from_tensor(counted)
        places = mode.from_tensor(real.predict_index)
        with LiveMemory(held) as live, torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            states = compute_hidden_states(model, batch)[places]
            result, _ = token_logprobs(
                states, get_output_layer(model), ids, temperature=1.0, entropy=False
            )
            (-result.sum()).backward()
    assert len(ids) == scale.sft_tokens - PROMPT
    name = "peak memory of SFT on fake tensors, off the plan"
    return [replace(_memory(live.peak, scale), name=name)]
