"""Rollout batches that older weights have sampled (`Method.staleness`); resuming: `test_resume`."""

import hashlib
from dataclasses import replace

import presets
import pytest
import torch
from tiny_checkpoints import PAD, compute, load, plain_logprobs
from tiny_rollouts import OPTIM, draws, even_share, make_models, make_sampler, make_task, weights

from stages.loops import rl, rollouts
from stages.loops.method import GroupRlConfig, Settings
from stages.models import row_policy
from stages.models.policy import Policy
from stages.models.row_policy import LoraConfig

NUM_STEPS = 5
SIZES = {"num_steps": NUM_STEPS, "prompts_per_step": 4, "group_size": 4, "temperature": 0.9,
         "max_new_tokens": 6, "num_checkpoints": 0, "optim": OPTIM}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_answer_ends(monkeypatch):
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 100)


def digest(model):
    return hashlib.sha256(weights(model).numpy().tobytes()).hexdigest()


class WatchedSampler:
    """A sampler that records which weights have sampled which prompts, and how many tokens."""

    def __init__(self, sampler):
        self.sampler, self.calls, self.num_tokens = sampler, [], 0

    def sample(self, prompts, seeds, **settings):
        self.calls.append((digest(self.sampler.model), list(map(list, prompts)), list(seeds)))
        groups = self.sampler.sample(prompts, seeds, **settings)
        self.num_tokens += sum(len(sample.token_ids) for group in groups for sample in group)
        return groups


def train(staleness, *, reward=None, **changes):
    """Steps, the sampler, and the digest of the weights before the first step and after each."""
    method = presets.method(staleness=staleness, **{"kl": "none"} | changes)
    settings = Settings(config=GroupRlConfig(**SIZES), method=method, seed=0)
    model = load("llama")
    sampler, digests, steps = WatchedSampler(make_sampler(model)), [digest(model)], []
    models = make_models(model, sampler=sampler)
    schedule = draws(8, NUM_STEPS, 4 * method.max_rounds, seed=0)
    for step in rl.train(models, make_task(8, reward), schedule, settings):
        digests.append(digest(model))
        steps.append(step)
    return steps, sampler, digests


@pytest.mark.parametrize("staleness", [0, 1, 2, 7])
def test_batch_n_is_drawn_with_the_weights_after_n_less_k_steps(staleness):
    steps, sampler, digests = train(staleness)
    assert len(set(digests)) == len(digests) == NUM_STEPS + 1
    versions = [digests.index(used) for used, _, _ in sampler.calls]
    assert versions == [max(0, n - staleness) for n in range(NUM_STEPS)]
    assert [{row.step for row in step.rows} for step in steps] == [{n} for n in range(NUM_STEPS)]
    lags = [step.metrics.get("sampling/staleness") for step in steps]
    assert lags == [min(n, staleness) if staleness else None for n in range(NUM_STEPS)]
    # Prompts and random streams are those of a run on policy, each batch with its own.
    seeds = [seeds for _, _, seeds in sampler.calls]
    assert len({seed for each in seeds for seed in each}) == 4 * NUM_STEPS
    assert [call[1:] for call in sampler.calls] == [call[1:] for call in train(0)[1].calls]
    gaps = [step.metrics["sampling/logprob_gap"] for step in steps]
    assert gaps[0] < 1e-5
    assert min(gaps[1:]) > 0.01 or not staleness


@pytest.mark.parametrize(
    "changes", [{}, {"max_rounds": 2}, {"advantage": "greedy_baseline"}], ids=str
)
def test_every_sampled_token_is_counted_in_the_step_that_learns_from_it(changes):
    steps, sampler, _ = train(2, **changes)
    for name in ("tokens/generated", "work/policy/sampled/outputs"):
        assert sum(step.metrics[name] for step in steps) == sampler.num_tokens


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_sampler_with_other_weights_is_refused_in_the_first_step(staleness):
    models = make_models(load("llama"), sampler=make_sampler(load("llama", 1)))
    method = presets.method(staleness=staleness, kl="none")
    settings = Settings(config=GroupRlConfig(**SIZES), method=method, seed=0)
    with pytest.raises(ValueError, match="weights"):
        list(rl.train(models, make_task(8), draws(8, 1, 4, seed=0), settings))


@torch.no_grad()
def test_kl_in_the_reward_and_a_teacher_see_the_policy_that_learns_with_its_adapters():
    model, task, config = load("llama"), make_task(8), GroupRlConfig(**SIZES)
    disable = row_policy.add_adapters(model, LoraConfig(rank=2, alpha=16), 0)
    models = make_models(model, policy=Policy(model, compute(), PAD, disable))
    method = presets.method("rloo", staleness=1)
    settings = Settings(config=config, method=method, seed=0)
    trainer = rl.Trainer(models=models, task=task, settings=settings)
    experience = trainer.draw(1, range(4))
    batch = experience.rollouts
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1, generator=torch.Generator().manual_seed(0))
    now, metrics = trainer.measure_logprobs(batch, 1)
    for i, sample in enumerate(batch.samples):
        expected = plain_logprobs(model, batch.prompt(i).prompt_ids, sample.token_ids, 0.9)
        torch.testing.assert_close(now[i, : len(expected)], expected, rtol=1e-4, atol=1e-5)
    assert (now - batch.sampler_logprobs()).abs().max() > 0.1
    assert metrics["work/policy/read/outputs"] == int(batch.mask().sum())
    # Where the weights are those that sampled, and where nothing needs them, nothing is read.
    unread = (method, 0), (presets.method(staleness=1), 1), (presets.method("rloo"), 1)
    for other, index in unread:
        changed = replace(trainer, settings=replace(settings, method=other))
        same, metrics = changed.measure_logprobs(batch, index)
        assert torch.equal(same, batch.sampler_logprobs())
        assert metrics.keys() <= {"sampling/staleness"}
    trainer.estimate(experience, 1, 0.5)
    penalties = 0.5 * ((now - experience.grids.ref_logprobs) * batch.mask()).sum(1)
    returns = (torch.tensor(even_share(batch.texts)) - penalties).view(-1, 4)
    expected = (returns - (returns.sum(1, keepdim=True) - returns) / 3).flatten()
    torch.testing.assert_close(experience.grids.advantages[:, 0], expected, rtol=1e-4, atol=1e-4)
    # The reading is counted beside the passes of the update.
    with torch.enable_grad():
        optimizers = rl.make_optimizers(models, config, rl.State())
        learned = trainer.learn(optimizers, experience, rl.Coefs(0.5, 1.0), 1, 10)
    joined = rl.join_metrics({"work/policy/read/outputs": 5, "loss": 1}, learned)
    assert joined["work/policy/read/outputs"] == 5 + learned["work/policy/read/outputs"]
