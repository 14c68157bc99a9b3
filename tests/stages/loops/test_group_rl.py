import presets
import pytest
import torch
from stages.loops.group_rl import GroupRlConfig
from tiny_checkpoints import PAD, compute, gradients, load, plain_logprobs
from tiny_rollouts import (
    OPTIM,
    assert_same_gradients,
    decode,
    draws,
    even_share,
    make_prompts,
    make_sampler,
    watch_gradients,
    weights,
)

from stages.loops import epochs, group_rl, rl_loop, rollouts
from stages.loops.rollouts import Actor, Task
from stages.models.policy import Policy
from stages.rewards.judged import Judged

PROMPTS = make_prompts(8)
SETTINGS = {
    "num_steps": 1,
    "prompts_per_step": 4,
    "group_size": 4,
    "temperature": 0.9,
    "max_new_tokens": 6,
    "num_checkpoints": 0,
    "optim": OPTIM,
}
FIRST_FOUR = [[0, 1, 2, 3]]
K3 = {"kind": "loss", "estimator": "k3", "level": "token", "corrected": False}


def penalty(value):
    return {**K3, "coef": value} if value else "none"


def zscore(rewards):
    """(r - mean) / (std with n - 1, + 1e-4), by torch."""
    return (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)


def by_evenness(drawn):
    return even_share(drawn.texts)


def all_even(drawn):
    return [share == 1 for share in even_share(drawn.texts)]


def train(
    model,
    schedule,
    settings=None,
    *,
    reward=by_evenness,
    sampler=None,
    reference=None,
    preset="grpo_deepseekmath",
    kl_coef=0.0,
    **changes,
):
    """One training of the preset, its divergence replaced by a k3 penalty of weight `kl_coef`."""
    sizes = {name: changes.pop(name) for name in list(changes) if name in SETTINGS}
    actor = Actor(
        policy=Policy(model),
        reference=Policy(reference or load("llama")),
        sampler=sampler or make_sampler(model),
        decode=decode,
        pad_id=PAD,
        compute=settings or compute(),
    )
    return list(
        group_rl.train(
            actor,
            Task(
                prompts=PROMPTS,
                reward=lambda drawn: Judged(totals=reward(drawn)),
                correct=all_even,
            ),
            schedule,
            GroupRlConfig(**SETTINGS | sizes),
            presets.group_rl(preset, **{"kl": penalty(kl_coef)} | changes),
            0,
        )
    )


def test_the_trivial_task_is_learned(monkeypatch):
    # Nothing in this game rewards ending an answer.
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 100)
    steps = train(load("llama"), draws(8, 25, 4, seed=0))
    first = sum(step.metrics["reward/mean"] for step in steps[:3]) / 3
    last = sum(step.metrics["reward/mean"] for step in steps[-3:]) / 3
    assert first < 0.75
    assert last > first + 0.2


@pytest.mark.parametrize("kl_coef", [0.0, 0.1])
def test_the_gradient_does_not_depend_on_micro_batches_rows_or_prompt_order(kl_coef, monkeypatch):
    seen = watch_gradients(monkeypatch)
    for row_tokens, pack_tokens in ((64, 0), (0, 0), (20, 0), (64, 80), (0, 80)):
        for max_tokens in (4096, 40):
            changes = {"row_tokens": row_tokens, "pack_tokens": pack_tokens}
            settings = compute(max_tokens=max_tokens, **changes)
            train(load("llama"), FIRST_FOUR, settings, kl_coef=kl_coef)
    train(load("llama"), [[2, 0, 3, 1]], kl_coef=kl_coef)
    for found in seen[1:]:
        assert_same_gradients(found, seen[0])


def test_the_first_gradient_is_the_policy_gradient_of_the_group_advantages(monkeypatch):
    seen = watch_gradients(monkeypatch)
    (step,) = train(load("llama"), FIRST_FOUR)
    model = load("llama")
    rewards = torch.tensor([row.reward for row in step.rows]).view(4, 4)
    advantages = zscore(rewards).view(-1)
    loss = 0.0
    for row, advantage in zip(step.rows, advantages, strict=True):
        prompt = next(prompt for prompt in PROMPTS if prompt.id == row.id)
        logprobs = plain_logprobs(model, prompt.prompt_ids, row.completion_ids, 0.9)
        loss = loss - advantage * logprobs.mean() / 16
    expected = torch.autograd.grad(loss, list(model.parameters()))
    norms = sorted(float(gradient.norm()) for gradient in expected)
    found = sorted(float(gradient.norm()) for gradient in seen[0].values())
    assert found == pytest.approx(norms, rel=1e-3, abs=1e-5)


def test_the_gradient_with_a_divergence_is_that_of_surrogate_plus_k3_to_the_reference(monkeypatch):
    """exp(ref - new) - 1 - (ref - new), written out, against another reference than the policy."""
    seen = watch_gradients(monkeypatch)
    reference = load("llama")
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    (step,) = train(load("llama"), FIRST_FOUR, reference=reference, kl_coef=0.5)
    model = load("llama")
    rewards = torch.tensor([row.reward for row in step.rows]).view(4, 4)
    advantages = zscore(rewards).view(-1)
    assert (rewards != rewards[:, :1]).any(1).all(), "every group carries signal"
    loss = 0.0
    for row, advantage in zip(step.rows, advantages, strict=True):
        prompt = next(prompt for prompt in PROMPTS if prompt.id == row.id)
        new = plain_logprobs(model, prompt.prompt_ids, row.completion_ids, 0.9)
        with torch.no_grad():
            ref = plain_logprobs(reference, prompt.prompt_ids, row.completion_ids, 0.9)
        k3 = torch.exp(ref - new) - 1 - (ref - new)
        loss = loss + (-advantage * new + 0.5 * k3).mean() / 16
    loss.backward()
    parameters = list(model.parameters())
    ordered = [p for p in parameters if p.ndim >= 2] + [p for p in parameters if p.ndim < 2]
    assert_same_gradients(seen[0], gradients(torch.nn.ParameterList(ordered)))


