"""What goes together in a method of reinforcement learning, its sizes and its reward.

A row is refused if it has a word, which the message must have: the key, or what is expected.
"""

from dataclasses import replace

import presets
import pytest
from tiny_rollouts import OPTIM, make_prompts

from stages.loops import episodes, teacher
from stages.loops.method import GroupRlConfig, Method, PpoConfig, Settings, check_sizes
from stages.loops.rollout_rewards import check_reward
from stages.train_rl import GrpoTraining, PpoTraining

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


def test_the_defaults_are_grpo_of_deepseekmath():
    method = Method()
    assert method == Method(**presets.CONTENT["grpo_deepseekmath"])
    assert (method.advantage, method.surrogate, method.clip_low) == ("group_zscore", "clip", 0.2)
    assert (method.kl, method.kl_estimator, method.kl_coef) == ("loss", "k3", 0.04)


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        # A number of another value of the choice
        ({"advantage": "group_centred", "eps": 0.1}, "eps"),
        ({"advantage": "teacher", "max_rounds": 2}, "max_rounds"),
        ({"advantage": "mean_normalised", "overlong_buffer": 2}, "overlong_buffer"),
        ({"advantage": "gae", "ddof": 1}, "ddof"),
        ({"lam": 0.9}, "lam"),
        ({"reward_coef": 0.2}, "reward_coef"),
        ({"surrogate": "reinforce", "clip_low": 0.1}, "clip_low"),
        ({"surrogate": "cispo", "dual_clip_cap": 2.0}, "dual_clip_cap"),
        ({"kl": "none", "kl_coef": 0.1}, "kl_coef"),
        ({"kl": "reward", "kl_level": "token"}, "kl_level"),
        ({"correction": "none", "correction_cap": 2.0}, "correction_cap"),
        ({"correction": "token_masked", "correction_cap": 2.0}, "correction_cap"),
        ({"truncation": "mask", "truncation_penalty": 0.1}, "truncation_penalty"),
        # Numbers that contradict each other
        ({"advantage": "gae", "lam": 0.9, "lam_alpha": 1.0}, "lam_alpha"),
        ({"overlong_penalty": 0.5}, "overlong_buffer"),
        ({"overlong_penalty": 0.5, "overlong_buffer": 1}, None),
        ({"advantage": "batch_whitened", "whiten_eps": None}, "whiten_eps"),
        ({"advantage": "gae", "whiten_eps": None, "lam_alpha": 0.5}, None),
        ({"advantage": "mean_normalised", "kl": "reward"}, "mean_normalised"),
        ({"advantage": "mean_normalised", "truncation_penalty": 0.1}, "mean_normalised"),
        ({"kl_coef": 0.0, "kl_target": 6.0}, "kl_target"),
        ({"surrogate": "kl_penalty", "old_kl_coef": 0.0, "old_kl_target": 0.1}, "old_kl_target"),
        ({"advantage": "teacher", "truncation_penalty": 0.2}, "reward_coef"),
        ({"advantage": "teacher", "truncation_penalty": 0.2, "reward_coef": 1.0}, None),
        # An end that is not known before, and batches that are drawn ahead
        ({"token_budget": 1000}, None),
        ({"token_budget": 1000, "staleness": 1}, "staleness"),
        ({"kl_budget": 1.0, "staleness": 1}, "staleness"),
        # Bounds
        ({"clip": 0.2}, "clip"),
        ({"advantage": "zscore"}, "advantage"),
        ({"clip_low": 1.0}, "clip_low"),
        ({"eps": 0.0}, "eps"),
        ({"max_rounds": 0}, "max_rounds"),
        ({"surrogate": "dual_clip", "dual_clip_cap": 1.0}, "dual_clip_cap"),
        ({"correction": "token_truncated", "correction_cap": 0.5}, "correction_cap"),
    ],
    ids=str,
)
def test_keys_of_a_method(keys, word):
    check(lambda: Method(**keys), word)


PPO, REMAX = "ppo_instructgpt", "remax"


