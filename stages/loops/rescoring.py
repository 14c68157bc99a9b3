"""Stored completions, rewarded again: the rollouts of a training, or a pool.

The same reward gives the same numbers to the last digit: it sees completions in their original
batches. The preset's penalties for truncated completions, and for those near the length limit, are
subtracted again, also from another reward.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from pydantic import ValidationError

from stages.config import Params
from stages.loops import rl, rollout_rewards
from stages.loops.method import GroupRlConfig, Method, PpoConfig
from stages.loops.rollouts import Rollout, Rollouts
from stages.models.device import ComputeConfig, setup
from stages.params import load_config, load_preset
from stages.records import lines, pools
from stages.records.problems import Prompt
from stages.records.rescored import Rescored
from stages.rewards import answer_checker, reward_file
from stages.rewards.completion_rewards import CompletionRewards, RewardModels
from stages.rewards.composition import Composition, compose_rewards
from stages.rows import DATA, PROMPTS
from stages.runtime import outputs
from stages.sampler import Sample
from stages.tables import POLICIES, split_words

POOLS, PRESETS, REWARDS = "pools/", "presets/", "rewards/"
TRAINED_BY = ("ppo", "grpo")
Reward = Callable[[Rollouts], CompletionRewards]


class RlSizes(Params):
    """Sizes of `train: grpo` and of `train: ppo`, and the preset of either."""

    grpo: GroupRlConfig
    ppo: PpoConfig
    preset: Method


class PoolSizes(Params):
    """Sizes of pools, by split."""

    sampling: dict[str, dict[str, Any]]


def find_reward(name: str) -> str:
    """The reward that a policy learned from, `rewards/<row>`."""
    if name.startswith(POOLS):
        raise ValueError(f"{name} was not sampled for a reward: name one by --reward rewards/<row>")
    return str(find_policy(name)["on"])


def describe_old_reward(name: str) -> str:
    """Original reward of a completion, in words."""
    if name.startswith(POOLS):
        return "the answer checker's verdict, 1 or 0"
    return f"that of training, {find_reward(name)}"


def find_policy(name: str) -> dict[str, Any]:
    """The row of a policy that PPO or GRPO trained on a reward."""
    plan = outputs.read_json(DATA / "plan.json")
    rewarded = {
        policy: row for policy, row in plan["policies"].items()
        if row["train"] in TRAINED_BY and str(row["on"]).startswith(REWARDS)
    }  # fmt: skip
    if name not in rewarded:
        names = [*rewarded, *(f"{POOLS}{pool}" for pool in plan["pools"])]
        raise ValueError(
            f"expected a policy that PPO or GRPO trained on a reward, or a pool "
            f"({', '.join(names)}), found {name}"
        )
    return rewarded[name]


def rescore(
    name: str, reward_name: str, seed: int, compute: ComputeConfig
) -> Iterator[list[Rescored]]:
    """Every stored completion of a seed with its old and new reward, a batch at a time.

    `name` is a policy, or `pools/<pool>`. Both rewards are rounded to six digits, as rollouts.jsonl
    has them.
    """
    is_pool = name.startswith(POOLS)
    batches = read_pool(name, seed) if is_pool else read_rollouts(name, seed)
    limit, method = read_limits(name)
    reward = load_reward(reward_name, seed, compute, limit)
    for stored, batch in batches:
        rewards = reward(batch)
        if method is not None:
            rewards = rl.subtract_length_penalties(rewards, batch, method, limit)
        totals = rewards.rewards().tolist()
        prompts = [batch.prompt(i) for i in range(len(stored))]
        verdicts_now = [
            row.correct
            if row.correct is None or prompt.answer is None
            else answer_checker.solves_problem(prompt, row.completion)
            for prompt, row in zip(prompts, stored, strict=True)
        ]
        yield [
            Rescored(
                seed=seed, step=row.step, id=row.id, index=row.index, question=prompt.question,
                answer=prompt.answer, completion=row.completion, correct=row.correct,
                correct_now=verdict_now, old=row.reward, new=round(total, 6),
            )
            for prompt, row, verdict_now, total in zip(
                prompts, stored, verdicts_now, totals, strict=True
            )
        ]  # fmt: skip


def read_limits(name: str) -> tuple[int, Method | None]:
    """`max_new_tokens` of the completions, for rewards of length; and the preset (None: a pool)."""
    if name.startswith(POOLS):
        split = outputs.read_json(DATA / name / "pool.json")["split"]
        return int(load_config(PoolSizes).sampling[split]["max_new_tokens"]), None
    row = find_policy(name)
    section, preset = row["train"], row["preset"]
    overrides = {section: split_words(POLICIES, row)[1]}
    config = load_config(RlSizes, preset, overrides=overrides)
    return getattr(config, section).max_new_tokens, config.preset


def read_rollouts(policy: str, seed: int) -> Iterator[tuple[list[Rollout], Rollouts]]:
    """Rollout batches of a policy's training."""
    prompts = {row.id: row for row in lines.read_lines(PROMPTS / "train.jsonl", Prompt)}
    path = DATA / f"policies/{policy}/training/{seed}/rollouts.jsonl"
    outputs.check_exists(path)
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty: `dvc checkout {path.parents[1]}` restores it")
    for _, batch in groupby(lines.read_lines(path, Rollout), key=lambda row: row.step):
        stored = list(batch)
        yield stored, join_batch(stored, prompts)


