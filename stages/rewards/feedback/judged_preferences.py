"""Preferences from a judge's verdicts: who judges and how, and what is known without the judge."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from stages.engines import loading
from stages.params import Params
from stages.records.preferences import Preference, Verdict
from stages.rewards import answer_checker
from stages.rewards.feedback.judging import LabelRule, Pair
from stages.rewards.feedback.prompts import Style
from stages.rewards.verifier_labels import preference


class JudgePreset(Params):
    """Who judges, and how."""

    judge: loading.Judge
    style: Style
    """Of the message: `short` for the embedded model, which has learned it."""
    constitution: Literal["correct", "harmless", "none"]
    """A principle is drawn from it for each pair."""
    reasoning: loading.Reasoning | None
    """What the judge writes before it chooses; null: nothing."""
    max_pairs_per_problem: int = Field(ge=1)
    rule: LabelRule
    injection_pairs: int = Field(ge=0)
    """Held-out pairs on which each attack on the judge is tried."""


def preferences(
    asked: Sequence[Pair], verdicts: Sequence[Verdict], rule: LabelRule
) -> list[Preference]:
    """One preference for each verdict that was not dropped; A is chosen where P(A) >= 1/2."""
    found: list[Preference] = []
    for pair, verdict in zip(asked, verdicts, strict=True):
        if verdict.dropped is not None or verdict.probability is None:
            continue
        a_wins = verdict.probability >= 0.5
        chosen, rejected = (pair.a, pair.b) if a_wins else (pair.b, pair.a)
        p_chosen = verdict.probability if a_wins else 1.0 - verdict.probability
        probability = round(rule.probability(p_chosen), 7)
        found.append(
            preference(pair.prompt, chosen, rejected, probability=probability, source="ai")
        )
    if not found:
        reasons = dict(Counter(verdict.dropped for verdict in verdicts))
        raise ValueError(
            f"expected preferences, found none: {len(verdicts)} pairs were judged and dropped for "
            f"{reasons}. parse_failure: the judge does not answer with an option; take a model "
            f"that has learned to, or the other `style`. low_confidence, inconsistent, tie: loosen "
            f"`rule` of the preset (labels: soft keeps ties). too_long: raise max_prompt_tokens. "
            f"No pairs at all: sample more completions, or longer ones (section sampling)."
        )
    return found


def facts(asked: Sequence[Pair]) -> tuple[dict[tuple[str, int], bool], dict[tuple[str, int], int]]:
    """By problem and index: is its final answer right, and how many tokens has it."""
    rows = {
        (pair.prompt.id, row.index): (pair.prompt.answer, row)
        for pair in asked
        for row in (pair.a, pair.b)
    }
    return (
        {key: answer_checker.is_correct(row.completion, gold) for key, (gold, row) in rows.items()},
        {key: len(row.completion_ids) for key, (_, row) in rows.items()},
    )
