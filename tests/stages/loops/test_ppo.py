import presets
import pytest
import torch
from stages.loops.ppo import PpoConfig, check_reward
from tiny_checkpoints import CPU, PAD, checkpoint, compute, load
from tiny_rollouts import (
    OPTIM,
    alone,
    assert_same_gradients,
    decode,
    draws,
    even_share,
    make_prompts,
    make_sampler,
    watch_gradients,
    weights,
)

from stages.loops import critic, epochs, policy_gradient, ppo, rl_loop, rl_run, rollouts
from stages.loops.rollouts import Actor, Task
from stages.models import scalar_head
from stages.models.policy import Policy
from stages.models.scalar_head import ScalarHead

PROMPTS = make_prompts(8)
FIRST_FOUR = [[0, 1, 2, 3]]
SETTINGS = {
    "num_steps": 1,
    "prompts_per_step": 4,
    "samples_per_prompt": 4,
    "temperature": 0.9,
    "max_new_tokens": 6,
    "num_checkpoints": 0,
    "optim": OPTIM,
    "value_optim": OPTIM,
}
ONE_UPDATE = {"num_epochs": 1, "num_minibatches": 1}
IN_REWARD = {"kind": "reward", "estimator": "k1"}


class Models:
    """The reward model is a fixed random one; the value model starts as it."""

    def __init__(self):
        heads = []
        for _ in range(2):
            model = scalar_head.init_scalar_model(checkpoint("llama", 1), PAD, compute(), CPU)
            generator = torch.Generator().manual_seed(1)
            torch.nn.init.normal_(model.score.weight, std=0.5, generator=generator)
            heads.append(model.eval())
        self.policy, self.reference = load("llama"), load("llama")
        self.value, self.reward = heads


def train(
    models,
    schedule,
    settings=None,
    *,
    sampler=None,
    kl_coef=0.02,
    preset="ppo_instructgpt",
    **changes,
):
    settings = settings or compute()
    sizes = {name: changes.pop(name) for name in list(changes) if name in SETTINGS}
    actor = Actor(
        policy=Policy(models.policy),
        reference=Policy(models.reference),
        sampler=sampler or make_sampler(models.policy),
        decode=decode,
        pad_id=PAD,
        compute=settings,
    )
    task = Task(
        prompts=PROMPTS,
        reward=lambda drawn: rl_run.of_model(alone(models.reward), drawn, settings, PAD),
        correct=lambda drawn: [share == 1 for share in even_share(drawn.texts)],
    )
    kl = {**IN_REWARD, "coef": kl_coef}
    config = PpoConfig(**SETTINGS | sizes)
    chosen = presets.ppo(preset, **ONE_UPDATE | {"kl": kl} | changes)
    return list(ppo.train(actor, ScalarHead(models.value), task, schedule, config, chosen, 0))


def mean(steps, name):
    return sum(step.metrics[name] for step in steps) / len(steps)


def test_the_reward_models_score_rises_and_the_value_model_learns_to_predict_it(monkeypatch):
    # Nothing in this game rewards ending an answer.
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 100)
    models = Models()
    before = weights(models.reward), weights(models.reference)
    steps = train(models, draws(8, 25, 4, seed=0), num_epochs=2, num_minibatches=2, gamma=1.0)
    assert mean(steps[-3:], "reward/mean") > mean(steps[:3], "reward/mean") + 0.5
    assert mean(steps[-5:], "loss/value") < mean(steps[:5], "loss/value")
    assert torch.equal(weights(models.reward), before[0])
    assert torch.equal(weights(models.reference), before[1])


def test_neither_gradient_depends_on_micro_batches_or_rows(monkeypatch):
    seen = watch_gradients(monkeypatch)
    for row_tokens, pack_tokens in ((64, 0), (0, 0), (20, 0), (64, 80), (0, 80)):
        for max_tokens in (4096, 40):
            changes = {"row_tokens": row_tokens, "pack_tokens": pack_tokens}
            settings = compute(max_tokens=max_tokens, **changes)
            train(Models(), FIRST_FOUR, settings)
    # The policy's step and the value model's alternate.
    for found in seen[2::2]:
        assert_same_gradients(found, seen[0])
    for found in seen[3::2]:
        assert_same_gradients(found, seen[1])