@pytest.mark.parametrize(
    ("name", "changes", "config", "word"),
    [
        *((name, {}, {}, None) for name in RL),
        ("dr_grpo", {}, {"size": 1}, "group_size is 1"),
        ("dr_grpo", {}, {"size": 2}, None),
        ("dapo", {}, {"max_new_tokens": 6}, "overlong_buffer 8"),
        ("dapo", {}, {"max_new_tokens": 8}, None),
        ("gspo", {}, {"prompts_per_step": 3}, "num_minibatches 4"),
        ("gspo", {}, {"prompts_per_step": 4}, None),
        (PPO, {"num_minibatches": 17}, {}, "num_minibatches 17"),
        (PPO, {"value_warmup_steps": 3}, {}, "value_warmup_steps 3"),
        (PPO, {"value_warmup_steps": 2}, {}, None),
        (PPO, {"value_warmup_steps": 3, "token_budget": 9}, {}, None),
        # Of 64 x 8 completions the largest step is 0.2 x 512 / horizon: 1 at 102.4.
        ("dr_grpo", {"kl": "loss", "kl_target": 6.0, "kl_horizon": 102}, {"prompts_per_step": 64},
         "kl_horizon 102"),
        ("dr_grpo", {"kl": "loss", "kl_target": 6.0, "kl_horizon": 103}, {"prompts_per_step": 64},
         None),
        # One completion a prompt, where others are not the baseline
        (REMAX, {}, {"size": 1}, None),
        ("reinforce_pp", {}, {"size": 1}, None),
        ("opd", {}, {"size": 1}, None),
        ("opd", {"reward_coef": 0.1}, {"size": 1}, "reward_coef"),
        # Groups of one never differ, but from the greedy completion
        ("reinforce_pp", {"max_rounds": 2}, {"size": 1}, "max_rounds 2"),
        ("reinforce_pp", {"max_rounds": 2}, {"size": 2}, None),
        (REMAX, {"max_rounds": 2}, {"size": 1}, None),
    ],
    ids=str,
)  # fmt: skip
def test_sizes_of_a_preset(name, changes, config, word):
    method = presets.method(name, **changes)
    check(lambda: check_sizes(sizes(method, **config), method), word)
    check(lambda: Settings(config=sizes(method, **config), method=method, seed=0), word)


@pytest.mark.parametrize(
    ("name", "changes", "config", "rule", "model", "word"),
    [
        # GDPO is an advantage already.
        ("dr_grpo", {}, {}, "rule_gdpo", None, None),
        ("gspo", {}, {}, "rule_gdpo", None, "dr_grpo"),
        (PPO, {}, {}, "rule_gdpo", "reward", "combine"),
        # What compares completions needs all of them drawn together, and groups.
        ("grpo_deepseekmath", {}, {}, "rule_model", "reward", None),
        ("dapo", {}, {}, "rule_model", "reward", "max_rounds"),
        (REMAX, {}, {}, "rule_model", "reward", "greedy_baseline"),
        ("dr_grpo", {"truncation": "exclude"}, {}, "rule_model", "reward", "truncation"),
        ("dr_grpo", {"truncation": "mask"}, {}, "rule_model", "reward", None),
        ("reinforce_pp", {}, {"size": 1}, "rule_model", "reward", "group_size is 1"),
        ("reinforce_pp", {}, {"size": 1}, "rule", None, None),
        ("ppo_process", {}, {"size": 1}, "rule_model", "reward", "samples_per_prompt is 1"),
        ("ppo_process", {}, {"size": 2}, "rule_model", "reward", None),
        ("grpo_deepseekmath", {}, {}, "judge_wins", "policy", None),
        (REMAX, {}, {}, "judge_wins", "policy", "greedy_baseline"),
        ("reinforce_pp", {}, {"size": 1}, "judge_wins", "policy", "group_size is 1"),
        # A mean reward that is divided by is not negative.
        ("maxrl", {}, {}, "rule", None, None),
        ("maxrl", {}, {}, "model", "reward", "mean_normalised"),
        ("maxrl", {}, {}, "answer_concise", None, "mean_normalised"),
        # Rewards of steps
        ("grpo_process", {}, {}, "process_sum", "process", None),
        ("grpo_process", {}, {}, "rule", "reward", "process model"),
        # A value model from a reward model
        (PPO, {}, {}, "model", "reward", None),
        (PPO, {}, {}, "rule", None, "value_init"),
        (PPO, {}, {}, "process_sum", "process", "value_init"),
        ("ppo_process", {}, {}, "rule", None, None),
        # A buffer within the limit
        ("grpo_deepseekmath", {}, {"max_new_tokens": 6}, "answer_concise", None, "buffer 8"),
        ("grpo_deepseekmath", {}, {"max_new_tokens": 8}, "answer_concise", None, None),
    ],
    ids=str,
)
def test_rewards_that_a_method_can_learn_from(name, changes, config, rule, model, word):
    method = presets.method(name, **changes)
    reward = presets.reward(rule, model)
    check(lambda: check_reward(sizes(method, **config), method, reward), word)


