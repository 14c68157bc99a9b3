"""Reward function of a rollout batch: rules, reward models, process reward models and judges.

`load_reward` loads it from the folder of a reward (`rewards/reward_file`). `check_reward` refuses a
reward that a method of `loops/rl` cannot learn from.
"""

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from pathlib import Path

import torch

from stages.loops import rollouts
from stages.loops.method import Method, RlConfig
from stages.loops.rollouts import Rollouts
from stages.models import policy_judge, process_head, scalar_head
from stages.models.device import ComputeConfig
from stages.models.process_head import ProcessScorer, TokenizedSolution
from stages.models.scalar_head import Ensemble
from stages.rewards import composition, reward_file
from stages.rewards.answer_checker import solves_problem
from stages.rewards.completion_rewards import CompletionRewards, Completions, RewardModels
from stages.rewards.feedback.prompts import OPTIONS
from stages.rewards.reward_file import RewardFile


def load_reward(
    folder: Path, seed: int, compute: ComputeConfig, device: torch.device, max_new_tokens: int
) -> Callable[[Rollouts], CompletionRewards]:
    """Reward function of the reward in `folder`, with its model of this seed if it has one."""
    reward, path = reward_file.read_reward(folder), reward_file.model_path(folder, seed)
    score = judge = None
    match reward.model:
        case "reward":
            ensemble = scalar_head.load_ensemble(path, reward.aggregate, compute, device)
            score = partial(score_completions, ensemble)
        case "process":
            score = partial(score_steps, process_head.load_process_scorer(path, compute, device))
        case "policy":
            judge = policy_judge.load_judge(path, OPTIONS, compute, device)
    function = None if reward.own is None else reward_file.load_own_function(reward.own)

    def compute_rewards(batch: Rollouts) -> CompletionRewards:
        scorer = None if score is None else partial(score, batch)
        available = RewardModels(
            scorer=scorer, judge=judge, function=function, max_new_tokens=max_new_tokens
        )
        return composition.compose_rewards(reward.composition, batch, available)

    return compute_rewards


def score_completions(ensemble: Ensemble, batch: Rollouts) -> CompletionRewards:
    """Score of a reward model or an ensemble, in eval mode, at each completion's last token.

    Logged: the disagreement of an ensemble's members (standard deviation).
    """
    groups = rollouts.make_groups(batch, None, ensemble.members[0].compute.row_tokens)
    scores = ensemble.score_groups(groups)
    positions = sum(group.length() for group in groups)
    metrics = {"scorer/positions": positions / len(batch.samples)}
    if len(ensemble.members) > 1:
        metrics["ensemble/disagreement"] = scores.disagreement.mean().item()
    return CompletionRewards(totals=scores.values.tolist(), metrics=metrics)


def score_steps(scorer: ProcessScorer, batch: Rollouts) -> CompletionRewards:
    """P(right so far) at the last token of each reasoning step; 0 for the completion as a whole.

    Logged: the number of steps, and the lowest and last score. They show whether a policy earns
    more by better steps, by more steps, or by fewer.
    """
    solutions = [
        TokenizedSolution(
            prompt_ids=batch.prompt(i).prompt_ids, steps=scorer.split(sample.token_ids)
        )
        for i, sample in enumerate(batch.samples)
    ]
    scores = scorer(solutions)
    ends = torch.zeros_like(batch.mask())
    for row, solution in zip(ends, solutions, strict=True):
        row[[end - 1 for end in accumulate(map(len, solution.steps))]] = True
    # `ends` and `scores` have the same order: rows, then tokens.
    values = torch.tensor([score for step_scores in scores for score in step_scores])
    return CompletionRewards(
        totals=[0.0] * len(scores),
        step_rewards=torch.zeros(ends.shape).masked_scatter(ends, values),
        step_ends=ends,
        metrics={
            "scorer/positions": scorer.num_positions(solutions) / len(solutions),
            "process/steps": sum(map(len, scores)) / len(scores),
            "process/lowest": sum(map(min, scores)) / len(scores),
            "process/last": sum(step_scores[-1] for step_scores in scores) / len(scores),
        },
    )


def check_reward(config: RlConfig, method: Method, reward: RewardFile) -> None:
    """Raise a ValueError if the method cannot learn from the reward."""
    composition, advantage = reward.composition, method.advantage
    size_key = type(config).model_fields["completions_per_prompt"].alias or "group_size"
    composition.check_lengths(config.max_new_tokens)
    composition.check_group_size(config.completions_per_prompt, size_key)
    if advantage == "gae":
        if composition.combine.kind == "normalise":
            raise ValueError(
                "the value model is PPO's baseline: its reward needs combine: {kind: sum}"
            )
        if method.value_init == "reward_model" and reward.model != "reward":
            raise ValueError(
                f"value_init is reward_model: expected a reward whose model scores completions, "
                f"found one of kind {reward.kind} whose model is {reward.model}. Take a preset "
                f"with value_init policy, such as ppo_process, or another reward."
            )
        return
    if composition.needs_judge() and advantage == "greedy_baseline":
        raise ValueError(
            "a component of kind judge compares the completions of a prompt with each other, and "
            "greedy_baseline also rewards a single greedy completion: take another advantage"
        )
    if advantage == "step_zscore" and reward.model != "process":
        raise ValueError(
            f"advantage step_zscore compares rewards of steps: expected a reward with a process "
            f"model, found one of kind {reward.kind} whose model is {reward.model}"
        )
    together = method.max_rounds == 1 and method.truncation != "exclude"
    if composition.compares() and not (together and advantage != "greedy_baseline"):
        raise ValueError(
            "a reward with normalised components compares the completions of a step, all of which "
            "must be sampled together: it needs max_rounds 1, truncation penalise or mask, and "
            "another advantage than greedy_baseline"
        )
    if composition.combine.kind == "normalise" and advantage != "group_centred":
        raise ValueError(
            "a reward with combine: normalise is an advantage already (GDPO): it needs a preset "
            "with advantage group_centred, which leaves it as it is; dr_grpo is one"
        )


def reward_answers(completions: Completions) -> CompletionRewards:
    """Reward 1 for a right answer, 0 for a wrong one, and 0 if the problem has no gold answer."""
    return CompletionRewards(totals=[float(verdict) for verdict in check_answers(completions)])


def check_answers(completions: Completions) -> list[bool]:
    """Verdict of the answer checker on each completion; False if the problem has no gold answer."""
    return [
        completions.prompt(i).answer is not None and solves_problem(completions.prompt(i), text)
        for i, text in enumerate(completions.texts)
    ]
