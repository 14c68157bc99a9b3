"""PPO: sizes, and every choice that sets a variant apart from the others."""

from typing import Annotated

from pydantic import Field

from stages.algorithms.token_advantages import length_adaptive_lambda
from stages.choice import Choice, OneOf
from stages.loops import rl_preset
from stages.loops.critic import ValueConfig
from stages.loops.rl_preset import RlConfig, RlPreset
from stages.optim import OptimConfig
from stages.rewards.reward_file import RewardFile


def fixed(*, value: float) -> float:
    """One lambda for every completion. 1: return minus value; 0: the one-step residual."""
    return value


Lambda = Annotated[
    Choice,
    OneOf(
        {"fixed": fixed, "length_adaptive": length_adaptive_lambda},
        given=("lengths",),
        bounds={"value": Field(ge=0, le=1), "alpha": Field(gt=0)},
        number="fixed",
    ),
]
"""Lambda of generalised advantage estimation: a number, or longer for longer completions."""


class PpoConfig(RlConfig):
    """Sizes and rates, the same for every preset."""

    samples_per_prompt: int = Field(gt=0)
    """Completions of each prompt; 1 in the paper, more share the reading of the prompt."""
    value_optim: OptimConfig


class PpoPreset(RlPreset):
    """Whose variant it is."""

    gamma: float = Field(gt=0, le=1)
    """Discount per token."""
    lam: Lambda
    """For the policy's advantages."""
    value_lam: float = Field(ge=0, le=1)
    """Lambda of the returns that the value model learns; VAPO: 1."""
    whiten_eps: float | None = Field(gt=0)
    """Added to the variance when advantages are whitened over the batch; null: they are not."""
    value: ValueConfig


def check(config: PpoConfig, preset: PpoPreset) -> None:
    """Refuse sizes that the preset cannot work with; see `rl_preset.check`."""
    rl_preset.check(config, preset)


def check_reward(config: PpoConfig, preset: PpoPreset, reward: RewardFile) -> None:
    """Refuse a reward that the preset makes nothing of.

    Raises:
        ValueError: saying what it needs.
    """
    parts = reward.composition
    parts.check_lengths(config.max_new_tokens)
    parts.check_group_size(config.samples_per_prompt, "samples_per_prompt")
    if parts.combine.kind == "normalise":
        raise ValueError("the value model is PPO's baseline: its reward needs combine: {kind: sum}")
    if "group" in parts.compares() and config.samples_per_prompt == 1:
        raise ValueError(
            "samples_per_prompt is 1; a component with normalise group compares the completions of "
            "a prompt with each other: at least 2, or normalise batch"
        )
    if preset.value.init == "reward_model" and reward.model != "reward":
        raise ValueError(
            f"value.init is reward_model: expected a reward whose model scores completions, found "
            f"one of kind {reward.kind} whose model is {reward.model}. Take a preset with "
            f"value.init policy, such as ppo_process, or another reward."
        )
