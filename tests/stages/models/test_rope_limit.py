import pytest
import torch
from collated import collate
from tiny_checkpoints import BLOCKS, CPU, PAD, build, compute
from transformers import AutoConfig, AutoModelForCausalLM

from stages.engines.transformers import TransformersSampler
from stages.models import policy, rope_limit
from stages.models.batch import Group, make_batch
from stages.models.policy import Policy

HALF = 2  # of four numbers in a head, each pair has a frequency
ROPES = {
    "longrope": {
        "rope_type": "longrope", "rope_theta": 100.0, "original_max_position_embeddings": 12,
        "short_factor": [1.0] * HALF, "long_factor": [4.0] * HALF,
    },
    "dynamic": {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 4.0},
}  # fmt: skip
LENGTHS = {"longrope": 128, "dynamic": 12}


def tiny(rope: str):
    torch.manual_seed(0)
    numbers = {
        "max_position_embeddings": LENGTHS[rope],
        "original_max_position_embeddings": 12,
        "rope_parameters": dict(ROPES[rope]),
    }
    config = AutoConfig.for_model("phi3" if rope == "longrope" else "llama", **BLOCKS | numbers)
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")


def group(prompt: int, completion: int):
    ids = [2 + i % 20 for i in range(completion)]
    return Group(prompt_ids=list(range(3, 3 + prompt)), completions=[ids], indices=[0])


def logprobs(model, groups):
    batch = collate(groups, 0, PAD, CPU)
    return Policy(model)(batch, temperature=1.0)[0]


@pytest.mark.parametrize("rope", ROPES)
def test_unchecked_a_long_neighbour_changes_the_log_probs_of_a_short_row(rope):
    model = tiny(rope).eval()
    short = group(4, 6)
    alone, beside = logprobs(model, [short])[0, :6], logprobs(model, [short, group(8, 9)])[0, :6]
    assert (alone - beside).abs().max() > 1e-3


@pytest.mark.parametrize("rope", ROPES)
def test_texts_are_taken_up_to_where_nothing_changes_and_refused_beyond(rope):
    model = policy.prepare_model(tiny(rope), compute(), CPU)
    short, whole = group(4, 6), group(5, 7)
    beside = logprobs(model, [short, whole])[0, :6]
    torch.testing.assert_close(logprobs(model, [short])[0, :6], beside, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"at most 12 tokens, found one of 13"):
        logprobs(model, [short, group(6, 7)])


@pytest.mark.parametrize("rope", ROPES)
def test_packed_rows_may_be_longer_since_positions_start_anew(rope):
    model = policy.prepare_model(tiny(rope), compute(), CPU)
    batch = make_batch([[group(4, 6), group(5, 7)]], PAD, CPU)
    assert batch.input_ids.shape == (1, 22)
    result, *_ = Policy(model)(batch, temperature=1.0)
    torch.testing.assert_close(result, logprobs(model, [group(4, 6), group(5, 7)]))


@pytest.mark.parametrize("rope", ROPES)
def test_the_sampler_refuses_before_it_draws(rope):
    model = policy.prepare_model(tiny(rope), compute(), CPU)
    sampler = TransformersSampler(model=model, eos_ids=frozenset(), pad_id=PAD, max_batch=8)
    (drawn,) = sampler.sample([[3, 4]], [0], num_samples=1, temperature=1.0, max_new_tokens=10)
    assert len(drawn[0].token_ids) == 10
    with pytest.raises(ValueError, match="take 13 tokens, the engine has 12 positions"):
        sampler.sample([[3, 4]], [0], num_samples=1, temperature=1.0, max_new_tokens=11)


def test_other_rotary_positions_have_no_limit():
    assert rope_limit.get_rope_limit(build("llama").config) is None
    assert rope_limit.get_rope_limit(build("gpt2").config) is None
    scaled = {"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0}
    assert rope_limit.get_rope_limit(AutoConfig.for_model("llama", rope_parameters=scaled)) is None


def test_the_strictest_of_several_types_of_layer_counts():
    config = AutoConfig.for_model("gemma3_text", max_position_embeddings=64)
    config.rope_parameters = {
        "full_attention": dict(ROPES["dynamic"]),
        "sliding_attention": dict(ROPES["longrope"]),
    }
    assert rope_limit.get_rope_limit(config) == 12
