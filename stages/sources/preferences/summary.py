"""Counts and lengths of pairs, and the records of those left out."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from stages.records.preferences import Preference, RawPreference
from stages.records.problems import BadRow
from stages.sources.quarantine import bad_row


def bad_rows(file: str, left_out: Iterable[tuple[RawPreference, str]]) -> list[BadRow]:
    """The records, for the quarantine file."""
    return [bad_row(file, raw.line, reason, raw.plain_prompt) for raw, reason in left_out]


def describe(pairs: Sequence[Preference]) -> dict[str, int | float]:
    """Pairs, distinct prompts, soft labels, mean tokens, and how often the longer one is chosen."""
    return {
        "pairs": len(pairs),
        "prompts": len({pair.id for pair in pairs}),
        "mean_probability": round(fmean(pair.probability for pair in pairs), 6),
        "mean_prompt_tokens": round(fmean(len(pair.prompt_ids) for pair in pairs), 2),
        "mean_chosen_tokens": round(fmean(len(pair.chosen_ids) for pair in pairs), 2),
        "mean_rejected_tokens": round(fmean(len(pair.rejected_ids) for pair in pairs), 2),
        "longer_chosen_share": round(fmean(_longer_chosen(pair) for pair in pairs), 6),
    }


def _longer_chosen(pair: Preference) -> float:
    """1 where the chosen answer has more tokens, 1/2 where both have as many."""
    chosen, rejected = len(pair.chosen_ids), len(pair.rejected_ids)
    return 0.5 if chosen == rejected else float(chosen > rejected)
