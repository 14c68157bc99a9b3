"""Reward components that call a reward model, a judge, or a user's function.

The judge estimates how often a completion beats its siblings (AI feedback without a reward model).
Lee et al. 2023, "RLAIF" (d-RLAIF), https://arxiv.org/abs/2309.00267. Departure: there the judge
grades each completion from 1 to 10; here it compares those of a prompt with each other, around a
ring (`algorithms/judge_readings`), each pair in both orders, since `label_judge` also asks for a
choice between two answers, on which the embedded model was trained.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from statistics import fmean
from typing import Annotated, Literal

import torch
from pydantic import Field

from stages.algorithms import judge_readings
from stages.algorithms.token_advantages import min_credit
from stages.config import Params
from stages.rewards.completion_rewards import CompletionRewards, Completions, RewardModels
from stages.rewards.feedback.judging import MIN_COMPARISONS, Reading, join_orders
from stages.rewards.feedback.prompts import Prompts, Style
from stages.sampler import count_judge_tokens, judge_messages
from stages.seeding import derive_seed

Share = Annotated[float, Field(ge=0, le=1)]
Scorer = Callable[[], CompletionRewards]
DRAW = Reading(0.5, 0.5, 1.0)
"""Reading of equal texts, and in place of one without a verdict."""


def model_score(scorer: Scorer | None) -> CompletionRewards:
    """Score by a reward model, an ensemble or an outcome model.

    For a process model, its score of each step, as `process` with summed credit.
    """
    if scorer is None:
        raise ValueError("it needs a model: name another reward, `on: rewards/<name>`")
    return scorer()


class Process(Params):
    """P(right so far) - zero at the last token of each step, or of only the worst step.

    The reward of a step is at its end: PPO credits it there, and the advantage `step_zscore` of a
    token sums the rewards of its step and later ones. Summed credit rewards every further step
    above `zero`, so the policy learns to write more steps, or, if most are below, fewer; min credit
    (`token_advantages`), with only the worst step's reward, does not. With `zero` 0.5 a step that
    is probably wrong has a negative reward; `step_zscore` is not changed by `zero`.
    """

    kind: Literal["process"]
    credit: Literal["sum", "min"]
    zero: Share

    def __call__(self, _: Completions, models: RewardModels) -> CompletionRewards:
        """Step rewards."""
        scored = model_score(models.scorer)
        rewards, ends = scored.step_rewards, scored.step_ends
        if rewards is None or ends is None:
            raise ValueError("it needs a model that scores steps: name a reward of kind process")
        if self.credit == "min":
            rewards, ends = min_credit(rewards, ends)
        paid = torch.where(ends, rewards - self.zero, 0.0)
        return replace(scored, step_rewards=paid, step_ends=ends)


class JudgeWins(Params):
    """Win rate of each completion against others of its prompt, by the row's policy as the judge.

        value = mean over its comparisons of  P(completion is better),  in [0, 1]

    The mean over a prompt's completions is always 1/2: the values rank the completions of one
    prompt, but cannot show that a policy improves.

    Equal texts count 1/2 without a comparison. So does a comparison without a verdict (its message
    is too long for the judge, or the judge chooses neither option), since one odd completion should
    not end a run. Their number is logged.
    """

    kind: Literal["judge"]
    style: Style
    constitution: Literal["correct", "harmless", "none"]
    """Each prompt has a principle of it, the same for all its completions in every step."""
    min_option_mass: Share
    """A comparison with less probability on the options has no verdict."""

    def __call__(self, completions: Completions, models: RewardModels) -> CompletionRewards:
        """The win rates."""
        judge = models.judge
        if judge is None:
            raise ValueError("it needs a judge: name a policy as the row's `from`")
        compared = judge_readings.ring_pairs(completions.groups)  # of groups of two or more
        prompts = Prompts(style=self.style, constitution=self.constitution)
        texts, requests = completions.texts, list[tuple[str, ...]]()
        for a, b in compared:
            prompt = completions.prompt(a)
            principle = prompts.draw_principle(derive_seed(0, "principle", prompt.id))
            both = prompts.both(prompt.question, texts[a], texts[b], principle)
            requests.append(both if texts[a] != texts[b] else ())
        # Completions may be equal: the same request is sent once.
        unique = list(dict.fromkeys(chain(*requests)))
        choices = dict(zip(unique, judge_messages(judge, unique), strict=True)) if unique else {}
        outcomes, readings = Counter[str](), list[Reading]()
        for both in requests:
            reading = join_orders(*(choices[message] for message in both)) if both else None
            if reading is None:
                outcome = "too_long" if both else "identical"
            else:
                outcome = "judged" if reading.mass >= self.min_option_mass else "no_answer"
            outcomes[outcome] += 1
            readings.append(reading if reading is not None and outcome == "judged" else DRAW)
        num_pairs = len(requests) - outcomes["identical"]
        if num_pairs >= MIN_COMPARISONS and not outcomes["judged"]:
            raise ValueError(
                f"the judge has no verdict on any of {num_pairs} comparisons: "
                f"{outcomes['too_long']} are too long for it, and in {outcomes['no_answer']} it "
                f"gives the options less than min_option_mass {self.min_option_mass}: take one "
                f"with more positions, or a policy that was trained to judge (train_sft's `tasks`)"
            )
        number, num_read = len(texts), count_judge_tokens(list(choices.values()))["read_tokens"]
        shares = {
            f"judge/{outcome}": outcomes[outcome] / len(requests)
            for outcome in ("identical", "too_long", "no_answer")
        }
        gap = fmean(reading.gap for reading in readings)
        wins = [(reading.p_a, 1 - reading.p_a) for reading in readings]
        return CompletionRewards(
            totals=judge_readings.ring_means(number, compared, wins),
            metrics=shares | {"judge/gap": gap, "judge/read_tokens": num_read / number},
        )
