"""What a method without a value model is told: sizes, and every choice that makes it what it is."""

from pydantic import Field

from stages.loops.checkpoints import Kept
from stages.loops.choices.advantage import Advantage
from stages.loops.choices.sampling import Sampling
from stages.loops.choices.truncation import Truncation
from stages.loops.objective import ObjectiveConfig
from stages.optim import OptimConfig
from stages.params import Params
from stages.rewards.composition_config import Composition


class Overlong(Params):
    """DAPO's soft punishment of completions that come near the length limit."""

    buffer: int = Field(gt=0)
    """Tokens before the limit over which the punishment grows."""
    penalty: float = Field(gt=0)
    """Subtracted from the reward of a completion at the limit."""


class GroupRlConfig(Kept):
    """Sizes and rates, the same for every preset."""

    num_steps: int = Field(gt=0)
    """Rollout batches."""
    prompts_per_step: int = Field(gt=0)
    """Prompts that a rollout batch learns from."""
    group_size: int = Field(gt=0)
    """Completions of each prompt."""
    temperature: float = Field(gt=0)
    """Of sampling, and of every log-probability."""
    max_new_tokens: int = Field(gt=0)
    """Longest completion."""
    optim: OptimConfig


class GroupRlPreset(Params):
    """Whose variant it is: every choice in which the methods of this family differ."""

    advantage: Advantage
    objective: ObjectiveConfig
    sampling: Sampling
    truncation: Truncation
    overlong: Overlong | None
    num_epochs: int = Field(gt=0)
    """Passes over each rollout batch (mu); old log-probs are computed once."""
    num_minibatches: int = Field(gt=0)
    """Optimizer steps in a pass; the first of all is on policy."""
    kl_budget: float | None = Field(gt=0)
    """Training ends when a completion's divergence from the reference exceeds it, in nats."""
    token_budget: int | None = Field(gt=0)
    """Tokens, generated and trained on, in place of `num_steps` (see `pace`); null: none."""


def check(config: GroupRlConfig, preset: GroupRlPreset) -> None:
    """Refuse what the preset cannot work with, before anything is computed.

    Raises:
        ValueError: saying which number to change.
    """
    if config.group_size < preset.advantage.least_group_size:
        raise ValueError(
            f"group_size is {config.group_size}; advantage {preset.advantage.kind} compares the "
            f"completions of a prompt with each other: at least {preset.advantage.least_group_size}"
        )
    if preset.num_minibatches > config.prompts_per_step:
        raise ValueError(
            f"num_minibatches {preset.num_minibatches} is more than prompts_per_step "
            f"{config.prompts_per_step}: some would be empty"
        )
    if preset.overlong is not None and preset.overlong.buffer > config.max_new_tokens:
        raise ValueError(
            f"overlong.buffer {preset.overlong.buffer} is more than max_new_tokens "
            f"{config.max_new_tokens}: it is the last stretch before that limit"
        )
    preset.sampling.check(config.group_size)


def check_reward(config: GroupRlConfig, preset: GroupRlPreset, reward: Composition) -> None:
    """Refuse a reward that the preset makes nothing of.

    Raises:
        ValueError: what is normalised over a step's completions would be normalised again, or
            over others than are learned from; a longer `buffer` than completions; completions
            without siblings before a judge; nothing that could judge steps.
    """
    reward.check_lengths(config.max_new_tokens)
    reward.check_group_size(config.group_size, "group_size")
    if reward.needs_judge() and preset.advantage.kind == "greedy_baseline":
        raise ValueError(
            "a reward with a component of kind judge compares the completions of a prompt with "
            "each other, and greedy_baseline has one rewarded by itself: take another advantage"
        )
    if preset.advantage.kind == "step_zscore" and not reward.kinds() & {"process", "scorer"}:
        raise ValueError(
            "advantage step_zscore compares rewards of steps, and no component of the reward gives "
            "any: it needs one of kind process (process_sum has one), or of kind scorer with a "
            "process model"
        )
    whole = preset.sampling.kind == "fixed" and preset.truncation.kind != "exclude"
    if reward.compares() and not (whole and preset.advantage.kind != "greedy_baseline"):
        raise ValueError(
            "a reward with normalised components compares the completions of a step, all of which "
            "must be drawn together: it needs a preset with sampling fixed, truncation penalise or "
            "mask, and another advantage than greedy_baseline"
        )
    if reward.combine.kind == "normalise" and preset.advantage.kind != "group_centred":
        raise ValueError(
            "a reward with combine: normalise is an advantage already (GDPO): it needs a preset "
            "with advantage group_centred, which leaves it as it is; dr_grpo is one"
        )
