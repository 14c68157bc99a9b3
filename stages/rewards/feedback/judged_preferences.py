"""Preferences from a judge's verdicts."""

from collections import Counter
from collections.abc import Sequence

from stages.records.preferences import Preference, Verdict
from stages.rewards.feedback.judging import Pair
from stages.rewards.feedback.label_rule import LabelRule


def preferences(
    asked: Sequence[Pair], verdicts: Sequence[Verdict], rule: LabelRule
) -> list[Preference]:
    """One preference for each verdict that was not dropped; A is chosen where P(A) >= 1/2.

    Raises:
        ValueError: not a single one is left.
    """
    found: list[Preference] = []
    for pair, verdict in zip(asked, verdicts, strict=True):
        if verdict.dropped is not None or verdict.probability is None:
            continue
        a_wins = verdict.probability >= 0.5
        chosen, rejected = (pair.a, pair.b) if a_wins else (pair.b, pair.a)
        p_chosen = verdict.probability if a_wins else 1.0 - verdict.probability
        found.append(
            Preference(
                id=pair.prompt.id,
                prompt=pair.prompt.prompt,
                prompt_ids=pair.prompt.prompt_ids,
                chosen=chosen.completion,
                chosen_ids=chosen.completion_ids,
                rejected=rejected.completion,
                rejected_ids=rejected.completion_ids,
                probability=round(rule.probability(p_chosen), 7),
                source="ai",
            )
        )
    if not found:
        reasons = dict(Counter(verdict.dropped for verdict in verdicts))
        raise ValueError(
            f"expected preferences, found none: {len(verdicts)} pairs were judged and dropped for "
            f"{reasons}. parse_failure: the judge does not answer with an option; take a model "
            f"that has learned to, or the other `style`. low_confidence, inconsistent, tie: loosen "
            f"judge_preferences.rule (labels: soft keeps ties). too_long: raise max_prompt_tokens. "
            f"No pairs at all: sample more completions, or longer ones (sample_candidates)."
        )
    return found
