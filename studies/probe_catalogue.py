"""Catalogue of the probes: measure, whether it is gated, and reasons for probes that were not run.

A higher value of a gated probe is worse. Descriptive numbers are not gated: a model that has never
read a sentence like the hint may fail whatever its number, so the accuracy lost by a wrong hint is
reported beside that lost by a right one, and the gated numbers are the effects of the hinted
number: adoption, and the difference of the two. Probes of a model's scores (padding, steps) depend
on the model and on this policy's answers: they also change if the answers do, such as from guesses
to working.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from pydantic import Field

from stages.algorithms.selection.step_scores import Kind
from stages.config import Params
from stages.engines.loading import PolicyJudgeConfig
from stages.rewards.feedback.judging import LabelRule
from stages.rewards.feedback.prompts import Style
from studies.study import Certainty


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeValue:
    """One row of `data/studies/probes/<policy>/rows/<seed>/probes.jsonl`."""

    probe: str
    """One of `PROBES`."""
    id: str
    """The problem's id, by which comparisons of policies are paired."""
    value: float
    """The mean over the problem's completions, if the probe reads several."""


Needs = Literal["pool", "reward", "process", "judge", "prompt"]
"""Inputs: keys of `ProbeConfig`, or samples and prompts, which every policy has."""


class Probe(NamedTuple):
    """Probe: a measure of a policy."""

    what: str
    """Label in reports."""
    needs: Needs
    """Input of the measurement."""
    is_gated: bool = True
    is_rate: bool = False
    """Whether values are between 0 and 1, so that the mean is shown in per cent."""


_rate = partial(Probe, is_rate=True)
PROBES = {
    "length_spearman": Probe("rank correlation of reward and tokens within a problem", "reward"),
    "length_spearman_right": Probe(
        "the same among right answers, where length should earn nothing", "reward"
    ),
    "repeat_step_raised": _rate("a copy of the last step raises the reward", "reward"),
    "repeat_step_gain": Probe("reward gained by a copy of the last step", "reward"),
    "restate_raised": _rate("restating the question raises the reward", "reward"),
    "restate_gain": Probe("reward gained by restating the question", "reward"),
    "list_raised": _rate("writing the working three times raises the reward", "reward"),
    "list_gain": Probe("reward gained by writing the working three times", "reward"),
    "repeated_4grams": _rate("4-grams of tokens that were there before", "pool"),
    "unfinished_loop": _rate("cut at the limit while going round in a loop", "pool"),
    "several_answers": _rate("more than one final-answer statement", "pool"),
    "answer_list": _rate("a final answer that lists several numbers", "pool"),
    "inflated_raised": _rate("a repeated first step raises the process model's score", "process"),
    "inflated_gain": Probe("process score gained by a repeated first step", "process"),
    "filler_raised": _rate("an empty step raises the process model's score", "process"),
    "filler_gain": Probe("process score gained by an empty step", "process"),
    "split_raised": _rate("cutting every step in two raises the process score", "process"),
    "split_change": Probe("size of the change of the process score by cutting", "process"),
    "merged_raised": _rate("joining the first two steps raises the process score", "process"),
    "merged_change": Probe("size of the change of the process score by joining", "process"),
    "judge_injection": _rate("verdicts of the judge that an attack turns", "judge"),
    "judge_control": _rate("verdicts that harmless words turn", "judge", is_gated=False),
    "hint_wrong_drop": Probe(
        "accuracy lost by a wrong hint in the prompt", "prompt", is_gated=False
    ),
    "hint_right_drop": Probe("accuracy lost by a right hint, said alike", "prompt", is_gated=False),
    "hint_adopted": Probe("answers that become the wrong hint", "prompt"),
    "hint_sway": Probe("accuracy with a right hint minus accuracy with a wrong one", "prompt"),
}


class AttackedJudge(Params):
    """The judge that is attacked, and its settings."""

    judge: PolicyJudgeConfig
    style: Style
    """Style of the message: `short` for the embedded model, which was trained on it."""
    constitution: Literal["correct", "harmless", "none"]
    """Constitution, from which a principle is drawn for each pair."""
    rule: LabelRule
    num_pairs: int = Field(ge=1)
    """Pairs on which each attack is tried, one per problem."""


class ProbeConfig(Certainty):
    """Sizes of the probes, and the models that score and judge."""

    policies: list[str]
    """Rows of `policies`; the first is the baseline of the gate."""
    reward: str | None
    """Row of `rewards`, of kind preference or outcome, that is probed for length bias."""
    process: str | None
    """Row of `rewards`, of kind process, that is probed for step bias."""
    judge: str | None
    """Row of `policies` that is attacked as a judge."""
    num_problems: int = Field(ge=1)
    """Number of test problems, from the first, that are asked with hints, scored and judged."""
    samples_per_problem: int = Field(ge=1)
    """Number of different completions per problem that are padded and whose steps are edited."""
    max_new_tokens: int = Field(ge=1)
    """Limit of a reply, that of `sampling.test`, whose greedy replies are the comparison."""
    process_score: Kind
    """Aggregation of step scores, before and after the steps are edited."""
    max_tokens: int = Field(ge=1)
    """Limit of a modified completion with its prompt; longer ones are left out."""
    attack: AttackedJudge


def list_reasons_not_run(run_probes: Collection[str], config: ProbeConfig) -> dict[str, str]:
    """Probes of the catalogue that were not run, each with the reason."""
    words = {"reward": "reward model", "process": "process model", "judge": "judge"}
    why = {key: f"no {word} named" for key, word in words.items() if getattr(config, key) is None}
    return {
        name: why.get(probe.needs, "not a single problem to measure it on")
        for name, probe in PROBES.items()
        if name not in run_probes
    }
