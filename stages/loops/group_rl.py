"""Policy optimisation without a value model: sample groups, learn from what sets them apart.

GRPO and its relatives (DAPO, Dr. GRPO, GSPO, CISPO, RLOO, ReMax, REINFORCE++) differ in the
choices of a `GroupRlPreset` and in nothing else.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from stages.algorithms.length_and_repetition import soft_overlong
from stages.loops import advantages, divergence, rl_loop
from stages.loops import rollouts as rollout_batch
from stages.loops.advantages import ALONE, Advantage, Scored
from stages.loops.epochs import Schedule
from stages.loops.group_sampling import Sampling, Shaped
from stages.loops.policy_gradient import Experience, partition, split
from stages.loops.rl_loop import RlConfig, RlPreset
from stages.loops.rollouts import Actor, Rollouts, Task
from stages.loops.work import Step
from stages.models.device import ComputeConfig
from stages.params import Params
from stages.rewards.reward_file import RewardFile
from stages.seeding import derive


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
    """Refuse sizes that the preset cannot work with, before anything is computed."""
    rl_loop.check(config, preset)
    kind, first = preset.advantage.kind, preset.sampling.own.get("first", 1)
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
    if config.group_size % first:
        raise ValueError(
            f"sampling.first {first} does not divide group_size {config.group_size}: groups grow "
            f"by `first` completions at a time"
        )


def check_reward(config: GroupRlConfig, preset: GroupRlPreset, reward: RewardFile) -> None:
    """Refuse a reward that the preset makes nothing of.

    Raises:
        ValueError: values normalised over a step's completions would be normalised again, or over
            others than are learned from; a longer `buffer` than completions; completions without
            siblings before a judge; nothing that could judge steps.
    """
    parts, kind = reward.composition, preset.advantage.kind
    parts.check_lengths(config.max_new_tokens)
    parts.check_group_size(config.group_size, "group_size")
    if parts.needs_judge() and kind == "greedy_baseline":
        raise ValueError(
            "a reward with a component of kind judge compares the completions of a prompt with "
            "each other, and greedy_baseline has one rewarded by itself: take another advantage"
        )
    if kind == "step_zscore" and reward.model != "process":
        raise ValueError(
            f"advantage step_zscore compares rewards of steps: expected a reward with a process "
            f"model, found one of kind {reward.kind} whose model is {reward.model}"
        )
    whole = preset.sampling.kind == "fixed" and preset.truncation.kind != "exclude"
    if parts.compares() and not (whole and kind != "greedy_baseline"):
        raise ValueError(
            "a reward with normalised components compares the completions of a step, all of which "
            "must be drawn together: it needs a preset with sampling fixed, truncation penalise or "
            "mask, and another advantage than greedy_baseline"
        )
    if parts.combine.kind == "normalise" and kind != "group_centred":
        raise ValueError(
            "a reward with combine: normalise is an advantage already (GDPO): it needs a preset "
            "with advantage group_centred, which leaves it as it is; dr_grpo is one"
        )


def train(
    actor: Actor,
    task: Task,
    schedule: Schedule,
    config: GroupRlConfig,
    preset: GroupRlPreset,
    compute: ComputeConfig,
    seed: int,
) -> Iterator[Step]:
    """One step for each list of prompt numbers in `schedule`; the policy is changed in place.

    Each list holds `group_sampling.num_prompts(preset.sampling, config.prompts_per_step)` prompts.
    See `gather` for rewards and advantages, and `rl_loop.train` for the rest.

    Raises:
        ValueError: what `check` raises; the preset penalises a divergence and there is no
            reference; or see `rl_loop.train`.
    """
    check(config, preset)
    if actor.reference is None and (preset.kl.kind != "none" or preset.kl_budget is not None):
        raise ValueError("this preset needs the divergence from a reference: give one, or kl: none")
    collect = partial(gather, actor, task, config, preset, compute, seed)
    return rl_loop.train(actor, collect, schedule, config, preset, compute)


def gather(
    actor: Actor,
    task: Task,
    config: GroupRlConfig,
    preset: GroupRlPreset,
    compute: ComputeConfig,
    seed: int,
    step: int,
    chosen: Sequence[int],
    kl_coef: float,
) -> Experience:
    """Sample for the prompts with numbers `chosen`, judge, and compare within groups.

    A completion whose advantage is 0 costs nothing, where nothing else gives it a gradient.
    """
    sample = partial(
        rollout_batch.collect,
        actor.sampler,
        actor.decode,
        step=step,
        seed=seed,
        max_new_tokens=config.max_new_tokens,
    )

    def draw(numbers: Sequence[int], group_size: int, part: int) -> Rollouts:
        prompts = [task.prompts[i] for i in numbers]
        return sample(prompts, group_size=group_size, temperature=config.temperature, part=part)

    judge = partial(shape, task, config, preset)
    collected = preset.sampling(
        draw=draw,
        judge=judge,
        chosen=chosen,
        prompts_per_step=config.prompts_per_step,
        group_size=config.group_size,
    )
    drawn, shaped, used = collected.rollouts, collected.shaped, collected.used
    correct = task.verdicts(drawn)
    metrics = rollout_batch.statistics(drawn, shaped.rewards(), correct, shaped.judged)
    if task.correct is None:
        del metrics["reward/accuracy"]
    metrics["sampling/rounds"] = collected.num_rounds
    metrics["sampling/used"] = used.float().mean().item()
    groups = torch.tensor(drawn.groups)
    ref_logprobs, penalties = None, torch.zeros(drawn.mask().shape)
    if actor.reference is not None:
        ref_logprobs = divergence.reference_logprobs(
            actor.reference, drawn, compute, actor.pad_id, config.temperature
        )
        metrics |= divergence.from_reference(drawn, ref_logprobs)
        penalties = divergence.penalties(preset.kl, kl_coef, drawn, ref_logprobs)

    def greedy_rewards() -> Float[Tensor, " batch"]:
        greedy = sample(drawn.prompts, group_size=1, temperature=0.0)
        metrics["tokens/generated"] += int(greedy.mask().sum())
        shaped_greedy = judge(greedy)
        for name, count in rollout_batch.work_done(greedy, shaped_greedy.judged).items():
            metrics[name] += count
        return shaped_greedy.rewards()[groups]

    found = advantages.of_tokens(
        preset.advantage,
        Scored(
            end_rewards=shaped.end_rewards,
            penalties=penalties,
            mask=drawn.mask(),
            groups=groups,
            counted=shaped.in_baseline & used,
            greedy_rewards=greedy_rewards,
            step_rewards=shaped.judged.step_rewards,
            step_ends=shaped.judged.step_ends,
        ),
    )
    moved = (found != 0).any(1)
    metrics["advantage/zero_share"] = (~moved).float().mean().item()
    learned = used & preset.truncation(truncated=drawn.truncated()).in_loss
    prompts = groups[used].unique().tolist()
    order = partition(len(prompts), preset.num_minibatches, derive(seed, "minibatches", step))
    return Experience(
        rollouts=drawn,
        rewards=shaped.rewards(),
        correct=correct,
        minibatches=split(
            drawn,
            used=used,
            learned=learned,
            computed=learned if preset.dense() else learned & moved,
            parts=[[prompts[i] for i in numbers] for numbers in order],
            max_length=config.max_new_tokens,
            compute=compute,
            pad_id=actor.pad_id,
            device=actor.policy.device,
        ),
        advantages=found,
        ref_logprobs=ref_logprobs,
        metrics=metrics,
    )


def shape(task: Task, config: GroupRlConfig, preset: GroupRlPreset, drawn: Rollouts) -> Shaped:
    """The task's rewards, lowered for completions that were cut or come near the length limit."""
    treatment, judged = preset.truncation(truncated=drawn.truncated()), task.reward(drawn)
    end_rewards = torch.tensor(judged.totals, dtype=torch.float32) - treatment.penalties
    if preset.overlong is not None:
        end_rewards = end_rewards + preset.overlong.penalty * soft_overlong(
            drawn.mask().sum(1), max_length=config.max_new_tokens, buffer=preset.overlong.buffer
        )
    return Shaped(judged=judged, end_rewards=end_rewards, in_baseline=treatment.in_baseline)
