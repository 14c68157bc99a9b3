import presets
import pytest
import torch
from stages.loops.ppo import PpoConfig, gather
from tiny_checkpoints import CPU, PAD, checkpoint, compute, load, plain_logprobs
from tiny_rollouts import OPTIM, alone, decode, make_prompts, make_sampler

from stages.algorithms.token_advantages import gae
from stages.loops import rl_run
from stages.loops.rollouts import Actor, Task
from stages.models import scalar_head
from stages.models.policy import Policy
from stages.models.scalar_head import ScalarHead
from stages.rewards.judged import Judged

PROMPTS = make_prompts(4)
GAMMA, LAM, VALUE_LAM, KL, TEMPERATURE = 0.98, 0.9, 0.7, 0.1, 0.8


def make_models():
    """Policy, value, reference and reward model, all different."""
    heads = []
    for seed in (1, 2):
        model = scalar_head.init_scalar_model(checkpoint("llama", seed), PAD, compute(), CPU)
        generator = torch.Generator().manual_seed(seed)
        torch.nn.init.normal_(model.score.weight, std=0.5, generator=generator)
        heads.append(model.eval())
    return load("llama"), heads[0], load("llama", seed=3), heads[1]


def run(num_minibatches=1, truncation=None, whiten_eps=1e-8, step_rewards=None, **changes):
    models = make_models()
    policy, value, reference, reward = models
    settings = compute(**changes)
    preset = presets.ppo(
        gamma=GAMMA,
        lam=LAM,
        value_lam=VALUE_LAM,
        whiten_eps=whiten_eps,
        truncation=truncation or {"kind": "penalise", "penalty": 0.0},
        kl={"kind": "reward", "estimator": "k1", "coef": KL},
        num_minibatches=num_minibatches,
    )
    config = PpoConfig(
        num_steps=1,
        prompts_per_step=4,
        samples_per_prompt=2,
        temperature=TEMPERATURE,
        max_new_tokens=16,
        num_checkpoints=0,
        optim=OPTIM,
        value_optim=OPTIM,
    )
    actor = Actor(
        policy=Policy(policy),
        reference=Policy(reference),
        sampler=make_sampler(policy),
        decode=decode,
        pad_id=PAD,
        compute=settings,
    )
    task = Task(
        prompts=PROMPTS,
        reward=lambda drawn: Judged(
            totals=rl_run.of_model(alone(reward), drawn, settings, PAD).totals,
            step_rewards=step_rewards and step_rewards(drawn),
            step_ends=step_rewards and step_rewards(drawn) != 0,
        ),
        correct=lambda drawn: [False] * len(drawn.texts),
    )
    found = gather(actor, ScalarHead(value), task, config, preset, 0, 0, range(4), KL)
    return models, found


def rows(found, name):
    """The values at the tokens of each completion."""
    mask = found.rollouts.mask()
    return [row[counts] for row, counts in zip(getattr(found, name), mask, strict=True)]


@torch.no_grad()
def plainly(models, drawn, step_rewards=None):
    """Score, advantages before whitening and returns of each completion, one by one."""
    policy, value, reference, reward = models
    rows = []
    for i, sample in enumerate(drawn.samples):
        prompt, ids = drawn.prompt(i).prompt_ids, sample.token_ids
        old = plain_logprobs(policy.eval(), prompt, ids, TEMPERATURE)
        ref = plain_logprobs(reference.eval(), prompt, ids, TEMPERATURE)
        hidden = [m.score(m.base_model(torch.tensor([[*prompt, *ids]])).last_hidden_state)
                  for m in (value, reward)]  # fmt: skip
        rewards = -KL * (old - ref)
        score = hidden[1][0, -1, 0]
        rewards[-1] += score
        if step_rewards is not None:
            rewards += step_rewards[i, : len(ids)]
            score = score + step_rewards[i].sum()
        values = hidden[0][0, len(prompt) - 1 : -1, 0]
        mask = torch.ones(1, len(ids), dtype=torch.bool)
        advantages, _ = gae(rewards[None], values[None], mask, gamma=GAMMA, lam=LAM)
        _, returns = gae(rewards[None], values[None], mask, gamma=GAMMA, lam=VALUE_LAM)
        rows.append((score.item(), advantages[0], returns[0]))
    return rows


