"""Configuration of reinforcement learning: what goes together, and what is refused."""

import presets
import pytest
from tiny_rollouts import OPTIM

from stages.loops.method import (
    HYPERPARAMETERS,
    GroupRlConfig,
    Method,
    PpoConfig,
    Settings,
    check_sizes,
)

SIZES = {
    "num_steps": 3, "prompts_per_step": 16, "temperature": 1.0, "max_new_tokens": 32,
    "num_checkpoints": 0, "optim": OPTIM,
}  # fmt: skip


def sizes(**changes):
    return GroupRlConfig(**{**SIZES, "group_size": 8} | changes)


def ppo_sizes(**changes):
    return PpoConfig(**{**SIZES, "samples_per_prompt": 1, "value_optim": OPTIM} | changes)


def test_the_defaults_are_grpo_of_deepseekmath():
    method = Method()
    assert method == Method(**presets.CONTENT["grpo_deepseekmath"])
    assert (method.advantage, method.surrogate, method.clip_low) == ("group_zscore", "clip", 0.2)
    assert (method.kl, method.kl_estimator, method.kl_coef) == ("loss", "k3", 0.04)


@pytest.mark.parametrize("choice", HYPERPARAMETERS)
def test_a_key_of_another_choice_is_refused(choice):
    """Every name of the choice with every value that does not use it."""
    table, defaults = HYPERPARAMETERS[choice], Method().model_dump()
    names = {name for item in table.values() for name in item}
    for value, names_of_value in table.items():
        for name in names - set(names_of_value):
            with pytest.raises(ValueError, match=rf"{name} is of no use with {choice} {value}"):
                Method(**{choice: value, name: defaults[name]})


@pytest.mark.parametrize("choice", HYPERPARAMETERS)
def test_a_key_of_the_choice_is_taken(choice):
    defaults = Method().model_dump()
    for value, names in HYPERPARAMETERS[choice].items():
        for name in names:
            buffer = {"overlong_buffer": 1} if name == "overlong_penalty" else {}
            method = Method(**{choice: value, name: defaults[name]} | buffer)
            assert getattr(method, choice) == value


def test_every_key_that_belongs_to_a_choice_and_every_value_of_it_is_one_of_method():
    fields = Method.model_fields
    for choice, table in HYPERPARAMETERS.items():
        assert set(table) == set(fields[choice].annotation.__args__)
        assert {name for names in table.values() for name in names} <= set(fields)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"advantage": "gae", "lam": 0.9, "lam_alpha": 1.0}, "lam or lam_alpha"),
        ({"overlong_penalty": 0.5}, "overlong_penalty .* overlong_buffer"),
        ({"advantage": "batch_whitened", "whiten_eps": None}, "batch_whitened needs whiten_eps"),
        ({"kl_coef": 0.0, "kl_target": 6.0}, "kl_target scales kl_coef"),
        (
            {"surrogate": "kl_penalty", "old_kl_coef": 0.0, "old_kl_target": 0.01},
            "old_kl_target scales old_kl_coef",
        ),
        ({"reward_coef": 0.2}, "reward_coef is of no use with advantage group_zscore"),
        ({"advantage": "teacher", "truncation_penalty": 0.2}, "reward_coef above 0"),
        ({"clip": 0.2}, "clip"),
        ({"advantage": "zscore"}, "advantage"),
        ({"clip_low": 1.0}, "clip_low"),
        ({"eps": 0.0}, "eps"),
        ({"max_rounds": 0}, "max_rounds"),
        ({"surrogate": "dual_clip", "dual_clip_cap": 1.0}, "dual_clip_cap"),
        ({"correction": "token_truncated", "correction_cap": 0.5}, "correction_cap"),
    ],
)
def test_keys_that_contradict_each_other_or_their_bounds_are_refused(content, place):
    with pytest.raises(ValueError, match=place):
        Method(**content)


def test_whitening_may_be_left_out_with_a_value_model():
    assert Method(advantage="gae", whiten_eps=None, lam_alpha=0.5).whiten_eps is None


def test_a_preset_of_ppo_has_a_value_model_and_one_of_grpo_has_none():
    from stages.train_rl import GrpoTraining, PpoTraining

    for name in (*presets.GROUP_RL, *presets.DISTILLATION, *presets.PPO):
        is_ppo = presets.method(name).advantage == "gae"
        for config, fits in ((GrpoTraining, not is_ppo), (PpoTraining, is_ppo)):
            field = config.model_fields["preset"]
            (check,) = (m for m in field.metadata if hasattr(m, "func"))
            if fits:
                assert check.func(presets.method(name)) == presets.method(name)
            else:
                with pytest.raises(ValueError, match="train: "):
                    check.func(presets.method(name))


