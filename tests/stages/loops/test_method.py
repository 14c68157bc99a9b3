"""What goes together in a method of reinforcement learning, its sizes and its reward: method.yaml.

A row is refused if it ends with a word, which the message must have.
"""

from dataclasses import replace
from pathlib import Path

import presets
import pytest
import torch
from ruamel.yaml import YAML
from tiny_rollouts import OPTIM, make_prompts

from stages.loops import episodes, rl, teacher
from stages.loops.method import GroupRlConfig, Method, PpoConfig, Settings, check_sizes
from stages.loops.rollout_rewards import check_reward
from stages.train_rl import GrpoTraining, PpoTraining

CASES = YAML(typ="safe").load(Path(__file__).with_name("method.yaml"))
SIZES = {
    "num_steps": 3, "prompts_per_step": 16, "temperature": 1.0, "max_new_tokens": 32,
    "num_checkpoints": 0, "optim": OPTIM,
}  # fmt: skip
RL = (*presets.GROUP_RL, *presets.DISTILLATION, *presets.PPO)


def sizes(method, **changes):
    size = changes.pop("size", 8)
    if method.advantage == "gae":
        return PpoConfig(**SIZES | changes, samples_per_prompt=size, value_optim=OPTIM)
    return GroupRlConfig(**SIZES | changes, group_size=size)


def check(call, word):
    if word is None:
        call()
        return
    with pytest.raises(ValueError, match=word):
        call()


def check_keys(keys):
    Method(**keys)


def check_sizes_of(name, changes, config):
    method = presets.method(name, **changes)
    Settings(config=sizes(method, **config), method=method, seed=0)


def check_reward_of(name, changes, config, rule, model):
    method = presets.method(name, **changes)
    check_reward(sizes(method, **config), method, presets.reward(rule, model))


def check_source(on, name):
    teacher.check_source(on, presets.method(name))


def check_in_environment(name):
    episodes.check_method(presets.method(name))


def check_verdicts(preset, changes, answer):
    first, second = make_prompts(2)
    prompts = [replace(first, answer="4"), replace(second, answer=answer)]
    teacher.check_golds(prompts, presets.method(preset, **changes))


CHECKS = {
    "keys": check_keys, "sizes": check_sizes_of, "rewards": check_reward_of,
    "sources": check_source, "environments": check_in_environment, "verdicts": check_verdicts,
}  # fmt: skip


@pytest.mark.parametrize(("kind", "row"), [(kind, row) for kind in CHECKS for row in CASES[kind]])
def test_what_goes_together(kind, row):
    *inputs, word = row
    check(lambda: CHECKS[kind](*inputs), word)


@pytest.mark.parametrize("name", RL)
def test_a_preset_fits_its_sizes_and_belongs_to_ppo_or_to_grpo(name):
    method = presets.method(name)
    check_sizes(sizes(method), method)
    for config, is_ppo in ((GrpoTraining, False), (PpoTraining, True)):
        (validator,) = (m for m in config.model_fields["preset"].metadata if hasattr(m, "func"))
        fits = (name in presets.PPO) == is_ppo
        check(lambda v=validator: v.func(method), None if fits else "train: ")


@pytest.mark.parametrize(("keys", "engine", "correction"), CASES["corrections"])
def test_a_correction_is_decided_by_engine_and_staleness_unless_the_preset_decides(
    keys, engine, correction
):
    assert Method(**keys).for_engine(engine).correction == correction
    assert Method(correction_cap=3.0).for_engine("vllm").correction_cap == 3.0


@pytest.mark.parametrize(("keys", "trains_on_zero", "needs_reference", "measures"), CASES["terms"])
def test_what_follows_from_the_terms_of_a_method(keys, trains_on_zero, needs_reference, measures):
    method = Method(**keys)
    assert method.trains_on_zero_advantages() == trains_on_zero
    assert method.needs_reference() == needs_reference
    assert method.measures_kl == measures


def test_a_step_may_need_as_many_prompts_as_its_rounds_of_sampling_and_lags_at_most_as_far():
    for rounds in (1, 3):
        method = Method(max_rounds=rounds)
        assert Settings(config=sizes(method), method=method, seed=0).max_prompts() == 16 * rounds
    assert [Method(staleness=2).lag(index) for index in range(4)] == [0, 1, 2, 2]


@pytest.mark.parametrize("name", rl.CHOICES["surrogate"])
def test_a_completion_without_an_advantage_is_left_out_only_if_it_has_no_gradient(name):
    method = Method(surrogate=name, kl="none")
    new = torch.tensor([[-1.0, -2.0, -0.5]], requires_grad=True)
    old, zeros, mask = torch.tensor([[-1.2, -1.0, -0.6]]), torch.zeros(1, 3), torch.ones(1, 3) > 0
    losses, _ = rl.apply_choice("surrogate", method, new, old, zeros, mask)
    losses.sum().backward()
    assert method.trains_on_zero_advantages() == bool((new.grad != 0).any())


def test_a_surrogate_of_the_users_may_have_a_gradient_without_an_advantage():
    assert Method(surrogate="own/mine", kl="none").trains_on_zero_advantages()
