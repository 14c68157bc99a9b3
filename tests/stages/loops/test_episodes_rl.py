"""What is learned from episodes: by definition, in float64, and what it was without turns."""

import functools
import itertools

import every_loop
import presets
import pytest
import torch
from every_loop import SinglePrecisionSampler, default_dtype
from tiny_checkpoints import CPU, PAD, checkpoint, compute, exact, load, load_exact
from tiny_rollouts import (
    OPTIM,
    decode,
    even_share,
    make_models,
    make_task,
    watch_gradients,
    weights,
)
from token_episodes import ENDS, EvenGame, make_player, make_rows

from stages.loops import episodes, rl, rollouts
from stages.loops.method import GroupRlConfig, PpoConfig, Settings
from stages.models import scalar_head
from stages.models.policy import Policy
from stages.models.scalar_head import ScalarHead
from stages.rewards.completion_rewards import CompletionRewards

TEMPERATURE, LENGTH, SIZE = 0.9, 4, 4
SIZES = {
    "num_steps": 2, "prompts_per_step": 3, "temperature": TEMPERATURE, "max_new_tokens": LENGTH,
    "num_checkpoints": 0, "optim": OPTIM,
}  # fmt: skip
SCHEDULE = [[0, 1, 2], [3, 4, 5]]


@pytest.fixture(autouse=True)
def _turns_need_not_end(monkeypatch):
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 100)


def make_settings(method, **sizes):
    sizes = SIZES | sizes
    if method.advantage == "gae":
        config = PpoConfig(**sizes, samples_per_prompt=SIZE, value_optim=OPTIM)
    else:
        config = GroupRlConfig(**sizes, group_size=SIZE)
    return Settings(config=config, method=method, seed=0)


def random_value(dtype=torch.float32):
    model = scalar_head.init_scalar_model(checkpoint("llama", 1), PAD, compute(), CPU, head_seed=3)
    return model if dtype == torch.float32 else exact(model)


def train(task, method, schedule=SCHEDULE, **sizes):
    """Steps in float32; the policy after them."""
    model = load("llama")
    value = ScalarHead(random_value(), compute(), PAD) if method.advantage == "gae" else None
    sampler = SinglePrecisionSampler(model, ENDS)
    models = make_models(model, value=value, sampler=sampler)
    return list(rl.train(models, task, schedule, make_settings(method, **sizes))), model


SAME = [*presets.GROUP_RL, *presets.PPO]
SAME.remove("grpo_process")  # which needs rewards of steps


@pytest.mark.parametrize("name", SAME)
def test_an_episode_of_one_turn_is_a_completion_to_the_bit(name, monkeypatch):
    """Rewards, metrics, rollouts, gradients and weights are those of the task without one."""

    def judge(batch):
        # A turn that was cut is no message that an environment pays for.
        shares = zip(even_share(batch.texts), batch.truncated().tolist(), strict=True)
        return CompletionRewards(totals=[0.0 if is_cut else share for share, is_cut in shares])

    plain = make_task(6, judge)
    object.__setattr__(
        plain, "check_answers", lambda batch: [item >= 0.5 for item in judge(batch).totals]
    )
    player = make_player(
        lambda: EvenGame(1), max_turns=1, max_turn_tokens=LENGTH, success_reward=0.5
    )
    method = every_loop.several_optimizer_steps(name)
    seen = watch_gradients(monkeypatch)
    expected, before = train(plain, method)
    gradients, seen[:] = list(seen), []
    actual, after = train(episodes.make_task(player, make_rows(6)), method)
    assert torch.equal(weights(after), weights(before))
    assert len(gradients) == len(seen) > 0
    for item, other in zip(gradients, seen, strict=True):
        assert all(torch.equal(item[key], value) for key, value in other.items())
    for item, other in zip(actual, expected, strict=True):
        extra = {"episode", "ending"}
        metrics = {k: v for k, v in item.metrics.items() if k.partition("/")[0] not in extra}
        assert list(metrics.items()) == list(other.metrics.items())
        rows = [{k: getattr(row, k) for k in row.__slots__} for row in (*item.rows, *other.rows)]
        for row in rows:
            row.pop("episode")
        assert rows[: len(item.rows)] == rows[len(item.rows) :]
    endings = {row.episode["ending"] for step in actual for row in step.rows}
    assert endings == {"done", "tokens"}


def exact_models(value=None):
    """Policy, another reference, and what samples from the policy, in float64."""
    model = load_exact("llama")
    reference = Policy(load_exact("llama", 2), compute(), PAD)
    sampler = SinglePrecisionSampler(model, ENDS)
    value = None if value is None else ScalarHead(value, compute(), PAD)
    return make_models(model, reference=reference, sampler=sampler, value=value)


