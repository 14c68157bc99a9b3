"""vLLM beside a policy that learns, against the trainer's own log-probs."""

import multiprocessing
import os

import presets
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from several_processes import Trial, in_processes, tokenizer
from tiny_checkpoints import BLOCKS, CPU, compute, plain_logprobs
from tiny_rollouts import OPTIM, decode
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)
from vllm_installed import needs_vllm

from stages.engines import vllm_policy
from stages.engines.transformers import TransformersSampler
from stages.engines.vllm_policy import PolicySampler, checkpoint_weights
from stages.loops import rl, rollouts
from stages.loops.method import GroupRlConfig, Settings
from stages.loops.rollouts import RlModels, Task
from stages.models import policy as policies
from stages.models.policy import Policy
from stages.records.problems import Prompt
from stages.rewards.completion_rewards import CompletionRewards

EOS, VOCAB = 0, 101
LONG = [1 + n % 90 for n in range(150)]
"""More than a block of vLLM's cache, so that its keys and values are kept."""
PROMPTS = [[1 + n, 2 + 2 * n, 50] for n in range(12)] + [LONG]
SAMPLING = {"num_samples": 3, "temperature": 1.3, "max_new_tokens": 6}


def start(folder, *, tied: bool) -> PolicySampler:
    """A random model with grouped keys, whose distributions are far from flat."""
    torch.manual_seed(0)
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=192,
            eos_token_id=EOS, bos_token_id=None, pad_token_id=EOS, tie_word_embeddings=tied,
            initializer_range=0.1,
        )
    ).save_pretrained(folder)  # fmt: skip
    return PolicySampler(
        policy=policies.load_policy(folder, compute(row_tokens=0), CPU),
        source=(folder, None),
        compute=compute(row_tokens=0),
        max_length=160,
        num_trained=1,
    )


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def sampler(request, tmp_path_factory):
    made = start(tmp_path_factory.mktemp("policy"), tied=request.param)
    yield made
    made.close()


@pytest.fixture
def refreshes(monkeypatch: pytest.MonkeyPatch) -> list:
    """Grows with each refresh, which asks for the policy's weights."""
    result = []

    def watched(model: PreTrainedModel):
        result.append(model)
        return checkpoint_weights(model)

    monkeypatch.setattr(vllm_policy, "checkpoint_weights", watched)
    return result


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


@needs_vllm
@pytest.mark.vllm
def test_a_turn_goes_on_from_the_prefix_cache_and_never_from_that_of_other_weights(
    sampler: PolicySampler,
):
    settings = {"num_samples": 8, "temperature": 1.3, "max_new_tokens": 12}
    with sampler.session():
        (samples,) = sampler.sample([LONG[:122]], [0], **settings)
        longest = max(samples, key=lambda one: len(one.token_ids))
        text = [*LONG[:122], *longest.token_ids, 5, 6]
        # A full block of 128 tokens, of which the last were sampled.
        assert num_cached(sampler, text) == 128
    learn(sampler.policy)
    sampler.sleep()
    with sampler.session():
        sampler.sample(PROMPTS[:1], [0], **settings)
        assert num_cached(sampler, text) == 0


def num_cached(sampler: PolicySampler, text: list[int]) -> int:
    """Tokens of a prompt that vLLM takes from its prefix cache."""
    (output,) = sampler._engine._generate([text], [{"temperature": 0.0, "max_tokens": 1}])
    return output.num_cached_tokens


@needs_vllm
@pytest.mark.vllm
def test_a_fork_of_a_process_with_an_engine_does_not_use_it(sampler: PolicySampler):
    sampler.sample(PROMPTS[:1], [0], **SAMPLING)
    context = multiprocessing.get_context("fork")

    def sample() -> None:
        with pytest.raises(AssertionError, match="not in a fork"):
            sampler.sample(PROMPTS[:1], [0], **SAMPLING)
        os._exit(7)

    process = context.Process(target=sample)
    process.start()
    process.join(60)
    assert process.exitcode == 7


SIZES = {
    "num_steps": 4, "prompts_per_step": 4, "group_size": 4, "temperature": 1.3, "max_new_tokens": 6,
    "num_checkpoints": 0, "optim": OPTIM,
}  # fmt: skip