def test_a_correction_is_decided_by_the_engine_unless_the_preset_decides():
    method = Method()
    assert method.correction == "auto"
    assert method.for_engine("transformers").correction == "none"
    truncated = method.for_engine("vllm")
    assert (truncated.correction, truncated.correction_cap) == ("token_truncated", 2.0)
    assert Method(correction_cap=3.0).for_engine("vllm").correction_cap == 3.0
    for engine in ("transformers", "vllm"):
        fixed = Method(correction="sequence_masked")
        assert fixed.for_engine(engine) == fixed


def test_a_completion_without_advantage_has_a_gradient_where_another_term_gives_it_one():
    assert Method().trains_on_zero_advantages()
    assert not Method(kl="none").trains_on_zero_advantages()
    assert not Method(kl="reward").trains_on_zero_advantages()
    assert Method(kl="none", entropy_coef=0.1).trains_on_zero_advantages()
    assert Method(kl="none", positive_nll_coef=0.1).trains_on_zero_advantages()


def test_the_reference_is_needed_where_its_divergence_decides_anything():
    assert Method().needs_reference()
    assert Method(kl="reward").needs_reference()
    assert not Method(kl="none").needs_reference()
    assert Method(kl="none", kl_budget=1.0).needs_reference()
    assert Method(kl="none", advantage="gae").needs_reference()
    # It is measured in any case, but beside a teacher.
    assert Method(kl="none").measures_kl
    assert not presets.method("opd").measures_kl
    assert presets.method("opd", kl_budget=1.0).measures_kl


@pytest.mark.parametrize("name", [*presets.GROUP_RL, *presets.DISTILLATION, *presets.PPO])
def test_every_preset_works_with_sizes_that_fit_it(name):
    method = presets.method(name)
    check_sizes(ppo_sizes() if method.advantage == "gae" else sizes(), method)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("dr_grpo", {"group_size": 1}, "group_size is 1; advantage group_centred"),
        ("dapo", {"max_new_tokens": 6}, "overlong_buffer 8 is more than max_new_tokens 6"),
        ("gspo", {"prompts_per_step": 2}, "num_minibatches 4 is more than prompts_per_step 2"),
    ],
)
def test_sizes_that_a_preset_cannot_work_with_are_refused(name, changes, message):
    with pytest.raises(ValueError, match=message):
        Settings(config=sizes(**changes), method=presets.method(name), seed=0)


def test_a_step_may_not_make_an_adaptive_coefficient_0():
    # Of 64 x 8 completions the largest step is 0.2 x 512 / horizon: 1 at 102.4.
    large = sizes(prompts_per_step=64)
    with pytest.raises(ValueError, match=r"kl_horizon 102: expected more than 0\.2 x 512 compl"):
        Settings(config=large, method=Method(kl_target=6.0, kl_horizon=102), seed=0)
    check_sizes(large, Method(kl_target=6.0, kl_horizon=103))
    check_sizes(large, Method(kl_horizon=102))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_minibatches": 17}, "num_minibatches 17 is more than prompts_per_step 16"),
        ({"value_warmup_steps": 3}, "value_warmup_steps 3, in which .* none of num_steps 3"),
    ],
)
def test_sizes_that_ppo_cannot_work_with_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        check_sizes(ppo_sizes(), presets.method("ppo_instructgpt", **changes))


def test_one_completion_a_prompt_is_enough_where_others_are_not_the_baseline():
    for name in ("remax", "reinforce_pp", "opd"):
        check_sizes(sizes(group_size=1), presets.method(name))
    with pytest.raises(ValueError, match="reward_coef compares"):
        check_sizes(sizes(group_size=1), presets.method("opd", reward_coef=0.1))
    check_sizes(sizes(group_size=2), presets.method())


def test_groups_of_one_never_differ_so_dynamic_sampling_would_learn_from_none():
    method = presets.method("reinforce_pp", max_rounds=2)
    with pytest.raises(ValueError, match="group_size is 1; max_rounds 2 looks for prompts whose"):
        check_sizes(sizes(group_size=1), method)
    check_sizes(sizes(group_size=2), method)
    # They may differ from the greedy completion.
    check_sizes(sizes(group_size=1), presets.method("remax", max_rounds=2))


def test_a_step_may_need_as_many_prompts_as_its_rounds_of_sampling():
    for rounds in (1, 3):
        settings = Settings(config=sizes(), method=Method(max_rounds=rounds), seed=0)
        assert settings.max_prompts() == 16 * rounds