def test_with_one_update_and_no_penalty_the_loss_is_0_and_its_gradient_is_not():
    """The ratio is 1, so the loss is minus the mean advantage: 0, as groups are centred."""
    (step,) = train(load("llama"), FIRST_FOUR)
    assert step.metrics["loss/policy"] == pytest.approx(0.0, abs=1e-6)
    assert step.metrics["optim/grad_norm"] > 0.1


def test_a_divergence_beyond_its_budget_ends_the_training():
    schedule = draws(8, 10, 4, seed=0)
    free = train(load("llama"), schedule)
    spent = [step.metrics["kl/sequence"] for step in free]
    assert len(free) == 10
    assert spent[0] == pytest.approx(0.0, abs=1e-4)
    budget = sorted(spent)[5]
    stopped = train(load("llama"), schedule, kl_budget=budget)
    first_beyond = next(i for i, value in enumerate(spent) if value > budget)
    assert [step.metrics["kl/sequence"] for step in stopped] == spent[: first_beyond + 1]


def test_cut_completions_may_be_masked_or_left_out_of_the_baseline_too():
    """Masked, they are still in the mean: the others' advantages move when they are left out."""
    found = {}
    for kind in ("mask", "exclude"):
        (step,) = train(load("llama"), FIRST_FOUR, truncation={"kind": kind}, max_new_tokens=12)
        ended = sum(len(row.completion_ids) for row in step.rows if row.finish_reason == "stop")
        assert 0 < step.metrics["tokens/trained"] <= ended
        found[kind] = step.metrics["optim/grad_norm"]
    assert found["mask"] != pytest.approx(found["exclude"], rel=1e-3)


def test_groups_without_signal_cost_nothing_and_leave_the_weights_alone():
    model = load("llama")
    before = weights(model)
    (step,) = train(model, FIRST_FOUR, reward=lambda drawn: [0.1] * 16)
    assert step.metrics["advantage/zero_share"] == 1.0
    assert step.metrics["tokens/trained"] == 0
    assert "loss/policy" not in step.metrics
    assert len(step.rows) == 16
    assert torch.equal(weights(model), before)


def test_a_silent_group_is_not_computed_and_still_counts_in_the_normaliser(monkeypatch):
    seen = watch_gradients(monkeypatch)

    def silence(number):
        def reward(drawn):
            shares = even_share(drawn.texts)
            return [0.5 if i // 4 < number else share for i, share in enumerate(shares)]

        return reward

    # Prompt 3 alone has a signal; drawn with three silent ones it weighs a quarter.
    (four,) = train(load("llama"), FIRST_FOUR, reward=silence(3))
    (alone,) = train(load("llama"), [[3]])
    assert four.metrics["tokens/trained"] == alone.metrics["tokens/trained"]
    quarter = {name: gradient / 4 for name, gradient in seen[1].items()}
    assert_same_gradients(seen[0], quarter)


def test_several_updates_count_their_tokens_and_move_the_ratio():
    (once,) = train(load("llama"), FIRST_FOUR)
    (thrice,) = train(load("llama"), FIRST_FOUR, num_epochs=3)
    assert thrice.metrics["tokens/trained"] == 3 * once.metrics["tokens/trained"]
    assert once.metrics["clip_fraction"] == 0.0
    assert thrice.metrics["clip_fraction"] > 0.0


def test_at_the_reference_the_divergence_is_zero_and_later_it_is_measured():
    first, *_, last = train(load("llama"), draws(8, 5, 4, seed=0), kl_coef=0.05)
    assert first.metrics["kl/k3"] == pytest.approx(0.0, abs=1e-6)
    assert last.metrics["kl/k3"] > 1e-3


def test_a_sampler_with_other_weights_or_another_temperature_is_found():
    with pytest.raises(ValueError, match="the sampler's log-probs differ"):
        train(load("llama"), FIRST_FOUR, sampler=make_sampler(load("llama", seed=1)))

    class Hotter:
        def sample(self, prompts, seeds, *, temperature, **arguments):
            live = make_sampler(load("llama"))
            return live.sample(prompts, seeds, temperature=1.5 * temperature, **arguments)

    with pytest.raises(ValueError, match="other weights, temperature or tokenizer"):
        train(load("llama"), FIRST_FOUR, sampler=Hotter())


def test_the_same_training_twice_gives_the_same_bits_and_the_same_rollouts():
    found = []
    for _ in range(2):
        model = load("llama")
        steps = train(model, draws(8, 3, 4, seed=0), kl_coef=0.05, num_epochs=2)
        found.append((weights(model), [row for step in steps for row in step.rows]))
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def test_a_budget_ends_training_with_the_step_that_reaches_it():
    def spent(step):
        return step.metrics["tokens/generated"] + step.metrics["tokens/trained"]

    fixed = train(load("llama"), draws(8, 6, 4, 0), prompts_per_step=4)
    budget = int(sum(spent(step) for step in fixed[:3])) - 1
    endless = epochs.endless(8, 4, 0)
    found = train(load("llama"), endless, prompts_per_step=4, token_budget=budget)
    assert len(found) == 3
    # the same rate and batches, so the same steps
    assert [spent(step) for step in found] == [spent(step) for step in fixed[:3]]
