"""The loop of GRPO, PPO and their relatives: what is its own. What holds of every loop is in
`test_every_loop`, of the objective in `tests/properties`.
"""

import itertools
import math
from dataclasses import replace

import presets
import pytest
import torch
from tiny_checkpoints import (
    CPU,
    FAMILIES,
    PAD,
    build,
    checkpoint,
    compute,
    gradients,
    load,
    plain_logprobs,
    random_ids,
)  # fmt: skip
from tiny_rollouts import (
    OPTIM,
    alone,
    assert_same_gradients,
    draws,
    even_share,
    make_models,
    make_prompts,
    make_rollouts,
    make_sampler,
    make_task,
    watch_gradients,
    weights,
)  # fmt: skip

from stages.algorithms.group_advantages import group_zscore
from stages.algorithms.token_advantages import gae
from stages.loops import epochs, rl, rollouts
from stages.loops.method import GroupRlConfig, Method, PpoConfig, Settings
from stages.loops.rl import (
    TrainingBudget,
    check_first_ratio,
    compute_reward_advantages,
    logprobs_no_grad,
)
from stages.loops.rollout_rewards import score_completions
from stages.loops.rollouts import Rollouts
from stages.models import scalar_head
from stages.models.batch import Group, micro_batches
from stages.models.policy import Policy
from stages.models.scalar_head import ScalarHead
from stages.optim import OptimConfig, schedule_learning_rate
from stages.records.problems import Prompt
from stages.rewards.completion_rewards import CompletionRewards
from stages.runtime import process
from stages.sampler import Sample

PROMPTS = make_prompts(8)
FIRST_FOUR = [[0, 1, 2, 3]]
TEMPERATURE = 0.9
SIZES = {
    "num_steps": 1, "prompts_per_step": 4, "completions_per_prompt": 4, "temperature": TEMPERATURE,
    "max_new_tokens": 6, "num_checkpoints": 0, "optim": OPTIM, "value_optim": OPTIM,
}  # fmt: skip


def make_settings(method, **sizes):
    content = SIZES | sizes
    size = content.pop("completions_per_prompt")
    if method.advantage == "gae":
        return Settings(config=PpoConfig(**content, samples_per_prompt=size), method=method, seed=0)
    content.pop("value_optim")
    return Settings(config=GroupRlConfig(**content, group_size=size), method=method, seed=0)


def train(schedule, preset="grpo_deepseekmath", *, model=None, reward=None, models=None, **changes):
    """One training in the game of even tokens; without a KL penalty unless one is set."""
    sizes = {name: changes.pop(name) for name in list(changes) if name in SIZES}
    if preset == "grpo_deepseekmath" and "kl" not in changes and "kl_coef" not in changes:
        changes["kl"] = "none"
    settings = make_settings(presets.method(preset, **changes), **sizes)
    models = make_models(model or load("llama"), **(models or {}))
    return list(rl.train(models, make_task(8, reward), schedule, settings))


@pytest.mark.parametrize("may_end", [True, False])
def test_no_step_learns_from_what_a_reward_returned_after_a_request_to_end(monkeypatch, may_end):
    """A reward may catch `Stopped`, as a bare `except:` does, and pay something else."""
    request = process._StopRequest(anywhere=lambda: may_end)
    monkeypatch.setattr(process, "_stop_request", request)

    def reward(batch):
        request.requested = True
        return CompletionRewards(totals=[0.0] * len(batch.samples))

    model = load("llama")
    before = [weight.clone() for weight in model.parameters()]
    if not may_end:  # several processes, which end together after the step
        assert len(train(FIRST_FOUR, model=model, reward=reward)) == 1
        return
    with pytest.raises(process.Stopped):
        train(FIRST_FOUR, model=model, reward=reward)
    assert all(map(torch.equal, before, model.parameters()))


def random_scalar(seed):
    """A reward or value model whose head is not zero."""
    model = scalar_head.init_scalar_model(checkpoint("llama", seed), PAD, compute(), CPU)
    generator = torch.Generator().manual_seed(seed)
    torch.nn.init.normal_(model.score.weight, std=0.5, generator=generator)
    return model.eval()


def train_ppo(schedule, *, value=None, reward=None, **changes):
    """PPO on the scores of a fixed random reward model, as which the value model starts."""
    scorer = alone(reward or random_scalar(1))
    value = ScalarHead(value or random_scalar(1), compute(), PAD)
    return train(
        schedule,
        "ppo_instructgpt",
        reward=lambda batch: score_completions(scorer, batch),
        models={"value": value} | changes.pop("models", {}),
        **{"num_minibatches": 1} | changes,
    )


def prompt_of(row):
    return next(prompt.prompt_ids for prompt in PROMPTS if prompt.id == row.id)


# --- Length of a run


COSINE = OptimConfig(
    learning_rate=1.0, warmup_share=0.1, schedule="cosine", weight_decay=0.0, max_grad_norm=1.0
)


def tokens_of(generated, trained):
    return {"tokens/generated": float(generated), "tokens/trained": trained}


def test_a_number_of_steps_is_one_that_no_token_shortens():
    run = TrainingBudget(num_steps=3, num_tokens=None)
    run.spend(tokens_of(10**9, 10**9))
    assert run.num_updates(0, per_step=4) == 12
    assert not run.is_spent()


def test_the_budget_is_over_with_the_step_that_reaches_it():
    run = TrainingBudget(num_steps=3, num_tokens=100)
    run.spend(tokens_of(30, 20))
    assert not run.is_spent()
    run.spend(tokens_of(30, 19))
    assert not run.is_spent()
    run.spend(tokens_of(1, 0))
    assert run.is_spent()


def test_the_steps_to_come_are_taken_to_be_like_those_so_far():
    run = TrainingBudget(num_steps=3, num_tokens=1000)
    run.spend(tokens_of(50, 50))
    assert run.num_updates(0, per_step=2) == 20  # a tenth of the budget in one step of 2 updates
    run.spend(tokens_of(200, 100))
    assert run.num_updates(1, per_step=2) == 10  # 400 in two steps: 5 steps
    run.spend(tokens_of(400, 400))
    assert run.num_updates(2, per_step=2) == 6, "over the budget: this step is the last"


