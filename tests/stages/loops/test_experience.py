import pytest
import torch
from tiny_checkpoints import CPU, PAD, checkpoint, compute, load, plain_logprobs
from tiny_rollouts import decode, make_prompts, make_sampler

from stages.algorithms.gae import gae
from stages.loops import rollouts
from stages.loops.experience import gather
from stages.models import scalar_head

PROMPTS = make_prompts(4)
GAMMA, LAM, KL, TEMPERATURE = 0.98, 0.9, 0.1, 0.8


def make_models():
    """Policy, value, reference and reward model, all different."""
    heads = []
    for seed in (1, 2):
        model = scalar_head.from_policy(checkpoint("llama", seed), PAD, compute(), CPU)
        generator = torch.Generator().manual_seed(seed)
        torch.nn.init.normal_(model.score.weight, std=0.5, generator=generator)
        heads.append(model.eval())
    return load("llama"), heads[0], load("llama", seed=3), heads[1]


def collect(policy):
    return rollouts.collect(
        make_sampler(policy), decode, PROMPTS, step=0, seed=0, group_size=2,
        temperature=TEMPERATURE, max_new_tokens=5,
    )  # fmt: skip


def run(minibatches, **changes):
    models = make_models()
    drawn = collect(models[0])
    found = gather(
        *models, drawn, minibatches, gamma=GAMMA, lam=LAM, kl_coef=KL, temperature=TEMPERATURE,
        compute=compute(**changes), pad_id=PAD,
    )  # fmt: skip
    return models, drawn, found


def by_completion(experiences, name):
    """The counted values of each completion, whatever micro-batch it was in."""
    rows = {}
    for part in (part for minibatch in experiences for part in minibatch):
        values = getattr(part, name)
        for index, row, mask in zip(part.batch.indices, values, part.batch.mask, strict=True):
            rows[index] = row[mask]
    return [rows[index] for index in sorted(rows)]


@torch.no_grad()
def plainly(models, drawn):
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
        values = hidden[0][0, len(prompt) - 1 : -1, 0]
        mask = torch.ones(1, len(ids), dtype=torch.bool)
        advantages, returns = gae(rewards[None], values[None], mask, gamma=GAMMA, lam=LAM)
        rows.append((score.item(), advantages[0], returns[0]))
    return rows


def test_it_is_what_the_definitions_give_completion_by_completion():
    models, drawn, (experiences, scores, _) = run([[0, 2], [1, 3]])
    expected = plainly(models, drawn)
    assert scores.tolist() == pytest.approx([score for score, _, _ in expected], abs=1e-4)
    flat = torch.cat([advantages for _, advantages, _ in expected])
    found = by_completion(experiences, "advantages")
    for row, (_, advantages, _) in zip(found, expected, strict=True):
        whitened = (advantages - flat.mean()) / flat.std(correction=0)
        torch.testing.assert_close(row, whitened, rtol=1e-3, atol=1e-4)
    for row, (_, _, returns) in zip(by_completion(experiences, "returns"), expected, strict=True):
        torch.testing.assert_close(row, returns, rtol=1e-3, atol=1e-4)


def test_advantages_are_whitened_over_the_whole_rollout_batch():
    _, _, (experiences, _, _) = run([[0, 2], [1, 3]])
    flat = torch.cat(by_completion(experiences, "advantages"))
    assert flat.mean().item() == pytest.approx(0.0, abs=1e-5)
    assert flat.var(correction=0).item() == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("name", ["old_logprobs", "old_values", "advantages", "returns"])
def test_micro_batches_rows_and_mini_batches_change_nothing(name):
    _, _, (expected, _, _) = run([[0, 1, 2, 3]])
    _, _, (found, _, _) = run([[3], [0, 2], [1]], max_tokens=20, row_tokens=0)
    for row, other in zip(by_completion(found, name), by_completion(expected, name), strict=True):
        torch.testing.assert_close(row, other, rtol=1e-3, atol=1e-4)


def test_each_mini_batch_holds_its_prompts_and_nothing_carries_a_gradient():
    _, drawn, (experiences, scores, _) = run([[0, 2], [1, 3]])
    ids = [
        {drawn.prompt(i).id for part in minibatch for i in part.batch.indices}
        for minibatch in experiences
    ]
    assert ids == [{"p0", "p2"}, {"p1", "p3"}]
    part = experiences[0][0]
    tensors = (part.old_logprobs, part.old_values, part.advantages, part.returns, scores)
    assert not any(tensor.requires_grad for tensor in tensors)


def test_the_divergence_and_the_fit_are_measured():
    models, drawn, (_, _, metrics) = run([[0, 1, 2, 3]])
    with torch.no_grad():
        rows = [(drawn.prompt(i).prompt_ids, s.token_ids) for i, s in enumerate(drawn.samples)]
        old = torch.cat([plain_logprobs(models[0], *row, TEMPERATURE) for row in rows])
        ref = torch.cat([plain_logprobs(models[2], *row, TEMPERATURE) for row in rows])
    assert metrics["kl/k1"] == pytest.approx((old - ref).mean().item(), rel=1e-3)
    assert metrics["sampling/logprob_gap"] < 1e-4
    assert metrics["value/explained_variance"] <= 1.0