def read_pool(name: str, seed: int) -> Iterator[tuple[list[Rollout], Rollouts]]:
    """Completions of a pool, a batch for each problem; their reward is the checker's verdict.

    A ValueError if problems have no gold answers.
    """
    for prompt, completions in pools.read_pools(DATA / name, seed, "train"):
        stored = [
            Rollout(
                step=0, id=row.id, index=row.index, completion=row.completion,
                completion_ids=row.completion_ids, finish_reason=row.finish_reason,
                reward=float(is_right), correct=is_right,
            )
            for row in completions
            for is_right in [answer_checker.solves_problem(prompt, row.completion)]
        ]  # fmt: skip
        yield stored, join_batch(stored, {prompt.id: prompt})


def join_batch(stored: Sequence[Rollout], prompts: dict[str, Prompt]) -> Rollouts:
    """Rollout batch of the completions, with 0 for their log-probs, which are not known."""
    ids = dict.fromkeys(row.id for row in stored)
    places = {prompt_id: place for place, prompt_id in enumerate(ids)}
    return Rollouts(
        prompts=[prompts[prompt_id] for prompt_id in ids],
        groups=[places[row.id] for row in stored],
        numbers=[row.index for row in stored],
        samples=[
            Sample(
                token_ids=row.completion_ids,
                logprobs=[0.0] * len(row.completion_ids),
                finish_reason=row.finish_reason,
            )
            for row in stored
        ],
        texts=[row.completion for row in stored],
    )


def load_reward(name: str, seed: int, compute: ComputeConfig, max_new_tokens: int) -> Reward:
    """Reward function by its name: a row of `rewards`, a preset of `by: rule`, or a function."""
    if name.startswith(REWARDS):
        return rollout_rewards.load_reward(
            DATA / name, seed, compute, setup(compute), max_new_tokens
        )
    function, file_name = None, name.removeprefix(reward_file.OWN)
    if name.startswith(PRESETS):
        try:
            composition = Composition.model_validate(load_preset(name.removeprefix(PRESETS)))
        except ValidationError:
            raise ValueError(
                f"{name} is no preset of `by: rule`: name one with `components`"
            ) from None
        if composition.needs_model() or "own" in composition.kinds():
            raise ValueError(
                f"{name} asks a model or a function: make it a row of `rewards`, run `dvc repro`, "
                f"and name {REWARDS}<row>"
            )
    elif name.startswith(reward_file.OWN):
        function = reward_file.load_own_function(file_name)
        part = {"value": {"kind": "own"}, "weight": 1.0, "cap": None, "normalise": "none"}
        content = {"components": {file_name: part}, "combine": "sum"}
        composition = Composition.model_validate(content)
    else:
        forms = f"{REWARDS}<row>, {PRESETS}<name> or {reward_file.OWN}<file>"
        raise ValueError(f"expected a reward, {forms}, found {name}")
    models = RewardModels(function=function, max_new_tokens=max_new_tokens)
    return lambda batch: compose_rewards(composition, batch, models)