@pytest.mark.parametrize("tokens", [[100] * 20, [20 * step + 10 for step in range(20)]])
def test_the_rate_warms_up_and_falls_with_the_share_of_the_budget(tokens):
    # however completions grow: 2 sin² of half of what is left after the warm-up of a tenth
    budget, rates, shares = 2000, [], []
    run = TrainingBudget(num_steps=3, num_tokens=budget)
    for step, number in enumerate(tokens):
        if run.is_spent():
            break
        shares.append(run.spent / budget)
        run.spend(tokens_of(number, 0))
        rates.append(schedule_learning_rate(COSINE, step, run.num_updates(step, per_step=1)))
    assert run.is_spent()
    assert rates[-1] < 0.1
    assert max(rates) == pytest.approx(
        rates[shares.index(next(s for s in shares if s >= 0.1))], abs=0.05
    )
    after = [rate for rate, share in zip(rates, shares, strict=True) if share > 0.15]
    assert after == sorted(after, reverse=True)


@pytest.mark.parametrize("method", ["grpo_deepseekmath", "ppo_instructgpt"])
def test_a_budget_ends_training_with_the_step_that_reaches_it(method):
    def spent(step):
        return step.metrics["tokens/generated"] + step.metrics["tokens/trained"]

    run = train if method == "grpo_deepseekmath" else train_ppo
    fixed = run(draws(8, 5, 4, 0))
    budget = int(sum(spent(step) for step in fixed[:3])) - 1
    result = run(epochs.endless_batches(8, 4, 0), token_budget=budget)
    # The same rate and batches, so the same steps.
    assert [spent(step) for step in result] == [spent(step) for step in fixed[:3]]


def test_a_divergence_beyond_its_budget_ends_the_training():
    schedule = draws(8, 10, 4, seed=0)
    free = train(schedule)
    spent = [step.metrics["kl/sequence"] for step in free]
    assert len(free) == 10
    assert spent[0] == pytest.approx(0.0, abs=1e-4)
    budget = sorted(spent)[5]
    stopped = train(schedule, kl_budget=budget)
    first_beyond = next(i for i, value in enumerate(spent) if value > budget)
    assert [step.metrics["kl/sequence"] for step in stopped] == spent[: first_beyond + 1]


def test_the_schedule_is_endless_with_a_budget_of_tokens_alone():
    task = make_task(8)
    fixed = make_settings(Method(), num_steps=3)
    endless = make_settings(Method(token_budget=10), num_steps=3)
    steps = list(rl.make_schedule(task, fixed))
    assert len(steps) == 3
    longer = rl.make_schedule(task, endless)
    assert [next(longer) for _ in range(20)][:3] == steps


# --- Rollouts


def make_numbered_prompts(count):
    return [
        Prompt(id=f"p{i}", task="solve", question="", prompt="", prompt_ids=[i], answer="")
        for i in range(count)
    ]


class TableSampler:
    """A sampler of numbers: sample j of prompt p has reward `table[p][j]`, -1 being the greedy."""

    def __init__(self, table):
        self.table = table
        self.calls = []

    def draw(self, prompts, group_size):
        numbers = [prompt.prompt_ids[0] for prompt in prompts]
        self.calls.append(list(numbers))
        samples = [-1] if group_size is None else range(group_size)
        places = [(i, number, j) for i, number in enumerate(numbers) for j in samples]
        return Rollouts(
            prompts=prompts,
            groups=[i for i, _, _ in places],
            numbers=[j for _, _, j in places],
            samples=[
                Sample(token_ids=[number], logprobs=[0.0], finish_reason="stop")
                for _, number, _ in places
            ],
            texts=[str(self.table[number][j]) for _, number, j in places],
        )

    def reward(self, batch):
        return CompletionRewards(
            totals=[float(text) for text in batch.texts],
            step_rewards=torch.zeros(len(batch.texts), 1 + len(self.calls)),
            step_ends=torch.ones(len(batch.texts), 1 + len(self.calls), dtype=torch.bool),
        )


def sample_from(table, *, max_rounds=1, prompts_per_step=2, **choices):
    """Groups of two; the sampler, and what the step learns from."""
    game, method = TableSampler(table), Method(max_rounds=max_rounds, **choices)
    sizes = make_settings(method, prompts_per_step=prompts_per_step, completions_per_prompt=2)
    prompts = make_numbered_prompts(len(table))
    return game, rl.sample_and_reward(game.draw, game.reward, prompts, sizes.config, method)


def list_used(sampled):
    """The prompts of the completions that are learned from."""
    batch = sampled.rollouts
    return [batch.prompt(i).id for i in sampled.used.nonzero().flatten().tolist()]


def test_sampling_in_one_round_uses_all():
    game, sampled = sample_from([[0, 1], [0, 0]])
    assert game.calls == [[0, 1]]
    assert sampled.rewards.rewards().tolist() == [0, 1, 0, 0]
    assert sampled.used.all()
    assert sampled.num_rounds == 1


def test_dynamic_sampling_refills_until_enough_groups_carry_signal():
    # Prompts 0 and 3 have a signal, 5 has one too many: two are needed.
    table = [[0, 1], [1, 1], [0, 0], [1, 0], [0, 0], [0, 1]]
    game, sampled = sample_from(table, max_rounds=3)
    assert game.calls == [[0, 1], [2, 3]]
    assert sampled.num_rounds == 2
    assert len(sampled.rewards.totals) == 8, "those without a signal are there to be counted"
    assert list_used(sampled) == ["p0", "p0", "p3", "p3"]


def test_dynamic_sampling_uses_the_first_groups_when_a_round_brings_too_many():
    table = [[0, 1], [1, 1], [0, 1], [1, 0]]
    _, sampled = sample_from(table, max_rounds=2)
    assert list_used(sampled) == ["p0", "p0", "p2", "p2"]