def train(sampler, model: PreTrainedModel, correction: str) -> list[dict]:
    """The metrics of a few steps of GRPO that rewards high tokens."""
    prompts = [
        Prompt(id=str(n), task="solve", question="", prompt="", prompt_ids=ids, answer="")
        for n, ids in enumerate(PROMPTS[:8])
    ]
    models = RlModels(
        policy=Policy(model, compute(row_tokens=0), EOS), reference=None, sampler=sampler,
        decode=decode,
    )  # fmt: skip

    def reward(drawn) -> CompletionRewards:
        return CompletionRewards(totals=[sum(sample.token_ids) / 100 for sample in drawn.samples])

    task = Task(prompts=prompts, reward=reward, check_answers=None)
    schedule, method = (
        [[0, 1, 2, 3], [4, 5, 6, 7]] * 2,
        presets.method(kl="none", correction=correction),
    )
    settings = Settings(config=GroupRlConfig(**SIZES), method=method, seed=0)
    steps = rl.train(models, task, schedule, settings)
    return [step.metrics for step in steps]


class Changed:
    """The sampler, asked for something else than it was."""

    def __init__(self, sampler: PolicySampler, prefix: list[int], temperature: float) -> None:
        self.sampler, self.prefix, self.temperature = sampler, prefix, temperature

    def sample(self, prompts, seeds, **settings):
        return self.sampler.sample(
            [[*self.prefix, *prompt] for prompt in prompts], seeds,
            **settings | {"temperature": self.temperature},
        )  # fmt: skip


@needs_vllm
@pytest.mark.vllm
@pytest.mark.parametrize("correction", ["none", "token_truncated"])
def test_the_gate_lets_rounding_pass_and_nothing_else(
    sampler: PolicySampler, correction: str, monkeypatch: pytest.MonkeyPatch
):
    # Nothing here rewards ending an answer.
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 100)
    model = sampler.policy
    kept = {name: item.clone() for name, item in model.state_dict().items()}

    def again() -> None:
        """A policy that has learned for long says one thing only, at any temperature."""
        model.load_state_dict(kept)
        sampler.sleep()

    result = train(sampler, model, correction)
    assert len(result) == 4
    assert all(step["sampling/logprob_gap"] < 2e-5 for step in result)
    for other in (Changed(sampler, [], 0.7), Changed(sampler, [7, 8], 1.3)):
        again()
        with pytest.raises(ValueError, match="other weights, temperature or tokenizer"):
            train(other, model, correction)
    again()
    with monkeypatch.context() as patch:
        patch.setattr(PolicySampler, "sleep", lambda _: None)  # as if nothing would change
        with pytest.raises(ValueError, match="other weights, temperature or tokenizer"):
            train(sampler, model, correction)
    again()


def test_weights_are_those_of_a_saved_checkpoint(tmp_path):
    """Names and layout too: transformers holds a layer's experts in one matrix, a file does not."""
    torch.manual_seed(0)
    model = Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, head_dim=8, num_experts=3,
            num_experts_per_tok=2, moe_intermediate_size=8, tie_word_embeddings=False,
        )
    )  # fmt: skip
    model.save_pretrained(tmp_path / "moe")
    loaded = policies.load_policy(tmp_path / "moe", compute(row_tokens=0), CPU)
    saved = load_file(tmp_path / "moe/model.safetensors")
    result = dict(checkpoint_weights(loaded))
    assert "model.layers.0.mlp.experts.0.gate_proj.weight" in result
    assert result.keys() == saved.keys()
    assert all(torch.equal(result[name], saved[name]) for name in saved)


@needs_vllm
@pytest.mark.vllm
@pytest.mark.parametrize("rank", [0, 4])
def test_what_is_sampled_follows_the_policy_through_optimizer_steps(
    rank: int, sampler: PolicySampler, refreshes: list
):
    """Adapters are merged on the way. The last test of a sampler, since they stay."""
    model, seeds = sampler.policy, list(range(len(PROMPTS)))
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


@needs_vllm
@pytest.mark.vllm
@pytest.mark.parametrize("rank", [0, 4])
def test_in_two_processes_each_has_an_engine_and_the_curves_are_those_of_one(rank, tmp_path):
    torch.manual_seed(0)
    LlamaForCausalLM(
        LlamaConfig(**BLOCKS | {"hidden_size": 64, "num_attention_heads": 2}, head_dim=32)
    ).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    trial = Trial("grpo", rank=rank, engine="vllm", path=tmp_path, max_tokens=24)
    actual, expected = (in_processes(number, trial, fresh=True) for number in (2, 1))
    for step, other in zip(actual["history"], expected["history"], strict=True):
        # vLLM batches other rows together, and its log-probs round so.
        assert step == pytest.approx(other, rel=1e-4, abs=1e-4)
        assert step["sampling/logprob_gap"] < 2e-5