def test_it_is_what_the_definitions_give_completion_by_completion():
    models, found = run(num_minibatches=2)
    expected = plainly(models, found.rollouts)
    assert found.rewards.tolist() == pytest.approx([score for score, _, _ in expected], abs=1e-4)
    flat = torch.cat([advantages for _, advantages, _ in expected])
    for row, (_, advantages, _) in zip(rows(found, "advantages"), expected, strict=True):
        whitened = (advantages - flat.mean()) / flat.std(correction=0)
        torch.testing.assert_close(row, whitened, rtol=1e-3, atol=1e-4)
    for row, (_, _, returns) in zip(rows(found, "returns"), expected, strict=True):
        torch.testing.assert_close(row, returns, rtol=1e-3, atol=1e-4)


def test_without_whitening_the_advantages_are_those_of_gae():
    models, found = run(whiten_eps=None)
    for row, (_, advantages, _) in zip(
        rows(found, "advantages"), plainly(models, found.rollouts), strict=True
    ):
        torch.testing.assert_close(row, advantages, rtol=1e-3, atol=1e-4)


def test_step_rewards_are_paid_at_their_tokens():
    def every_second_token(drawn):
        grid = torch.zeros(drawn.mask().shape)
        grid[:, ::2] = 0.7
        return grid * drawn.mask()

    models, found = run(whiten_eps=None, step_rewards=every_second_token)
    _, without = run(whiten_eps=None)
    expected = plainly(models, found.rollouts, every_second_token(found.rollouts))
    assert found.rewards.tolist() == pytest.approx([score for score, _, _ in expected], abs=1e-4)
    for row, (_, advantages, _) in zip(rows(found, "advantages"), expected, strict=True):
        torch.testing.assert_close(row, advantages, rtol=1e-3, atol=1e-4)
    assert (found.advantages - without.advantages).abs().max() > 0.5


@pytest.mark.parametrize("name", ["values", "returns"])
@pytest.mark.parametrize("changes", [{"max_tokens": 20, "row_tokens": 0}, {"pack_tokens": 80}])
def test_micro_batches_rows_and_mini_batches_change_nothing(name, changes):
    _, expected = run()
    _, found = run(num_minibatches=3, **changes)
    torch.testing.assert_close(found.advantages, expected.advantages, rtol=1e-3, atol=1e-4)
    for row, other in zip(rows(found, name), rows(expected, name), strict=True):
        torch.testing.assert_close(row, other, rtol=1e-3, atol=1e-4)


def test_cut_completions_may_be_left_out_of_everything():
    _, found = run(truncation="exclude")
    cut = found.rollouts.truncated()
    assert cut.any()
    assert not cut.all()
    learned = {i for m in found.minibatches for batch in m.batches for i in batch.indices}
    assert learned == {i for i in range(8) if not cut[i]}
    assert not found.advantages[cut].any()
    kept = found.advantages[found.rollouts.mask() & ~cut[:, None]]
    assert kept.mean().item() == pytest.approx(0.0, abs=1e-5)
    assert kept.var(correction=0).item() == pytest.approx(1.0, rel=1e-4)
    lengths = found.rollouts.mask().sum(1)
    assert found.minibatches[0].num_tokens == lengths[~cut].sum()
    assert found.minibatches[0].num_sequences == 8


def test_nothing_carries_a_gradient():
    _, found = run(num_minibatches=2)
    tensors = (found.values, found.returns, found.advantages, found.rewards, found.ref_logprobs)
    assert not any(tensor.requires_grad for tensor in tensors)


def test_the_divergence_and_the_fit_are_measured():
    models, found = run()
    drawn = found.rollouts
    with torch.no_grad():
        pairs = [(drawn.prompt(i).prompt_ids, s.token_ids) for i, s in enumerate(drawn.samples)]
        old = torch.cat([plain_logprobs(models[0], *pair, TEMPERATURE) for pair in pairs])
        ref = torch.cat([plain_logprobs(models[2], *pair, TEMPERATURE) for pair in pairs])
    assert found.metrics["kl/k1"] == pytest.approx((old - ref).mean().item(), rel=1e-3)
    assert found.metrics["kl/sequence"] == pytest.approx((old - ref).sum().item() / 8, rel=1e-3)
    assert found.metrics["value/explained_variance"] <= 1.0