def test_dynamic_sampling_is_bounded_and_goes_on_with_what_it_has():
    game, sampled = sample_from([[0, 0], [1, 1], [0, 0], [1, 0]], max_rounds=2)
    assert len(game.calls) == 2
    assert sampled.used.tolist() == [*[False] * 6, True, True]


GREEDY_BASELINE = {"advantage": "greedy_baseline", "surrogate": "reinforce", "kl": "none"}


def test_dynamic_sampling_compares_with_the_greedy_completion_where_it_is_the_baseline():
    # Prompts 0 and 2 have equal rewards that are not the greedy one's, 3 has different rewards.
    table = [[1, 1, 0], [1, 1, 1], [0, 0, 1], [0, 1, 1]]
    game, sampled = sample_from(table, max_rounds=2, **GREEDY_BASELINE)
    assert list_used(sampled) == ["p0", "p0", "p2", "p2"]
    assert sampled.greedy_rewards.tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
    # The greedy completions of a round are drawn in it: they decide whether there is another.
    assert game.calls == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert sampled.greedy_counts["tokens/generated"] == 4
    game, sampled = sample_from(table[::2], max_rounds=2, **GREEDY_BASELINE)
    assert sampled.used.all()
    assert game.calls == [[0, 1], [0, 1]]


def test_a_sampler_with_other_weights_or_another_temperature_is_refused():
    class Hotter:
        def sample(self, prompts, seeds, *, temperature, **arguments):
            sampler = make_sampler(load("llama"))
            return sampler.sample(prompts, seeds, temperature=1.5 * temperature, **arguments)

    for run in (train, train_ppo):
        for sampler in (make_sampler(load("llama", seed=2)), Hotter()):
            with pytest.raises(ValueError, match="the sampler's log-probs differ"):
                run(FIRST_FOUR, models={"sampler": sampler})


@pytest.mark.parametrize("advantage", ["group_zscore", "gae"])
def test_models_that_the_method_lacks_or_has_no_use_for_are_refused(advantage):
    value = ScalarHead(random_scalar(1), compute(), PAD)
    method = Method(advantage=advantage, kl="loss")
    has_value = advantage == "gae"
    rl.check_models(make_models(load("llama"), value=value if has_value else None), method)
    for models in (
        make_models(load("llama"), value=None if has_value else value),
        make_models(load("llama"), value=value if has_value else None, reference=None),
    ):
        with pytest.raises(ValueError, match=r"value model|reference"):
            rl.check_models(models, method)


# --- Rewards and advantages


def test_punishments_lower_the_reward_of_truncated_completions_and_of_those_near_the_limit():
    batch = make_rollouts([1, 5, 6, 6, 3], [0, 0, 0, 0, 0])
    for sample in batch.samples[3:]:
        object.__setattr__(sample, "finish_reason", "length")
    task, config = make_task(1, lambda _: [1.0] * 5), make_settings(Method()).config
    for method, expected in (
        (Method(), [1.0, 1.0, 1.0, 1.0, 1.0]),
        (Method(truncation_penalty=0.5), [1.0, 1.0, 1.0, 0.5, 0.5]),
        (Method(truncation="mask"), [1.0, 1.0, 1.0, 1.0, 1.0]),
        # 5 of 6 tokens are halfway through a buffer of 2. The last is an episode that was cut at
        # the limit of its transcript.
        (Method(overlong_buffer=2, overlong_penalty=0.4), [1.0, 0.8, 0.6, 0.6, 0.6]),
    ):
        rewards = task.reward(batch)
        limit = config.max_new_tokens
        totals = rl.subtract_length_penalties(rewards, batch, method, limit).totals
        assert totals == pytest.approx(expected)


MASK_LENGTHS, WIDE_LENGTHS = [3, 2], [3, 2, 3]
WIDE = torch.tensor([[True, True, True], [True, True, False], [True, True, True]])
ENDS = torch.tensor([[True, False, True], [False, True, False], [True, True, True]])
STEPS = torch.tensor([[1.5, 0.0, 0.0], [0.0, 0.0, 0.0]])


def advantages(method, totals, step_rewards=None, step_ends=None, penalties=None):
    """Of the completions of one prompt, all counted."""
    lengths = MASK_LENGTHS if len(totals) == 2 else WIDE_LENGTHS
    if step_rewards is not None and step_ends is None:
        step_ends = torch.ones_like(step_rewards, dtype=torch.bool)
    return compute_reward_advantages(
        method,
        CompletionRewards(totals=totals, step_rewards=step_rewards, step_ends=step_ends),
        torch.zeros(len(totals), 3) if penalties is None else penalties,
        make_rollouts(lengths, [0] * len(totals)),
        torch.ones(len(totals), dtype=torch.bool),
        None,
    )


def test_one_advantage_a_completion_takes_the_sum_of_its_steps():
    result = advantages(Method(advantage="group_centred"), [0.5, 1.0], STEPS)
    assert result.tolist() == [[0.5, 0.5, 0.5], [-0.5, -0.5, 0.0]]


@pytest.mark.parametrize(
    "method",
    [Method(advantage="group_centred"), Method(), Method(advantage="leave_one_out")],
    ids=lambda method: method.advantage,
)
def test_penalties_of_a_completion_are_subtracted_from_its_reward(method):
    penalties = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    result = advantages(method, [3.0, 0.0, 0.0], penalties=penalties)
    assert torch.equal(result, advantages(method, [2.0, -1.0, -3.0]))


def test_rewards_to_go_take_each_step_where_it_is_paid():
    """To go: 2 0.5 0.5 | 1 1, mean 1, variance (1 + 0.25 + 0.25) / 5 = 0.3."""
    method = Method(advantage="batch_whitened")
    result, root = advantages(method, [0.5, 1.0], STEPS), 0.3**0.5
    assert result[0].tolist() == pytest.approx([1 / root, -0.5 / root, -0.5 / root], rel=1e-5)
    assert result[1].tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1e-6)
    assert advantages(method, [2.0, 1.0])[0].unique().numel() == 1, "all of it at the end"


