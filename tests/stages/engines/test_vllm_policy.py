"""vLLM beside a policy that learns, against the trainer's own log-probs."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from several_processes import Trial, in_processes, tokenizer
from tiny_checkpoints import BLOCKS, CPU, compute, plain_logprobs
from transformers import PreTrainedModel
from vllm_installed import EOS, VOCAB, build_llama, needs_vllm

from stages.engines import vllm_policy
from stages.engines.transformers import TransformersSampler
from stages.engines.vllm_policy import PolicySampler, checkpoint_weights
from stages.models import policy as policies

pytestmark = [needs_vllm, pytest.mark.vllm]
LONG = [1 + n % 90 for n in range(150)]
"""More than a block of vLLM's cache, so that its keys and values are kept."""
PROMPTS = [[1 + n, 2 + 2 * n, 50] for n in range(12)] + [LONG]
SAMPLING = {"num_samples": 3, "temperature": 1.3, "max_new_tokens": 6}


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def sampler(request, tmp_path_factory):
    folder, numerics = tmp_path_factory.mktemp("policy"), compute(row_tokens=0)
    model = build_llama(max_position_embeddings=192, tie_word_embeddings=request.param)
    model.save_pretrained(folder)
    made = PolicySampler(
        policy=policies.load_policy(folder, numerics, CPU), source=(folder, None),
        compute=numerics, max_length=160, num_trained=1,
    )  # fmt: skip
    yield made
    made.close()


def learn(model: PreTrainedModel, num_steps: int = 3) -> None:
    """Optimizer steps that change what the model says."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=5e-3, fused=True)
    rows = torch.randint(1, VOCAB, (8, 16), generator=torch.Generator().manual_seed(num_steps))
    for _ in range(num_steps):
        model(input_ids=rows, labels=rows).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def gap(model: PreTrainedModel, found) -> float:
    """Mean absolute difference from the model's own log-probs."""
    with torch.no_grad():
        differences = [
            torch.tensor(sample.logprobs)
            - plain_logprobs(model, prompt, sample.token_ids, SAMPLING["temperature"])
            for prompt, samples in zip(PROMPTS, found, strict=True)
            for sample in samples
        ]
    return torch.cat(differences).abs().mean().item()


def test_a_turn_goes_on_from_the_prefix_cache_and_never_from_that_of_other_weights(
    sampler: PolicySampler,
):
    settings = {"num_samples": 8, "temperature": 1.3, "max_new_tokens": 12}
    (samples,) = sampler.sample([LONG[:122]], [0], **settings)
    longest = max(samples, key=lambda one: len(one.token_ids))
    text = [*LONG[:122], *longest.token_ids, 5, 6]
    # A full block of 128 tokens, of which the last were sampled.
    assert num_cached(sampler, text) == 128
    learn(sampler.policy)
    sampler.sleep()
    sampler.sample(PROMPTS[:1], [0], **settings)
    assert num_cached(sampler, text) == 0


def num_cached(sampler: PolicySampler, text: list[int]) -> int:
    """Tokens of a prompt that vLLM takes from its prefix cache."""
    (output,) = sampler._engine._generate([text], [{"temperature": 0.0, "max_tokens": 1}])
    return output.num_cached_tokens


@pytest.mark.parametrize("rank", [0, 4])
def test_what_is_sampled_follows_the_policy_through_optimizer_steps(
    rank: int, sampler: PolicySampler, monkeypatch: pytest.MonkeyPatch
):
    """Adapters are merged on the way. The last test of a sampler, since they stay."""
    model, seeds, refreshes = sampler.policy, list(range(len(PROMPTS))), []

    def watched(policy: PreTrainedModel):  # each refresh asks for the policy's weights
        refreshes.append(policy)
        return checkpoint_weights(policy)

    monkeypatch.setattr(vllm_policy, "checkpoint_weights", watched)
    if rank:
        get_peft_model(model, LoraConfig(r=rank, lora_alpha=16, target_modules="all-linear",
                                         init_lora_weights=False))  # fmt: skip
    sampler.sleep()
    frozen = {name: weight.clone() for name, weight in model.named_parameters()
              if not weight.requires_grad}  # fmt: skip
    for number in range(1, 4):
        result = sampler.sample(PROMPTS, seeds, **SAMPLING)
        assert gap(model, result) < 2e-5
        assert result == sampler.sample(PROMPTS, seeds, **SAMPLING), "the same weights and seeds"
        assert len(refreshes) == number  # one for both calls
        learn(model)
        for _ in range(2):
            sampler.sleep()
        assert gap(model, result) > 0.05, "the steps have changed nothing"
    weights = dict(model.named_parameters())
    assert all(torch.equal(weights[name], frozen[name]) for name in frozen)
    settings = SAMPLING | {"num_samples": 1, "temperature": 0.0}
    reference = TransformersSampler(model=model, eos_ids=frozenset([EOS]), pad_id=EOS, max_batch=64)
    ours, theirs = (item.sample(PROMPTS, seeds, **settings) for item in (sampler, reference))
    same = [a[0].token_ids == b[0].token_ids for a, b in zip(ours, theirs, strict=True)]
    assert sum(same) >= len(PROMPTS) - 1


@pytest.mark.weekly
@pytest.mark.parametrize("rank", [0, 4])
def test_in_two_processes_each_has_an_engine_and_the_curves_are_those_of_one(rank, tmp_path):
    shape = {"hidden_size": 64, "num_attention_heads": 2, "head_dim": 32}
    build_llama(**BLOCKS | shape).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    trial = Trial("grpo", rank=rank, engine="vllm", path=tmp_path, max_tokens=24)
    actual, expected = (in_processes(number, trial, fresh=True) for number in (2, 1))
    for step, other in zip(actual["history"], expected["history"], strict=True):
        # vLLM batches other rows together, and its log-probs round so.
        assert step == pytest.approx(other, rel=1e-4, abs=1e-4)
        assert step["sampling/logprob_gap"] < 2e-5
