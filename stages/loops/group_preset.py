"""A method without a value model: sizes, and every choice that sets it apart from its relatives."""

from pydantic import Field

from stages.loops import group_sampling, rl_preset
from stages.loops.advantages import ALONE, Advantage
from stages.loops.group_sampling import Sampling
from stages.loops.rl_preset import RlConfig, RlPreset
from stages.params import Params
from stages.rewards.reward_file import RewardFile


class Overlong(Params):
    """DAPO's soft punishment of completions that come near the length limit."""

    buffer: int = Field(gt=0)
    """Tokens before the limit over which the punishment grows."""
    penalty: float = Field(gt=0)
    """Subtracted from the reward of a completion at the limit."""


class GroupRlConfig(RlConfig):
    """Sizes and rates, the same for every preset."""

    group_size: int = Field(gt=0)
    """Completions of each prompt."""


class GroupRlPreset(RlPreset):
    """Whose variant it is: every choice in which the methods of this family differ."""

    advantage: Advantage
    sampling: Sampling
    overlong: Overlong | None


def check(config: GroupRlConfig, preset: GroupRlPreset) -> None:
    """Refuse sizes that the preset cannot work with, before anything is computed.

    Raises:
        ValueError: saying which number to change.
    """
    rl_preset.check(config, preset)
    kind = preset.advantage.kind
    if config.group_size < 2 and kind not in ALONE:
        raise ValueError(
            f"group_size is {config.group_size}; advantage {kind} compares the completions of a "
            f"prompt with each other: at least 2"
        )
    if preset.overlong is not None and preset.overlong.buffer > config.max_new_tokens:
        raise ValueError(
            f"overlong.buffer {preset.overlong.buffer} is more than max_new_tokens "
            f"{config.max_new_tokens}: it is the last stretch before that limit"
        )
    group_sampling.check(preset.sampling, config.group_size)


def check_reward(config: GroupRlConfig, preset: GroupRlPreset, reward: RewardFile) -> None:
    """Refuse a reward that the preset makes nothing of.

    Raises:
        ValueError: values normalised over a step's completions would be normalised again, or over
            others than are learned from; a longer `buffer` than completions; completions without
            siblings before a judge; nothing that could judge steps.
    """
    parts = reward.composition
    parts.check_lengths(config.max_new_tokens)
    parts.check_group_size(config.group_size, "group_size")
    if parts.needs_judge() and preset.advantage.kind == "greedy_baseline":
        raise ValueError(
            "a reward with a component of kind judge compares the completions of a prompt with "
            "each other, and greedy_baseline has one rewarded by itself: take another advantage"
        )
    if preset.advantage.kind == "step_zscore" and reward.model != "process":
        raise ValueError(
            f"advantage step_zscore compares rewards of steps: expected a reward with a process "
            f"model, found one of kind {reward.kind} whose model is {reward.model}"
        )
    whole = preset.sampling.kind == "fixed" and preset.truncation.kind != "exclude"
    if parts.compares() and not (whole and preset.advantage.kind != "greedy_baseline"):
        raise ValueError(
            "a reward with normalised components compares the completions of a step, all of which "
            "must be drawn together: it needs a preset with sampling fixed, truncation penalise or "
            "mask, and another advantage than greedy_baseline"
        )
    if parts.combine.kind == "normalise" and preset.advantage.kind != "group_centred":
        raise ValueError(
            "a reward with combine: normalise is an advantage already (GDPO): it needs a preset "
            "with advantage group_centred, which leaves it as it is; dr_grpo is one"
        )