def by_steps(totals, step_rewards, step_weight=1.0, ddof=0, penalties=None):
    method = Method(advantage="step_zscore", step_weight=step_weight, ddof=ddof, eps=1e-9)
    return advantages(method, totals, step_rewards, ENDS, penalties)


def test_steps_and_outcome_are_normalised_apart_and_added():
    # R = 1, 0, 0, 0, 1, 1: mean 1/2, deviation 1/2. Ends 3, 0, 0: mean 1, deviation sqrt 2.
    steps = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    actual = by_steps([3.0, 0.0, 0.0], steps, step_weight=2.0)
    root = 2**0.5
    expected = torch.tensor(
        [
            [2 * 0 + root, 2 * -1 + root, 2 * -1 + root],
            [2 * -1 - 1 / root, 2 * -1 - 1 / root, 0.0],
            [2 * 1 - 1 / root, 2 * 2 - 1 / root, 2 * 1 - 1 / root],
        ]
    )
    torch.testing.assert_close(actual, expected)


def test_without_a_verdict_on_the_whole_the_steps_stand_alone():
    steps = torch.rand(3, 3, generator=torch.Generator().manual_seed(0)) * ENDS
    # Ends that are equal but not 0 leave no rounding behind that looks like a signal.
    alone = by_steps([0.0, 0.0, 0.0], steps)
    assert torch.equal(by_steps([0.7, 0.7, 0.7], steps), alone)
    assert alone.any()


def test_steps_without_signal_leave_the_outcome_form():
    ends = [1.0, 0.0, 0.0]
    result = by_steps(ends, 0.3 * ENDS, ddof=1)
    outcome = group_zscore(
        torch.tensor(ends),
        torch.tensor([0, 0, 0]),
        counted=torch.tensor([True, True, True]),
        ddof=1,
        eps=1e-9,
    )
    assert torch.equal(result, outcome[:, None] * WIDE)


def test_the_scale_of_the_step_rewards_does_not_matter():
    steps = torch.rand(3, 3, generator=torch.Generator().manual_seed(0)) * ENDS
    result = by_steps([1.0, 0.0, 0.0], steps)
    torch.testing.assert_close(by_steps([1.0, 0.0, 0.0], 100 * steps), result)


def test_a_penalty_is_subtracted_from_the_outcome():
    steps = torch.zeros(3, 3)
    penalties = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    result = by_steps([3.0, 0.0, 0.0], steps, penalties=penalties)
    assert torch.equal(result, by_steps([2.0, -1.0, -3.0], steps))


def test_a_reward_without_steps_is_refused():
    with pytest.raises(ValueError, match="found a reward without any"):
        advantages(Method(advantage="step_zscore"), [1.0, 0.0])


# --- Experience of PPO

GAMMA, LAM, VALUE_LAM, KL = 0.98, 0.9, 0.7, 0.1


def gather(num_minibatches=1, step_rewards=None, truncation="penalise", whiten_eps=1e-8, **limits):
    """Policy, value, reference and reward model, all different, and what PPO gathers with them."""
    policy, reference = load("llama"), load("llama", seed=3)
    value, reward = random_scalar(1), random_scalar(2)
    method = presets.method(
        "ppo_instructgpt", gamma=GAMMA, lam=LAM, value_lam=VALUE_LAM, whiten_eps=whiten_eps,
        truncation=truncation, kl_coef=KL, num_minibatches=num_minibatches,
    )  # fmt: skip
    settings = make_settings(method, completions_per_prompt=2, max_new_tokens=16)
    scorer = alone(reward)

    def judge(batch):
        steps = step_rewards and step_rewards(batch)
        totals = score_completions(scorer, batch).totals
        ends = None if steps is None else steps != 0
        return CompletionRewards(totals=totals, step_rewards=steps, step_ends=ends)

    models = make_models(
        policy,
        compute(**limits),
        value=ScalarHead(value, compute(**limits), PAD),
        reference=Policy(reference, compute(**limits), PAD),
    )
    task = make_task(8, judge)
    rewarded = rl.draw_batch(models, task, settings, 0, range(4))
    result = rl.make_experience(models, task, rewarded, settings, 0, KL)
    return (policy, value, reference, reward), result


def tokens_of_rows(found, name):
    """The values at the tokens of each completion."""
    mask = found.rollouts.mask()
    return [row[counts] for row, counts in zip(getattr(found.grids, name), mask, strict=True)]


@torch.no_grad()
def plainly(models, batch, step_rewards=None):
    """Score, advantages before whitening and returns of each completion, one by one."""
    policy, value, reference, reward = models
    rows = []
    for i, sample in enumerate(batch.samples):
        prompt, ids = batch.prompt(i).prompt_ids, sample.token_ids
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
        grid, _ = gae(rewards[None], values[None], mask, gamma=GAMMA, lam=LAM)
        _, returns = gae(rewards[None], values[None], mask, gamma=GAMMA, lam=VALUE_LAM)
        rows.append((score.item(), grid[0], returns[0]))
    return rows


def test_experience_is_what_the_definitions_give_completion_by_completion():
    models, actual = gather(num_minibatches=2)
    expected = plainly(models, actual.rollouts)
    assert actual.rewards.tolist() == pytest.approx([score for score, _, _ in expected], abs=1e-4)
    flat = torch.cat([row for _, row, _ in expected])
    for row, (_, plain, _) in zip(tokens_of_rows(actual, "advantages"), expected, strict=True):
        whitened = (plain - flat.mean()) / flat.std(correction=0)
        torch.testing.assert_close(row, whitened, rtol=1e-3, atol=1e-4)
    for row, (_, _, returns) in zip(tokens_of_rows(actual, "returns"), expected, strict=True):
        torch.testing.assert_close(row, returns, rtol=1e-3, atol=1e-4)
    tensors = (*vars(actual.grids).values(), actual.rewards)
    assert not any(tensor.requires_grad for tensor in tensors)