def test_the_first_step_is_on_policy_and_later_ones_are_clipped():
    (once,) = train(Models(), FIRST_FOUR)
    (more,) = train(Models(), FIRST_FOUR, num_epochs=4)
    assert once.metrics["clip_fraction"] == 0.0
    assert more.metrics["clip_fraction"] > 0.0
    assert more.metrics["tokens/trained"] == 4 * once.metrics["tokens/trained"]


def test_mini_batches_are_a_random_partition_of_the_prompts():
    parts = policy_gradient.partition(10, 4, seed=0)
    assert sorted(len(part) for part in parts) == [2, 2, 3, 3]
    order = [number for part in parts for number in part]
    assert sorted(order) == list(range(10))
    assert order != list(range(10)), "shuffled"
    assert parts == policy_gradient.partition(10, 4, seed=0)
    assert parts != policy_gradient.partition(10, 4, seed=1)


def test_each_mini_batch_is_an_optimizer_step(monkeypatch):
    seen = watch_gradients(monkeypatch)
    train(Models(), FIRST_FOUR, num_minibatches=4, num_epochs=2)
    # 2 passes of 4 mini-batches, each a step of the policy and one of the value model.
    assert len(seen) == 2 * 4 * 2


def test_a_strong_penalty_keeps_the_policy_near_the_reference():
    found = []
    for kl_coef in (0.0, 2.0):
        steps = train(
            Models(),
            draws(8, 15, 4, seed=0),
            num_minibatches=2,
            kl_coef=kl_coef,
            optim=OPTIM | {"learning_rate": 3e-3},
        )
        found.append(mean(steps[-5:], "kl/k3"))
    assert found[1] < 0.5 * found[0]


def test_a_sampler_with_other_weights_is_found():
    with pytest.raises(ValueError, match="the sampler's log-probs differ"):
        train(Models(), FIRST_FOUR, sampler=make_sampler(load("llama", seed=2)))


def test_the_same_training_twice_gives_the_same_bits_and_the_same_rollouts():
    found = []
    for _ in range(2):
        models = Models()
        steps = train(models, draws(8, 3, 4, seed=0), num_epochs=2, num_minibatches=2)
        rows = [row for step in steps for row in step.rows]
        found.append((weights(models.policy), weights(models.value), rows))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert found[0][2] == found[1][2]


def test_rewards_that_ppo_makes_nothing_of_are_refused():
    def check(name, preset="ppo_process", model="reward", **sizes):
        reward = presets.reward(name, model)
        check_reward(PpoConfig(**SETTINGS | sizes), presets.ppo(preset), reward)

    with pytest.raises(ValueError, match=r"its reward needs combine: \{kind: sum\}"):
        check("rule_gdpo")
    with pytest.raises(ValueError, match="samples_per_prompt is 1; a component with normalise"):
        check("rule_model", samples_per_prompt=1)
    with pytest.raises(
        ValueError, match="samples_per_prompt is 1: a reward with a component of kind"
    ):
        check("judge_wins", model="policy", samples_per_prompt=1)
    check("rule_model", samples_per_prompt=2)
    check("judge_wins", model="policy", samples_per_prompt=2)
    check("rule", model=None)
    check("model", preset="ppo_instructgpt")
    for name, model in (("rule", None), ("judge_wins", "policy"), ("process_sum", "process")):
        with pytest.raises(ValueError, match=f"scores completions, found one of .* is {model}"):
            check(name, preset="ppo_instructgpt", model=model)


def test_a_budget_ends_training_with_the_step_that_reaches_it():
    def spent(step):
        return step.metrics["tokens/generated"] + step.metrics["tokens/trained"]

    fixed = train(Models(), draws(8, 4, 4, 0))
    budget = int(sum(spent(step) for step in fixed[:2]))
    found = train(Models(), epochs.endless(8, 4, 0), token_budget=budget)
    # the same rate and batches, so the same steps
    assert [spent(step) for step in found] == [spent(step) for step in fixed[:2]]
