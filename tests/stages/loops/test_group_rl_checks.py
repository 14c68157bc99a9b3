import presets
import pytest
from stages.loops.group_rl import GroupRlConfig, check, check_reward
from tiny_rollouts import OPTIM

SIZES = {
    "num_steps": 1,
    "prompts_per_step": 16,
    "group_size": 8,
    "temperature": 1.0,
    "max_new_tokens": 32,
    "num_checkpoints": 0,
    "optim": OPTIM,
}


@pytest.mark.parametrize("name", presets.GROUP_RL)
def test_every_preset_works_with_sizes_that_fit_it(name):
    check(GroupRlConfig(**SIZES), presets.group_rl(name))


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("dr_grpo", {"group_size": 1}, "group_size is 1; advantage group_centred"),
        ("dapo", {"max_new_tokens": 6}, "overlong.buffer 8 is more than max_new_tokens 6"),
        ("gspo", {"prompts_per_step": 2}, "num_minibatches 4 is more than prompts_per_step 2"),
    ],
)
def test_sizes_that_a_preset_cannot_work_with_are_refused(name, sizes, message):
    with pytest.raises(ValueError, match=message):
        check(GroupRlConfig(**SIZES | sizes), presets.group_rl(name))


def test_one_completion_a_prompt_is_enough_where_others_are_not_the_baseline():
    for name in ("remax", "reinforce_pp"):
        check(GroupRlConfig(**SIZES | {"group_size": 1}), presets.group_rl(name))


def reward(name, model="reward"):
    return presets.reward(name, model)


def test_normalised_rewards_go_with_presets_that_leave_them_as_they_are():
    check_reward(GroupRlConfig(**SIZES), presets.group_rl("dr_grpo"), reward("rule_gdpo"))
    for name in ("grpo_deepseekmath", "gspo", "rloo"):
        with pytest.raises(ValueError, match="is an advantage already"):
            check_reward(GroupRlConfig(**SIZES), presets.group_rl(name), reward("rule_gdpo"))


@pytest.mark.parametrize("name", ["rule_gdpo", "rule_model"])
def test_what_compares_completions_needs_all_of_them_drawn_together(name):
    for preset, changes in (
        ("dapo", {}),
        ("remax", {}),
        ("dr_grpo", {"truncation": {"kind": "exclude"}}),
    ):
        with pytest.raises(ValueError, match="all of which must be drawn together"):
            check_reward(GroupRlConfig(**SIZES), presets.group_rl(preset, **changes), reward(name))


def test_other_rewards_go_with_every_preset():
    for preset in set(presets.GROUP_RL) - {"grpo_process"}:
        for name in ("rule", "model", "answer_concise", "rule_own"):
            check_reward(GroupRlConfig(**SIZES), presets.group_rl(preset), reward(name))


def test_what_compares_steps_needs_a_process_model():
    by_step = GroupRlConfig(**SIZES), presets.group_rl("grpo_process")
    for name in ("process_sum", "answer_process_min", "model"):
        check_reward(*by_step, reward(name, "process"))
    for name in ("rule", "model"):
        with pytest.raises(ValueError, match="expected a reward with a process model, found one"):
            check_reward(*by_step, reward(name))


def test_a_buffer_of_the_reward_must_fit_too():
    small = GroupRlConfig(**SIZES | {"max_new_tokens": 6})
    with pytest.raises(ValueError, match=r"overlong\.value\.buffer 8 is more than max_new"):
        check_reward(small, presets.group_rl(), reward("answer_concise"))


def test_a_judge_compares_completions_of_a_prompt():
    judge = reward("judge_wins", "policy")
    check_reward(GroupRlConfig(**SIZES), presets.group_rl(), judge)
    with pytest.raises(ValueError, match="greedy_baseline has one rewarded by itself"):
        check_reward(
            GroupRlConfig(**SIZES), presets.group_rl("remax"), reward("judge_wins", "policy")
        )
    alone = GroupRlConfig(**SIZES | {"group_size": 1})
    with pytest.raises(
        ValueError, match="group_size is 1: a reward with a component of kind judge"
    ):
        check_reward(alone, presets.group_rl("reinforce_pp"), judge)