@pytest.mark.parametrize(
    ("on", "name", "word"),
    [
        ("policies/grpo", "opd", None),
        ("demonstrations", "self_distillation", None),
        ("rewards/rule", "dr_grpo", None),
        ("environments/game", "dr_grpo", None),
        ("policies/grpo", "dr_grpo", "group_centred"),
        ("demonstrations", "dr_grpo", "group_centred"),
        ("rewards/rule", "opd", "policies/"),
        ("environments/game", "opd", "policies/"),
        ("demonstrations", "opd", "policies/"),
        ("policies/grpo", "self_distillation", "demonstrations"),
    ],
)
def test_what_a_row_learns_from(on, name, word):
    check(lambda: teacher.check_source(on, presets.method(name)), word)


@pytest.mark.parametrize(
    ("name", "word"), [("dr_grpo", None), ("ppo_process", None), (PPO, "value_init")]
)
def test_methods_that_can_learn_in_an_environment(name, word):
    check(lambda: episodes.check_method(presets.method(name)), word)


@pytest.mark.parametrize(("coef", "answer", "word"), [(0, None, None), (1, None, "2 of 2"),
                                                      (1, "4", None)])  # fmt: skip
def test_verdicts_that_count_need_gold_answers(coef, answer, word):
    prompts = [replace(row, answer=answer) for row in make_prompts(2)]
    check(lambda: teacher.check_answers(prompts, presets.method("opd", reward_coef=coef)), word)


@pytest.mark.parametrize("name", RL)
def test_a_preset_belongs_to_ppo_or_to_grpo(name):
    method = presets.method(name)
    for config, is_ppo in ((GrpoTraining, False), (PpoTraining, True)):
        (validator,) = (m for m in config.model_fields["preset"].metadata if hasattr(m, "func"))
        fits = (name in presets.PPO) == is_ppo
        check(lambda v=validator: v.func(method), None if fits else "train: ")


@pytest.mark.parametrize(
    ("keys", "engine", "correction"),
    [
        ({}, "transformers", "none"),
        ({}, "vllm", "token_truncated"),
        ({"staleness": 1}, "transformers", "token_truncated"),
        ({"staleness": 1, "correction": "none"}, "vllm", "none"),
        ({"correction": "sequence_masked"}, "transformers", "sequence_masked"),
        ({"correction": "sequence_masked"}, "vllm", "sequence_masked"),
    ],
)
def test_a_correction_is_decided_by_engine_and_staleness_unless_the_preset_decides(
    keys, engine, correction
):
    method = Method(**keys).for_engine(engine)
    assert method.correction == correction
    assert Method(correction_cap=3.0).for_engine("vllm").correction_cap == 3.0


@pytest.mark.parametrize(
    ("keys", "trains_on_zero", "needs_reference", "measures_kl"),
    [
        ({}, True, True, True),
        ({"kl": "none"}, False, False, True),
        ({"kl": "reward"}, False, True, True),
        ({"kl": "none", "entropy_coef": 0.1}, True, False, True),
        ({"kl": "none", "positive_nll_coef": 0.1}, True, False, True),
        ({"kl": "none", "kl_budget": 1.0}, False, True, True),
        ({"kl": "none", "advantage": "gae"}, False, True, True),
        ({"kl": "none", "advantage": "teacher"}, True, False, False),
        ({"kl": "none", "advantage": "teacher", "kl_budget": 1.0}, True, True, True),
    ],
    ids=str,
)
def test_what_follows_from_the_terms_of_a_method(
    keys, trains_on_zero, needs_reference, measures_kl
):
    method = Method(**keys)
    assert method.trains_on_zero_advantages() == trains_on_zero
    assert method.needs_reference() == needs_reference
    assert method.measures_kl == measures_kl


def test_a_step_may_need_as_many_prompts_as_its_rounds_of_sampling_and_lags_at_most_as_far():
    for rounds in (1, 3):
        method = Method(max_rounds=rounds)
        assert Settings(config=sizes(method), method=method, seed=0).max_prompts() == 16 * rounds
    assert [Method(staleness=2).lag(index) for index in range(4)] == [0, 1, 2, 2]