def read_transcript(model, episode):
    """Log-probs of the sampled tokens of one episode, all of it in one row of the model's own."""
    ids = torch.tensor([episode.prompt_ids + episode.token_ids])
    logprobs = (model(ids).logits[0] / TEMPERATURE).log_softmax(-1)
    return torch.stack([logprobs[at - 1, ids[0, at]] for at in sampled_positions(episode)])


def sampled_positions(episode):
    """Position in prompt and transcript of each token that the policy wrote."""
    start = len(episode.prompt_ids)
    return [start + at for span in episode.sampled for at in range(*span)]


def records(step_rows):
    return [episodes.Episode(**row.episode) for row in step_rows]


def test_the_gradient_of_grpo_is_that_of_the_definition_token_by_token(monkeypatch):
    """Sampled tokens in the context of the whole transcript; the group's rewards are sums."""
    seen = watch_gradients(monkeypatch)
    models, method = exact_models(), presets.method("grpo_deepseekmath", kl_coef=0.5)
    task = episodes.make_task(make_player(), make_rows(6))
    with default_dtype(torch.float64):
        (step,) = rl.train(models, task, SCHEDULE[:1], make_settings(method))
    policy, reference = load_exact("llama"), load_exact("llama", 2)
    played = records(step.rows)
    assert {len(episode.sampled) for episode in played} == {1, 3}
    rewards = torch.tensor([sum(e.rewards) for e in played]).double().view(3, SIZE)
    centred = rewards - rewards.mean(1, keepdim=True)
    advantages = (centred / (rewards.std(1, keepdim=True) + 1e-4)).flatten()
    loss = 0.0
    for episode, advantage in zip(played, advantages, strict=True):
        new = read_transcript(policy, episode)
        ref = read_transcript(reference, episode).detach()
        k3 = torch.exp(ref - new) - 1 - (ref - new)
        loss = loss + (0.5 * k3 - advantage * torch.exp(new - new.detach())).mean() / len(played)
    loss.backward()
    expected = sorted(float(p.grad.norm()) for p in policy.parameters())
    actual = sorted(float(gradient.norm()) for gradient in seen[0].values())
    assert step.metrics["loss/policy"] == pytest.approx(loss.item(), rel=1e-6)
    assert actual == pytest.approx(expected, rel=1e-6)
    assert step.metrics["reward/mean"] == pytest.approx(rewards.mean().item())
    assert step.metrics["sampling/logprob_gap"] < 1e-5


GAMMA, LAM, VALUE_LAM, KL = 0.9, 0.8, 0.7, 0.1


def test_the_experience_of_ppo_is_that_of_the_definition_token_by_token():
    """GAE over sampled tokens alone; a turn's reward at its last one, the value before each."""
    value = random_value(torch.float64)
    models = exact_models(value)
    method = presets.method(
        "ppo_process", gamma=GAMMA, lam=LAM, value_lam=VALUE_LAM, whiten_eps=None, kl_coef=KL,
        num_minibatches=1,
    )  # fmt: skip
    task = episodes.make_task(make_player(), make_rows(6))
    with default_dtype(torch.float64), torch.no_grad():
        settings = make_settings(method)
        rewarded = rl.draw_batch(models, task, settings, 0, range(3))
        result = rl.make_experience(models, task, rewarded, settings, 0, KL)
    assert result.rollouts.episodes is not None
    assert {len(episode.sampled) for episode in result.rollouts.episodes} == {1, 3}
    policy, reference, mask = load_exact("llama"), load_exact("llama", 2), result.rollouts.mask()
    for row, episode in enumerate(result.rollouts.episodes):
        with torch.no_grad():
            ids = torch.tensor([episode.prompt_ids + episode.token_ids])
            hidden = value.base_model(ids).last_hidden_state
            before = [at - 1 for at in sampled_positions(episode)]
            values = value.score(hidden)[0, before, 0].tolist()
            new, ref = (read_transcript(model, episode) for model in (policy, reference))
        rewards = (-KL * (new - ref)).tolist()
        ends = list(itertools.accumulate(end - start for start, end in episode.sampled))
        for end, reward in zip(ends, episode.rewards, strict=True):
            rewards[end - 1] += reward
        advantages, returns = (by_definition(rewards, values, lam) for lam in (LAM, VALUE_LAM))
        targets = [a + v for a, v in zip(returns, values, strict=True)]
        grids, counts = result.grids, mask[row]
        assert grids.values[row][counts].tolist() == pytest.approx(values, abs=1e-9)
        # The sampler's log-probs, in the penalty, and rewards are float32.
        assert grids.advantages[row][counts].tolist() == pytest.approx(advantages, abs=1e-5)
        assert grids.returns[row][counts].tolist() == pytest.approx(targets, abs=1e-5)
        assert result.rewards[row].item() == pytest.approx(episode.reward, abs=1e-6)


