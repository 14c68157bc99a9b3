"""Components of a reward that ask somebody: a model that scores, a judge, a function of your own.

The judge says how often a completion beats its siblings (AI feedback without a reward model). Lee
et al. 2023, "RLAIF" (d-RLAIF), https://arxiv.org/abs/2309.00267. Departure: there the judge grades
each completion from 1 to 10; here it compares those of a prompt with each other, around a ring
(`algorithms/judge_readings`), each pair in both orders, for choosing between two answers is what
`label_judge` asks, and what the embedded model has learned.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import Field

from stages.algorithms import judge_readings
from stages.algorithms.token_advantages import min_credit
from stages.params import Params
from stages.rewards.feedback.judging import ENOUGH_ASKED
from stages.rewards.feedback.prompts import Prompts, Style
from stages.rewards.judged import Answered, Available, Judged, each
from stages.sampler import Choice, Chooser
from stages.seeding import derive


def scored(available: Available) -> Judged:
    """What the reward's model says."""
    if available.scorer is None:
        raise ValueError("it needs a model: name another reward, `on: rewards/<name>`")
    return available.scorer()


class Scorer(Params):
    """A reward model's, an ensemble's or an outcome model's score.

    Of a process model, its score of each step, as `process` with summed credit.
    """

    kind: Literal["scorer"]

    def __call__(self, answered: Answered, available: Available) -> Judged:  # noqa: ARG002
        """What the reward's model says."""
        return scored(available)


class Process(Params):
    """P(right so far) - zero at the last token of each step, or of the worst step alone.

    Steps are paid when they end: PPO credits them there, and the advantage `step_zscore` gives a
    token what the steps from its own on earn. Summed credit pays for every further step above
    `zero`, so the policy learns to write more of them, or, where most are below, fewer; min credit
    (`token_advantages`) does not.
    """

    kind: Literal["process"]
    credit: Literal["sum", "min"]
    """`sum`: every step earns its own; `min`: the worst step's reward is the only one."""
    zero: float = Field(ge=0, le=1)
    """The score that is worth nothing; 0.5: a step that is rather wrong costs. `step_zscore`
    does not see it."""

    def __call__(self, answered: Answered, available: Available) -> Judged:  # noqa: ARG002
        """What the reward's model says of each step."""
        judged = scored(available)
        rewards, ends = judged.step_rewards, judged.step_ends
        if rewards is None or ends is None:
            raise ValueError("it needs a model that scores steps: name a reward of kind process")
        if self.credit == "min":
            rewards, ends = min_credit(rewards, ends)
        paid = torch.where(ends, rewards - self.zero, 0.0)
        return replace(judged, step_rewards=paid, step_ends=ends)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What became of one pair."""

    p_first: float = 0.5
    """P(the first completion is better), the mean of both orders."""
    gap: float = 0.0
    """How far the orders disagree."""
    outcome: Literal["judged", "identical", "too_long", "no_answer"] = "judged"


class Judge(Params):
    """The entry's scorer, a policy, compares the completions of a prompt.

        value = mean over its comparisons of  P(it is better),  in [0, 1]

    The values of a prompt's completions have the mean 1/2 whatever they are worth: they tell the
    completions of one prompt apart, and never show that a policy improves.

    Equal texts are a draw, 1/2, unasked. So is a comparison without a verdict, because its message
    is too long for the judge or because the judge chooses neither option: a run should not end on
    one odd completion. How many there are is logged.
    """

    kind: Literal["judge"]
    style: Style
    """Of the message: `short` for the embedded model, which has learned it."""
    constitution: Literal["correct", "harmless", "none"]
    """Each prompt has a principle from it: the same for all its completions, and in every step."""
    min_option_mass: float = Field(ge=0, le=1)
    """A comparison in which less probability than this falls on the options has no verdict."""

    def __call__(self, answered: Answered, available: Available) -> Judged:
        """Each completion's share of won comparisons."""
        if available.judge is None:
            raise ValueError("it needs a judge: name a policy as the row's `from`")
        try:
            compared = judge_readings.ring_pairs(answered.groups)
        except ValueError as error:
            raise ValueError(
                f"it compares the completions of a prompt with each other, {error}: set group_size "
                f"(train_grpo) or samples_per_prompt (train_ppo) to 2 or more, and no advantage "
                f"greedy_baseline, whose greedy completion is alone"
            ) from error
        found, num_read = self.compare(answered, compared, available.judge)
        asked = [one for one in found if one.outcome != "identical"]
        if len(asked) >= ENOUGH_ASKED and all(one.outcome != "judged" for one in asked):
            num_long = sum(one.outcome == "too_long" for one in asked)
            raise ValueError(
                f"the judge has no verdict on any of {len(asked)} comparisons: {num_long} are "
                f"longer than it can read (take one with more positions, or lower max_new_tokens), "
                f"and in {len(asked) - num_long} it gives the options less than min_option_mass "
                f"{self.min_option_mass}: take a policy that has learned to judge (train_sft's "
                f"`tasks`), or the other `style`"
            )
        number = len(answered.texts)

        def mean(values: list[float]) -> float:
            own = judge_readings.ring_means(number, compared, [(value, value) for value in values])
            return sum(own) / number

        metrics = {"judge/gap": mean([one.gap for one in found])}
        for outcome in ("identical", "too_long", "no_answer"):
            metrics[f"judge/{outcome}"] = mean([float(one.outcome == outcome) for one in found])
        metrics["judge/read_tokens"] = num_read / number
        wins = [(one.p_first, 1 - one.p_first) for one in found]
        return Judged(totals=judge_readings.ring_means(number, compared, wins), metrics=metrics)

    def compare(
        self, answered: Answered, compared: list[tuple[int, int]], judge: Chooser
    ) -> tuple[list[Comparison], int]:
        """The verdict on each pair of completions, and how many tokens were read for them all."""
        prompts = Prompts(style=self.style, constitution=self.constitution)
        texts = answered.texts

        def messages(a: int, b: int) -> tuple[str, str]:
            prompt = answered.prompt(a)
            principle = prompts.draw_principle(derive(0, "principle", prompt.id))
            return prompts.both(prompt.question, texts[a], texts[b], principle)

        asked = [messages(a, b) if texts[a] != texts[b] else None for a, b in compared]
        # Completions repeat each other: the same question is asked once.
        unique = list(dict.fromkeys(message for both in asked if both for message in both))
        choices = dict(zip(unique, judge.choose(unique), strict=True)) if unique else {}
        same = Comparison(outcome="identical")
        found = [
            self.verdict(choices[both[0]], choices[both[1]]) if both else same for both in asked
        ]
        return found, sum(c.num_prompt_tokens for c in choices.values() if c is not None)

    def verdict(self, forward: Choice | None, backward: Choice | None) -> Comparison:
        """One of both orders; None: too long to be read."""
        if forward is None or backward is None:
            return Comparison(outcome="too_long")
        if min(forward.mass, backward.mass) < self.min_option_mass:
            return Comparison(outcome="no_answer")
        p12, p21 = forward.probabilities[0], backward.probabilities[0]
        return Comparison(
            p_first=judge_readings.soft_label(p12, p21), gap=judge_readings.order_gap(p12, p21)
        )


class Own(Params):
    """What `reward` of the row's file in stages/rewards/own/ gives each completion."""

    kind: Literal["own"]

    def __call__(self, answered: Answered, available: Available) -> Judged:
        """One value for each completion."""
        if available.own is None:
            raise ValueError("it needs a function: name its file, `on: own/<file>`")
        return each(answered, available.own)


ModelComponent = Scorer | Process | Judge | Own