def test_step_rewards_are_paid_at_their_tokens_and_without_whitening_advantages_are_those_of_gae():
    def every_second_token(batch):
        grid = torch.zeros(batch.mask().shape)
        grid[:, ::2] = 0.7
        return grid * batch.mask()

    models, actual = gather(whiten_eps=None, step_rewards=every_second_token)
    _, without = gather(whiten_eps=None)
    expected = plainly(models, actual.rollouts, every_second_token(actual.rollouts))
    assert actual.rewards.tolist() == pytest.approx([score for score, _, _ in expected], abs=1e-4)
    for experience, plain in ((actual, expected), (without, plainly(models, without.rollouts))):
        for row, (_, values, _) in zip(
            tokens_of_rows(experience, "advantages"), plain, strict=True
        ):
            torch.testing.assert_close(row, values, rtol=1e-3, atol=1e-4)
    assert (actual.grids.advantages - without.grids.advantages).abs().max() > 0.5


@pytest.mark.parametrize("limits", [{"max_tokens": 20, "row_tokens": 0}, {"pack_tokens": 80}])
def test_experience_does_not_depend_on_micro_batches_rows_and_mini_batches(limits):
    _, expected = gather()
    _, actual = gather(num_minibatches=3, **limits)
    for name in ("advantages", "values", "returns"):
        rows = zip(tokens_of_rows(actual, name), tokens_of_rows(expected, name), strict=True)
        for row, other in rows:
            torch.testing.assert_close(row, other, rtol=1e-3, atol=1e-4)


def test_truncated_completions_may_be_left_out_of_everything():
    _, result = gather(truncation="exclude")
    cut = result.rollouts.truncated()
    assert cut.any()
    assert not cut.all()
    learned = {i for batch in result.batches() for i in batch.indices}
    assert learned == {i for i in range(8) if not cut[i]}
    assert not result.grids.advantages[cut].any()
    kept = result.grids.advantages[result.rollouts.mask() & ~cut[:, None]]
    assert kept.mean().item() == pytest.approx(0.0, abs=1e-5)
    assert kept.var(correction=0).item() == pytest.approx(1.0, rel=1e-4)
    lengths = result.rollouts.mask().sum(1)
    assert result.minibatches[0].num_tokens == lengths[~cut].sum()
    assert result.minibatches[0].num_sequences == 8


def test_the_divergence_and_the_fit_are_measured():
    models, result = gather()
    batch = result.rollouts
    with torch.no_grad():
        pairs = [(batch.prompt(i).prompt_ids, s.token_ids) for i, s in enumerate(batch.samples)]
        old = torch.cat([plain_logprobs(models[0], *pair, TEMPERATURE) for pair in pairs])
        ref = torch.cat([plain_logprobs(models[2], *pair, TEMPERATURE) for pair in pairs])
    k3 = torch.exp(ref - old) - 1 - (ref - old)
    assert result.metrics["kl/k1"] == pytest.approx((old - ref).mean().item(), rel=1e-3)
    assert result.metrics["kl/k3"] == pytest.approx(k3.mean().item(), rel=1e-3)
    assert result.metrics["kl/sequence"] == pytest.approx((old - ref).sum().item() / 8, rel=1e-3)
    returns = torch.cat(tokens_of_rows(result, "returns"))
    residual = returns - torch.cat(tokens_of_rows(result, "values"))
    explained = 1 - residual.var(correction=0) / returns.var(correction=0)
    assert result.metrics["value/explained_variance"] == pytest.approx(explained.item(), rel=1e-3)


def test_returns_that_do_not_vary_have_nothing_to_explain():
    mask, ones = torch.ones(2, 3, dtype=torch.bool), torch.ones(2, 3)
    assert rl.explained_variance(ones, torch.rand(2, 3), mask) == 0.0
    returns = torch.tensor([[1.0, 2.0, 3.0], [0.0, 1.0, 5.0]])
    assert rl.explained_variance(returns, returns, mask) == 1.0
    assert rl.explained_variance(returns, ones, mask) == pytest.approx(0.0)


def test_lambda_may_follow_the_length():
    batches, method = [], Method(advantage="gae", lam_alpha=0.5, whiten_eps=None)
    rewards = CompletionRewards(totals=[1.0, 1.0])
    mask = make_rollouts([4, 2], [0, 0]).mask()
    models = make_models(load("llama"), value=ScalarHead(random_scalar(1), compute(), PAD))
    actual, _ = rl.compute_gae(models, batches, method, rewards, torch.zeros(2, 4), mask)
    # Values of 0: lambda to the number of tokens that are left. 1 - 1 / (0.5 * 4) = 0.5; of 2: 0.
    expected = torch.tensor([[0.125, 0.25, 0.5, 1.0], [0.0, 1.0, 0.0, 0.0]])
    torch.testing.assert_close(actual["advantages"], expected)


# --- Optimizer steps


def make_batches():
    generator = torch.Generator().manual_seed(0)
    groups = [
        Group(
            prompt_ids=random_ids(generator, 4),
            completions=[random_ids(generator, n) for n in (5, 2, 3)],
            indices=range(3 * i, 3 * i + 3),
        )
        for i in range(4)
    ]
    return list(micro_batches(groups, compute(max_tokens=40), PAD, CPU))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_before_any_update_the_ratio_is_exactly_1(family, checkpointing):
    model = load(family, gradient_checkpointing=checkpointing).train()
    for batch, old in zip(
        make_batches(), logprobs_no_grad(Policy(model), make_batches(), 0.7), strict=True
    ):
        logprobs, *_ = Policy(model)(batch, temperature=0.7)
        assert logprobs.requires_grad
        assert not old.requires_grad
        check_first_ratio(logprobs, old)
    assert model.training


def test_dropout_left_on_is_found():
    model = build("gpt2").train()
    parts = make_batches()
    old = logprobs_no_grad(Policy(model), parts, 1.0)
    logprobs, *_ = Policy(model)(parts[0], temperature=1.0)
    with pytest.raises(AssertionError, match=r"moved by .* before any update"):
        check_first_ratio(logprobs, old[0])


