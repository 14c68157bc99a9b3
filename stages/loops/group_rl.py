"""Policy optimisation without a value model: sample groups, learn from what sets them apart.

GRPO and its relatives (DAPO, Dr. GRPO, GSPO, CISPO, RLOO, ReMax, REINFORCE++) differ in the
choices of a `GroupRlPreset` and in nothing else.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from stages.algorithms.length_and_repetition import soft_overlong
from stages.loops import advantages, divergence, rl_loop, work
from stages.loops import rollouts as rollout_batch
from stages.loops.advantages import ALONE, Advantage, Scored
from stages.loops.group_sampling import Sampling
from stages.loops.policy_gradient import Experience, split
from stages.loops.rl_loop import RlConfig, RlPreset
from stages.loops.rollouts import Actor, Rollouts, Task
from stages.loops.state import State
from stages.loops.work import Step
from stages.params import Params
from stages.rewards.judged import Judged
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

    def max_prompts(self, config: RlConfig) -> int:
        """Prompts that a step may need."""
        return config.prompts_per_step * self.sampling.own.get("max_rounds", 1)


def check(config: GroupRlConfig, preset: GroupRlPreset) -> None:
    """Refuse sizes that the preset cannot work with, before anything is computed."""
    rl_loop.check(config, preset)
    size, limit, kind = config.group_size, config.max_new_tokens, preset.advantage.kind
    if size < 2 and kind not in ALONE:
        raise ValueError(f"group_size is {size}; advantage {kind} compares completions: at least 2")
    if preset.overlong is not None and preset.overlong.buffer > limit:
        buffer = preset.overlong.buffer
        raise ValueError(f"overlong.buffer {buffer} is more than max_new_tokens {limit}")


def check_reward(config: GroupRlConfig, preset: GroupRlPreset, reward: RewardFile) -> None:
    """Refuse a reward that the preset makes nothing of."""
    parts, kind = reward.composition, preset.advantage.kind
    parts.check_lengths(config.max_new_tokens)
    parts.check_group_size(config.group_size, "group_size")
    if parts.needs_judge() and kind == "greedy_baseline":
        raise ValueError(
            "a component of kind judge compares the completions of a prompt with each other, and "
            "greedy_baseline has one rewarded by itself: take another advantage"
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
            "must be drawn together: it needs sampling fixed, truncation penalise or mask, and "
            "another advantage than greedy_baseline"
        )
    if parts.combine.kind == "normalise" and kind != "group_centred":
        raise ValueError(
            "a reward with combine: normalise is an advantage already (GDPO): it needs a preset "
            "with advantage group_centred, which leaves it as it is; dr_grpo is one"
        )


def train(
    actor: Actor,
    task: Task,
    schedule: Iterable[Sequence[int]],
    config: GroupRlConfig,
    preset: GroupRlPreset,
    seed: int,
    state: State | None = None,
) -> Iterator[Step]:
    """One step for each list of prompt numbers in `schedule`; the policy is changed in place.

    See `gather` for rewards and advantages, and `rl_loop.train` for the rest.
    """
    check(config, preset)
    if actor.reference is None and (preset.kl.kind != "none" or preset.kl_budget is not None):
        raise ValueError("this preset needs the divergence from a reference: give one, or kl: none")
    collect = partial(gather, actor, task, config, preset, seed)
    return rl_loop.train(actor, collect, schedule, config, preset, state or State())


def gather(
    actor: Actor,
    task: Task,
    config: GroupRlConfig,
    preset: GroupRlPreset,
    seed: int,
    step: int,
    chosen: Sequence[int],
    kl_coef: float,
) -> Experience:
    """Sample for the prompts with numbers `chosen`, judge, and compare within groups.

    A completion whose advantage is 0 costs nothing, where nothing else gives it a gradient.
    """
    collect, decode = rollout_batch.collect, actor.decode
    draw = partial(collect, actor.sampler, decode, config=config, step=step, seed=seed)
    shaped = partial(shape, task, config, preset)
    collected = preset.sampling(
        draw=draw,
        judge=shaped,
        in_baseline=lambda drawn: preset.treatment(drawn).in_baseline,
        prompts=[task.prompts[i] for i in chosen],
        prompts_per_step=config.prompts_per_step,
        group_size=config.group_size,
    )
    drawn, judged, used = collected.rollouts, collected.judged, collected.used
    correct, treatment = task.verdicts(drawn), preset.treatment(drawn)
    divergences = divergence.measure(actor, drawn, preset.kl, kl_coef, config.temperature)
    metrics = rollout_batch.statistics(drawn, judged, task.correct and correct)
    metrics |= divergences.metrics
    metrics["sampling/rounds"] = collected.num_rounds
    metrics["sampling/used"] = used.float().mean().item()
    groups = torch.tensor(drawn.groups)

    def greedy_rewards() -> Float[Tensor, " batch"]:
        greedy = draw(drawn.prompts, group_size=1, greedy=True)
        metrics["tokens/generated"] += int(greedy.mask().sum())
        judged_greedy = shaped(greedy)
        work.add(metrics, rollout_batch.work_done(greedy, judged_greedy))
        return judged_greedy.rewards()[groups]

    found = advantages.of_tokens(
        preset.advantage,
        Scored(
            end_rewards=torch.tensor(judged.totals),
            penalties=divergences.penalties,
            mask=drawn.mask(),
            groups=groups,
            counted=treatment.in_baseline & used,
            greedy_rewards=greedy_rewards,
            step_rewards=judged.step_rewards,
            step_ends=judged.step_ends,
        ),
    )
    moved, learned = (found != 0).any(1), used & treatment.in_loss
    metrics["advantage/zero_share"] = (~moved).float().mean().item()
    return Experience(
        rollouts=drawn,
        rewards=judged.rewards(),
        correct=correct,
        minibatches=split(
            actor,
            drawn,
            preset.num_minibatches,
            derive(seed, "minibatches", step),
            used=used,
            learned=learned,
            computed=learned if preset.dense() else learned & moved,
            max_length=config.max_new_tokens,
        ),
        advantages=found,
        ref_logprobs=divergences.ref_logprobs,
        metrics=metrics,
    )


def shape(task: Task, config: GroupRlConfig, preset: GroupRlPreset, drawn: Rollouts) -> Judged:
    """The task's rewards, lowered for completions that were cut or come near the length limit."""
    judged = rl_loop.judge(task, preset, drawn)
    if preset.overlong is None:
        return judged
    punishment = preset.overlong.penalty * soft_overlong(
        drawn.mask().sum(1), max_length=config.max_new_tokens, buffer=preset.overlong.buffer
    )
    return replace(judged, totals=(torch.tensor(judged.totals) + punishment).tolist())
