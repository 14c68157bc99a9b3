"""Four turns in a session against their tokens in one turn.

The test counts positions, which no load moves. `python -m tests.benchmarks.test_turns` prints
ratios of seconds; the replies alone are a third more positions.
"""

import contextlib
import time
from statistics import median

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from stages.engines.transformers import TransformersSampler
from stages.models import policy
from tests.benchmarks.ours import COMPUTE, CPU
from tests.benchmarks.setting import PAD, prompts

NUM_TURNS, LENGTH, SAMPLES, REPLY = 4, 16, 8, [7] * 8
SIZES = {
    # The embedded model, and one of 12.5 million parameters.
    "embedded": (16, {"hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 2,
                      "num_attention_heads": 3, "vocab_size": 1000}),
    "llama": (2, {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 6,
                  "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 8000}),
}  # fmt: skip


def play(sampler, starts, num_turns, length):
    """Turns of `length` tokens, `REPLY` behind each but the last."""
    texts, num_samples = starts, SAMPLES
    with sampler.session() if num_turns > 1 else contextlib.nullcontext():
        for turn in range(num_turns):
            groups = sampler.sample(
                texts, [1000 * turn + i for i in range(len(texts))], num_samples=num_samples,
                temperature=1.0, max_new_tokens=length,
            )  # fmt: skip
            texts = [
                [*text, *sample.token_ids, *REPLY]
                for text, group in zip(texts, groups, strict=True)
                for sample in group
            ]
            num_samples = 1


def sampler_and_starts(size):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    num_prompts, shape = SIZES[size]
    config = LlamaConfig(**shape, max_position_embeddings=256, tie_word_embeddings=True)
    model = LlamaForCausalLM._from_config(config, attn_implementation="sdpa")
    model = policy.prepare_model(model, COMPUTE, CPU)
    sampler = TransformersSampler(
        model=model, eos_ids=frozenset(), pad_id=PAD, max_batch=COMPUTE.max_batch
    )
    return sampler, prompts(num_prompts)


def num_positions(sampler, starts, num_turns, length):
    """Positions that the model computes, pads included."""
    total = 0

    def count(_, args, kwargs):
        nonlocal total
        total += (kwargs["input_ids"] if "input_ids" in kwargs else args[0]).numel()

    hook = sampler.model.register_forward_pre_hook(count, with_kwargs=True)
    play(sampler, starts, num_turns, length)
    hook.remove()
    return total


@pytest.mark.parametrize("size", SIZES)
def test_four_turns_compute_their_tokens_and_the_replies_once(size):
    sampler, starts = sampler_and_starts(size)
    one_turn = num_positions(sampler, starts, 1, NUM_TURNS * LENGTH)
    turns = num_positions(sampler, starts, NUM_TURNS, LENGTH)
    # Without the cache each turn would compute the prompt and all earlier turns again.
    assert turns - one_turn == (NUM_TURNS - 1) * len(REPLY) * SAMPLES * len(starts)


def seconds(sampler, starts, num_turns, length):
    begin = time.process_time()
    play(sampler, starts, num_turns, length)
    return time.process_time() - begin


if __name__ == "__main__":
    for size in SIZES:
        sampler, starts = sampler_and_starts(size)
        ratios = [
            seconds(sampler, starts, NUM_TURNS, LENGTH)
            / seconds(sampler, starts, 1, NUM_TURNS * LENGTH)
            for _ in range(6)
        ]
        print(f"{size}: {median(ratios[1:]):.2f} times the CPU seconds of one turn, {ratios[1:]}")