def test_another_temperature_is_found():
    model = load("llama")
    parts = make_batches()
    old = logprobs_no_grad(Policy(model), parts, 1.0)
    logprobs, *_ = Policy(model)(parts[0], temperature=0.9)
    with pytest.raises(AssertionError):
        check_first_ratio(logprobs, old[0])


def test_the_first_step_is_on_policy_and_later_ones_are_clipped():
    for run in (train, train_ppo):
        (once,), (more,) = run(FIRST_FOUR), run(FIRST_FOUR, num_epochs=4)
        assert once.metrics["clip_fraction"] == 0.0
        assert more.metrics["clip_fraction"] > 0.0
        assert more.metrics["tokens/trained"] == 4 * once.metrics["tokens/trained"]


def zscore(rewards):
    """(r - mean) / (std with n - 1, + 1e-4), by torch."""
    return (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)


def test_the_first_gradient_is_the_policy_gradient_of_the_group_advantages(monkeypatch):
    seen = watch_gradients(monkeypatch)
    (step,) = train(FIRST_FOUR)
    model = load("llama")
    rewards = torch.tensor([row.reward for row in step.rows]).view(4, 4)
    advantages = zscore(rewards).view(-1)
    loss = 0.0
    for row, advantage in zip(step.rows, advantages, strict=True):
        logprobs = plain_logprobs(model, prompt_of(row), row.completion_ids, 0.9)
        loss = loss - advantage * logprobs.mean() / 16
    expected = torch.autograd.grad(loss, list(model.parameters()))
    norms = sorted(float(gradient.norm()) for gradient in expected)
    actual = sorted(float(gradient.norm()) for gradient in seen[0].values())
    assert actual == pytest.approx(norms, rel=1e-3, abs=1e-5)


def test_the_gradient_with_a_divergence_is_that_of_surrogate_plus_k3_to_the_reference(monkeypatch):
    """exp(ref - new) - 1 - (ref - new), written out, against another reference than the policy."""
    seen = watch_gradients(monkeypatch)
    reference = load("llama")
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    (step,) = train(
        FIRST_FOUR, models={"reference": Policy(reference, compute(), PAD)}, kl_coef=0.5
    )
    model = load("llama")
    rewards = torch.tensor([row.reward for row in step.rows]).view(4, 4)
    advantages = zscore(rewards).view(-1)
    assert (rewards != rewards[:, :1]).any(1).all(), "every group carries signal"
    loss = 0.0
    for row, advantage in zip(step.rows, advantages, strict=True):
        new = plain_logprobs(model, prompt_of(row), row.completion_ids, 0.9)
        with torch.no_grad():
            ref = plain_logprobs(reference, prompt_of(row), row.completion_ids, 0.9)
        k3 = torch.exp(ref - new) - 1 - (ref - new)
        loss = loss + (-advantage * new + 0.5 * k3).mean() / 16
    loss.backward()
    parameters = list(model.parameters())
    ordered = [p for p in parameters if p.ndim >= 2] + [p for p in parameters if p.ndim < 2]
    assert_same_gradients(seen[0], gradients(torch.nn.ParameterList(ordered)))


def test_with_one_update_and_no_penalty_the_loss_is_0_and_its_gradient_is_not():
    """The ratio is 1, so the loss is minus the mean advantage: 0, as groups are centred."""
    (step,) = train(FIRST_FOUR)
    assert step.metrics["loss/policy"] == pytest.approx(0.0, abs=1e-6)
    assert step.metrics["optim/grad_norm"] > 0.1


def test_cut_completions_may_be_masked_or_left_out_of_the_baseline_too():
    """Masked, they are still in the mean: the others' advantages move when they are left out."""
    result = {}
    for kind in ("mask", "exclude"):
        (step,) = train(FIRST_FOUR, truncation=kind, max_new_tokens=12)
        ended = sum(len(row.completion_ids) for row in step.rows if row.finish_reason == "stop")
        assert 0 < step.metrics["tokens/trained"] <= ended
        result[kind] = step.metrics["optim/grad_norm"]
    assert result["mask"] != pytest.approx(result["exclude"], rel=1e-3)


def test_groups_without_signal_cost_nothing_and_leave_the_weights_alone():
    model = load("llama")
    before = weights(model)
    (step,) = train(FIRST_FOUR, model=model, reward=lambda _: [0.1] * 16)
    assert step.metrics["advantage/zero_share"] == 1.0
    assert step.metrics["tokens/trained"] == 0
    assert "loss/policy" not in step.metrics
    assert len(step.rows) == 16
    assert torch.equal(weights(model), before)


@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean"])
def test_a_silent_group_is_not_computed_and_counts_in_the_normaliser(aggregation, monkeypatch):
    seen = watch_gradients(monkeypatch)

    def silence(batch):
        return [0.5 if i < 12 else share for i, share in enumerate(even_share(batch.texts))]

    # Prompt 3 alone has a signal; sampled with three silent ones it weighs a quarter, or as much
    # as its tokens.
    (four,) = train(FIRST_FOUR, reward=silence, aggregation=aggregation)
    (alone,) = train([[3]], aggregation=aggregation)
    assert four.metrics["tokens/trained"] == alone.metrics["tokens/trained"]
    share = 1 / 4
    if aggregation == "token_mean":
        share = alone.metrics["tokens/generated"] / four.metrics["tokens/generated"]
    weighed = {name: gradient * share for name, gradient in seen[1].items()}
    assert_same_gradients(seen[0], weighed)


def test_at_the_reference_the_divergence_is_zero_and_later_it_is_measured():
    first, *_, last = train(draws(8, 5, 4, seed=0), kl_coef=0.05)
    assert first.metrics["kl/k3"] == pytest.approx(0.0, abs=1e-6)
    assert last.metrics["kl/k3"] > 1e-3


