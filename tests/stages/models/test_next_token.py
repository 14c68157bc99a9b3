import math

import pytest
import tiny_checkpoints
import torch

from stages.chooser import NextToken
from stages.models.next_token import TransformersNextToken

PROMPTS = [[3, 4, 5], [6], [7, 8, 9, 10, 11, 12], [3, 4, 5, 6]]


def reader(model, max_tokens: int = 4096) -> TransformersNextToken:
    return TransformersNextToken(model=model, pad_id=tiny_checkpoints.PAD, max_tokens=max_tokens)


@pytest.mark.parametrize("family", tiny_checkpoints.FAMILIES)
@pytest.mark.parametrize("max_tokens", [1, 8, 4096])
def test_what_it_reads_is_the_model_s_own_distribution_whatever_the_batches(family, max_tokens):
    model = tiny_checkpoints.load(family)
    found = reader(model, max_tokens).next_logprobs(PROMPTS, [5, 2, 31])
    for prompt, row in zip(PROMPTS, found, strict=True):
        with torch.no_grad():
            logprobs = model(torch.tensor([prompt])).logits[0, -1].log_softmax(-1)
        assert row == pytest.approx(logprobs[[5, 2, 31]].tolist(), abs=1e-5)


def test_all_tokens_together_have_probability_one():
    model = tiny_checkpoints.load("llama")
    (row,) = reader(model).next_logprobs([[3, 4]], range(tiny_checkpoints.VOCAB))
    assert math.fsum(math.exp(value) for value in row) == pytest.approx(1.0, abs=1e-5)


def test_it_is_a_reader_and_leaves_the_model_as_it_was():
    model = tiny_checkpoints.load("llama").train()
    assert isinstance(reader(model), NextToken)
    reader(model).next_logprobs([[3]], [1])
    assert model.training
    assert reader(model).next_logprobs([], [1]) == []


def test_an_empty_prompt_and_one_without_positions_are_refused():
    model = tiny_checkpoints.load("llama")
    with pytest.raises(ValueError, match="empty"):
        reader(model).next_logprobs([[]], [1])
    with pytest.raises(ValueError, match=r"128 positions.*max_prompt_tokens"):
        reader(model).next_logprobs([[3] * 129], [1])
