"""Four turns in a session against their tokens in one turn, in the process's own time."""

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
                      "num_attention_heads": 3, "vocab_size": 900}),
    "llama": (2, {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 6,
                  "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 8000}),
}  # fmt: skip


def seconds(sampler, starts, num_turns, length):
    """Time of turns of `length` tokens, `REPLY` behind each but the last."""
    begin = time.process_time()
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
    return time.process_time() - begin


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_four_turns_cost_at_most_a_third_more_than_their_tokens_in_one(size):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    num_prompts, shape = SIZES[size]
    config = LlamaConfig(**shape, max_position_embeddings=256, tie_word_embeddings=True)
    model = LlamaForCausalLM._from_config(config, attn_implementation="sdpa")
    model = policy.prepare_model(model, COMPUTE, CPU)
    sampler = TransformersSampler(
        model=model, eos_ids=frozenset(), pad_id=PAD, max_batch=COMPUTE.max_batch
    )
    starts = prompts(num_prompts)
    ratios = []
    for _ in range(6):
        one = seconds(sampler, starts, 1, NUM_TURNS * LENGTH)
        ratios.append(seconds(sampler, starts, NUM_TURNS, LENGTH) / one)
    # Without the cache more than twice; the replies alone are a third more tokens to read.
    assert median(ratios[1:]) < 1.3, ratios