def by_definition(rewards, values, lam):
    """A_t = sum over k of (gamma lam)^k (r + gamma V' - V)_{t+k}; the value after the end is 0."""
    after = [*values[1:], 0.0]
    deltas = [r + GAMMA * v - before for r, v, before in zip(rewards, after, values, strict=True)]
    return [
        sum((GAMMA * lam) ** k * delta for k, delta in enumerate(deltas[t:]))
        for t in range(len(deltas))
    ]


@pytest.mark.parametrize("name", ["grpo_deepseekmath", "ppo_process", "dapo"])
def test_a_failed_episode_leaves_the_statistics_of_its_group_and_the_loss(name, monkeypatch):
    """Gradient and means are those of the group without it: only its tokens were sampled, too."""

    class Failing(EvenGame):
        number = 0

        def start(self, row, seed):
            self.id = row["id"]
            return super().start(row, seed)

        def step(self, message):
            Failing.number += self.id == "p1"
            if self.id == "p1" and Failing.number == 1:
                raise OSError("gone")
            return super().step(message)

    method = every_loop.one_optimizer_step(name)
    seen = watch_gradients(monkeypatch)
    task = episodes.make_task(make_player(Failing, max_failed_share=0.3), make_rows(6))
    (step,), _ = train(task, method, SCHEDULE[:1])
    (place,) = [
        i for i, row in enumerate(step.rows) if row.episode["ending"] == "environment_error"
    ]
    assert step.rows[place].id == "p1"
    assert step.metrics["episode/failed"] == pytest.approx(1 / 12)
    with_failure, seen[:] = list(seen), []

    def drop(sampler, decode, prompts, **settings):
        batch = task_without.draw(sampler, decode, prompts, **settings)
        keep = [i for i in range(12) if i != place]
        return rollouts.Rollouts(
            prompts=batch.prompts,
            **{
                name: [getattr(batch, name)[i] for i in keep]
                for name in ("groups", "numbers", "samples", "texts", "episodes")
            },
        )

    task_without = episodes.make_task(make_player(), make_rows(6))
    other = episodes.make_task(make_player(), make_rows(6))
    object.__setattr__(other, "draw", drop)
    (expected,), _ = train(other, method, SCHEDULE[:1])
    for item, gradients in zip(with_failure, seen, strict=True):
        for key, value in gradients.items():
            torch.testing.assert_close(item[key], value, rtol=1e-5, atol=1e-7)
    skipped = ("tokens/generated", "work/", "episode/failed", "ending/", "sampling/used",
               "advantage/zero_share")  # fmt: skip
    for key, value in expected.metrics.items():
        if not key.startswith(skipped):
            assert step.metrics[key] == pytest.approx(value, rel=1e-5, abs=1e-6), key


def test_dynamic_sampling_uses_a_group_without_its_failed_episodes():
    class Failing(EvenGame):
        number = 0

        def step(self, message):
            Failing.number += 1
            if Failing.number == 2:
                raise OSError("gone")
            return super().step(message)

    method = presets.method("dapo", max_rounds=2, overlong_buffer=2, num_minibatches=1)
    task = episodes.make_task(make_player(Failing, max_failed_share=0.2), make_rows(6))
    settings = make_settings(method, max_new_tokens=12)
    model = load("llama")
    draw = functools.partial(
        task.draw, SinglePrecisionSampler(model, ENDS), decode, config=settings.config, step=0,
        seed=0,
    )  # fmt: skip

    def reward(batch):
        return rl.subtract_length_penalties(task.reward(batch), batch, method, limit=12)

    sampled = rl.sample_and_reward(draw, reward, task.prompts, settings.config, method)
    failed = sampled.rollouts.failed()
    assert sampled.num_rounds == 1
    assert failed.sum() == 1
    assert sampled.used.tolist() == (~failed).tolist(), "every group carries a signal"


def test_a_group_whose_greedy_episode_failed_has_no_baseline():
    class FailsGreedily(EvenGame):
        number = -1

        def start(self, row, seed):
            FailsGreedily.number += 1
            self.fails = FailsGreedily.number == 3 * SIZE + 1  # greedy of the second row
            return super().start(row, seed)

        def step(self, message):
            if self.fails:
                raise OSError("gone")
            return super().step(message)

    task = episodes.make_task(make_player(FailsGreedily, max_failed_share=0.4), make_rows(6))
    (step,), _ = train(task, presets.method("remax"), SCHEDULE[:1])
    assert step.metrics["sampling/used"] == pytest.approx(2 / 3)
    assert step.metrics["episode/failed"] == 0


def test_a_preset_that_needs_a_reward_model_is_refused():
    episodes.check_method(presets.method("grpo_deepseekmath"))
    episodes.check_method(presets.method("ppo_process"))
    with pytest.raises(ValueError, match="value_init policy"):
        episodes.check_method(presets.method("ppo_instructgpt"))