def test_mini_batches_are_a_random_partition_of_the_prompts():
    batch = make_rollouts([2] * 20, [i // 2 for i in range(20)])
    object.__setattr__(batch, "prompts", make_prompts(10))
    every = torch.ones(20, dtype=torch.bool)
    selection, models = rl.Selection(every, every, every, every), make_models(load("llama"))

    def parts(index, seed=0):
        method = Method(num_minibatches=4)
        settings = replace(make_settings(method), seed=seed)
        minibatches = rl.make_minibatches(models, batch, settings, index, selection)
        assert all(part.num_right_tokens == part.num_tokens for part in minibatches)
        assert sum(part.num_sequences for part in minibatches) == 20
        indices = [[i for b in part.batches for i in b.indices] for part in minibatches]
        return [sorted({batch.groups[i] for i in item}) for item in indices]

    assert sorted(len(part) for part in parts(0)) == [2, 2, 3, 3]
    assert sorted(number for part in parts(0) for number in part) == list(range(10))
    assert parts(0) == parts(0)
    assert len({str(parts(index, seed)) for index in range(2) for seed in range(2)}) == 4


def test_metrics_are_means_over_all_optimizer_steps():
    """At a rate that moves nothing each pass over the rollout batch logs the same."""
    optim = OPTIM | {"learning_rate": 1e-12}
    names = ("loss/value", "entropy", "sampling/logprob_gap")
    runs = [
        train_ppo(FIRST_FOUR, num_epochs=num_epochs, optim=optim, value_optim=optim)[0].metrics
        for num_epochs in (1, 3)
    ]
    once, thrice = ({name: metrics[name] for name in names} for metrics in runs)
    assert thrice == pytest.approx(once, rel=1e-4)


def test_value_coef_is_the_weight_of_the_value_loss_alone(monkeypatch):
    seen = watch_gradients(monkeypatch)
    whole, half = (train_ppo(FIRST_FOUR, value_coef=coef)[0].metrics for coef in (1.0, 0.5))
    assert half["loss/value"] == whole["loss/value"]
    value, policy, half_value, half_policy = seen
    assert_same_gradients(half_value, {name: gradient / 2 for name, gradient in value.items()})
    assert_same_gradients(half_policy, policy)


def test_each_mini_batch_is_an_optimizer_step(monkeypatch):
    seen = watch_gradients(monkeypatch)
    train_ppo(FIRST_FOUR, num_minibatches=4, num_epochs=2)
    # 2 passes of 4 mini-batches, each a step of the policy and one of the value model.
    assert len(seen) == 2 * 4 * 2


def test_at_first_only_the_value_model_learns():
    model, value = load("llama"), random_scalar(1)
    before = weights(model), weights(value)
    schedule, changes = draws(8, 3, 4, seed=0), {"value_warmup_steps": 2, "num_steps": 3}
    steps = train_ppo(schedule, model=model, value=value, **changes)
    assert "loss/policy" not in steps[1].metrics
    assert "loss/policy" in steps[2].metrics
    assert "loss/value" in steps[0].metrics
    model, value = load("llama"), random_scalar(1)
    train_ppo(schedule[:2], model=model, value=value, **changes)
    assert torch.equal(weights(model), before[0])
    assert not torch.equal(weights(value), before[1])


def test_a_budget_of_tokens_that_the_value_model_alone_would_spend_is_refused():
    """Once the tokens of the first step are known, and before anything has learned."""
    model, value, schedule = load("llama"), random_scalar(1), epochs.endless_batches(8, 4, 0)
    before = weights(model), weights(value)
    (first,) = train_ppo(draws(8, 1, 4, 0))
    tokens = first.metrics["tokens/generated"] + first.metrics["tokens/trained"]
    changes = {"model": model, "value": value, "value_warmup_steps": 2}
    with pytest.raises(ValueError, match=r"lasts for about 2 steps, .* value_warmup_steps 2"):
        train_ppo(schedule, token_budget=int(2 * tokens), **changes)
    assert torch.equal(weights(model), before[0])
    assert torch.equal(weights(value), before[1])
    # After two steps there are tokens left, so there is a third.
    steps = train_ppo(schedule, token_budget=int(2.4 * tokens), **changes)
    assert ["loss/policy" in step.metrics for step in steps] == [False, False, True]


def test_the_policys_rate_warms_up_once_it_is_trained():
    """Of 5 steps it learns in the last 3, of which 0.7 are 2: by half of the peak, then by it."""
    optim = COSINE.model_copy(update={"learning_rate": 3e-4, "warmup_share": 0.7})
    changes = {"value_warmup_steps": 2, "num_steps": 5, "optim": optim}
    steps = train_ppo(draws(8, 5, 4, seed=0), **changes)
    rates = [step.metrics.get("optim/learning_rate") for step in steps]
    assert rates == [None, None, *map(pytest.approx, (1.5e-4, 3e-4, 3e-4))]


def test_entropy_lowers_the_loss():
    changes = {"entropy_coef": 0.1, "aggregation": "token_mean"}
    (step,) = train(FIRST_FOUR, reward=lambda _: [0.0] * 16, **changes)
    expected = -0.1 * step.metrics["entropy"]
    assert step.metrics["loss/policy"] == pytest.approx(expected, rel=1e-5)
    assert expected < -0.1


def test_the_loss_of_right_completions_is_their_mean_negative_log_likelihood(monkeypatch):
    """The whole loss where nothing else has a gradient; right: every second completion."""
    seen, model = watch_gradients(monkeypatch), load("llama")
    task = replace(
        make_task(8, lambda _: [0.0] * 16), check_answers=lambda _: [i % 2 == 0 for i in range(16)]
    )
    method = presets.method(kl="none", positive_nll_coef=0.5)
    models = make_models(load("llama"))
    (step,) = rl.train(models, task, FIRST_FOUR, make_settings(method))
    rows = [row for i, row in enumerate(step.rows) if i % 2 == 0]
    logprobs = [plain_logprobs(model, prompt_of(r), r.completion_ids, TEMPERATURE) for r in rows]
    loss = -0.5 * torch.cat(logprobs).mean()
    loss.backward()
    assert step.metrics["loss/policy"] == pytest.approx(loss.item(), rel=1e-5)
    ordered = sorted(model.parameters(), key=lambda parameter: parameter.ndim < 2)
    assert_same_gradients(seen[0], gradients(torch.nn.ParameterList(ordered)))


def test_the_reward_models_score_rises_and_the_value_model_learns_to_predict_it(monkeypatch):
    # Nothing in this game rewards ending an answer.
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 100)
    scorer, reference = random_scalar(1), load("llama")
    before = weights(scorer), weights(reference)
    steps = train_ppo(
        draws(8, 25, 4, seed=0),
        reward=scorer,
        models={"reference": Policy(reference, compute(), PAD)},
        num_epochs=2,
        num_minibatches=2,
    )
    assert mean(steps[-3:], "reward/mean") > mean(steps[:3], "reward/mean") + 0.5
    assert mean(steps[-5:], "loss/value") < mean(steps[:5], "loss/value")
    assert torch.equal(weights(scorer), before[0])
    assert torch.equal(weights(reference), before[1])


def mean(steps, name):
    return sum(step.metrics[name] for step in steps) / len(steps)


# --- KL divergences


def test_a_strong_penalty_keeps_the_policy_near_the_reference():
    optim, schedule = OPTIM | {"learning_rate": 3e-3}, draws(8, 15, 4, seed=0)
    free, held = (
        train_ppo(schedule, num_minibatches=2, kl_coef=kl_coef, optim=optim)
        for kl_coef in (0.0, 2.0)
    )
    assert mean(held[-5:], "kl/k3") < 0.5 * mean(free[-5:], "kl/k3")


def test_the_coefficient_follows_the_divergence_from_the_reference():
    """Ziegler et al. 2019: the error, clipped to a fifth either way, over the horizon."""
    method = {"kl": "reward", "kl_target": 0.5, "kl_horizon": 64, "num_epochs": 2}
    steps = train_ppo(draws(8, 4, 4, seed=0), **method)
    for step, following in itertools.pairwise(steps):
        error = max(-0.2, min(0.2, step.metrics["kl/sequence"] / 0.5 - 1))
        expected = step.metrics["kl/coef"] * (1 + error * 16 / 64)
        assert following.metrics["kl/coef"] == pytest.approx(expected, rel=1e-6)
    assert steps[0].metrics["kl/coef"] == 0.02


TARGET = 0.01


@pytest.mark.parametrize("num_epochs", [1, 3])
@torch.no_grad()
def test_the_divergence_from_the_old_policy_is_measured_after_its_last_update(num_epochs):
    """exp(d) - 1 - d with d = log new - log old, averaged over the tokens that the old one drew."""
    model = load("llama")
    changes = {"surrogate": "kl_penalty", "old_kl_target": TARGET, "num_epochs": num_epochs}
    with torch.enable_grad():
        (step,) = train(FIRST_FOUR, model=model, models={"reference": None}, **changes)
    old, total, num_tokens = load("llama").eval(), 0.0, 0
    model.eval()
    for row in step.rows:
        before = plain_logprobs(old, prompt_of(row), row.completion_ids, TEMPERATURE)
        moved = plain_logprobs(model, prompt_of(row), row.completion_ids, TEMPERATURE) - before
        total += (torch.exp(moved) - 1 - moved).sum().item()
        num_tokens += len(row.completion_ids)
    assert step.metrics["advantage/zero_share"] == 0, "every completion is learned from"
    assert step.metrics["kl/old_after"] == pytest.approx(total / num_tokens, rel=1e-3)
    assert step.metrics["kl/old_after"] > 1.5 * TARGET


def test_a_step_without_a_gradient_leaves_the_weight_of_that_divergence_as_it_is():
    changes = {"surrogate": "kl_penalty", "kl": "none", "old_kl_target": TARGET}
    (step,) = train(FIRST_FOUR, reward=lambda batch: [1.0] * len(batch.samples), **changes)
    assert step.metrics["advantage/zero_share"] == 1
    coefs, method = rl.Coefs(0.0, 1.0), Method(**changes)
    assert rl.next_coefs(coefs, method, step.metrics, 16) == coefs


def test_the_weight_of_the_divergence_from_the_old_policy_doubles_and_halves():
    for measured, expected in ((0.016, 2.0), (0.012, 1.0), (0.006, 0.5)):
        method = Method(surrogate="kl_penalty", old_kl_target=TARGET)
        coefs = rl.next_coefs(rl.Coefs(0.04, 1.0), method, {"kl/old_after": measured}, 16)
        assert coefs == (0.04, expected)


KL_LOSSES = [
    Method(kl_estimator=estimator, kl_level=level, kl_corrected=is_corrected)
    for estimator in ("k1", "k2", "k3")
    for level in ("token", "sequence")
    for is_corrected in (False, True)
]
every_kl_loss = pytest.mark.parametrize(
    "method", KL_LOSSES, ids=lambda m: f"{m.kl_estimator}-{m.kl_level}-{m.kl_corrected}"
)


@every_kl_loss
@pytest.mark.parametrize("filler", [math.nan, math.inf, -math.inf])
def test_what_the_mask_leaves_out_reaches_neither_value_nor_gradient(method, filler):
    mask = torch.tensor([[True, True, False]])
    logprobs = torch.tensor([[-1.0, -2.0, filler]], requires_grad=True)
    others = [torch.tensor([[-1.5, -1.0, filler]])] * 2
    result = torch.where(mask, rl.kl_losses(logprobs, *others, mask, method), 0.0)
    result.sum().backward()
    assert result.isfinite().all()
    assert logprobs.grad.isfinite().all()
    assert logprobs.grad[0, 2] == 0


@every_kl_loss
def test_a_long_completion_in_float32_is_that_in_float64(method):
    generator = torch.Generator().manual_seed(0)
    logprobs = -torch.rand(1, 2000, generator=generator, dtype=torch.float64)
    others = [
        logprobs + 1e-3 * torch.randn(1, 2000, generator=generator, dtype=torch.float64)
        for _ in range(2)
    ]
    mask = torch.ones(1, 2000, dtype=torch.bool)
    narrow = [values.float() for values in (logprobs, *others)]
    expected = rl.kl_losses(*(values.double() for values in narrow), mask, method)
    actual = rl.kl_losses(*narrow, mask, method).double()
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-7)
