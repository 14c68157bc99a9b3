import presets
import pytest
from tiny_rollouts import OPTIM

from stages.loops.group_preset import GroupRlConfig, check, check_normalised

SIZES = {
    "num_steps": 1,
    "prompts_per_step": 16,
    "group_size": 8,
    "temperature": 1.0,
    "max_new_tokens": 32,
    "optim": OPTIM,
}


@pytest.mark.parametrize("name", presets.CONTENT["group_rl"])
def test_every_preset_works_with_sizes_that_fit_it(name):
    check(GroupRlConfig(**SIZES), presets.group_rl(name))


@pytest.mark.parametrize(
    ("name", "sizes", "choices", "message"),
    [
        ("dr_grpo", {"group_size": 1}, {}, "group_size is 1; advantage group_centred"),
        ("dapo", {"max_new_tokens": 6}, {}, "overlong.buffer 8 is more than max_new_tokens 6"),
        ("gspo", {"prompts_per_step": 2}, {}, "num_minibatches 4 is more than prompts_per_step 2"),
        ("rloo", {}, {"sampling": {"kind": "adaptive", "first": 3}}, "first 3 does not divide"),
    ],
)
def test_sizes_that_a_preset_cannot_work_with_are_refused(name, sizes, choices, message):
    with pytest.raises(ValueError, match=message):
        check(GroupRlConfig(**SIZES | sizes), presets.group_rl(name, **choices))


def test_one_completion_a_prompt_is_enough_where_others_are_not_the_baseline():
    for name in ("remax", "reinforce_pp"):
        check(GroupRlConfig(**SIZES | {"group_size": 1}), presets.group_rl(name))


def test_normalised_rewards_go_with_presets_that_leave_them_as_they_are():
    check_normalised(presets.group_rl("dr_grpo"))
    check(GroupRlConfig(**SIZES), presets.group_rl("dr_grpo"), normalised=True)
    for name in ("grpo_deepseekmath", "remax", "dapo"):
        with pytest.raises(ValueError, match="is an advantage already"):
            check(GroupRlConfig(**SIZES), presets.group_rl(name), normalised=True)
