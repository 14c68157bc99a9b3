"""Files of people's preferences, by their `format`: read, split by their openings, counted."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from stages.records.preferences import Preference, RawPreference
from stages.records.problems import BadRow
from stages.seeding import derive
from stages.sources import preference_formats, raw_rows
from stages.sources.preference_formats import Columns, better_first, check_answers
from stages.sources.quarantine import bad_row
from stages.sources.splitting import normalise

Format = Literal["text", "chat", "transcript"]
_PAIR = {
    "text": preference_formats.text_pair,
    "chat": preference_formats.chat_pair,
    "transcript": preference_formats.transcript_pair,
}


def pairs(path: Path, form: Format, columns: Columns) -> Iterator[RawPreference | BadRow]:
    """Each row of the file as a pair, or with the reason why it is none."""
    for line, row in raw_rows.read_rows(path):
        if isinstance(row, BadRow):
            yield row
        else:
            build = partial(_pair, form=form, columns=columns, line=line)
            yield raw_rows.built_or_bad_row(row, build, file=path.name, line=line)


def _pair(fields: Mapping[str, Any], *, form: Format, columns: Columns, line: int) -> RawPreference:
    return better_first(check_answers(_PAIR[form](fields, columns, line)))


TRAIN, HELDOUT = "train", "heldout"


def opening(raw: RawPreference) -> str:
    """What was said before the assistant answered the first user turn, system message included.

    A greeting of the assistant belongs to it: many conversations may begin with the same one.
    Files of dialogues hold one conversation at several lengths. All of them begin alike and so
    stay on one side, as do, all the more, two pairs of one prompt.
    """
    roles = [turn.role for turn in raw.turns]
    asked = roles.index("user") if "user" in roles else len(roles)
    end = roles.index("assistant", asked) if "assistant" in roles[asked:] else len(roles)
    return normalise("\n".join(turn.content for turn in raw.turns[:end]))


def split(
    pairs: Sequence[tuple[RawPreference, Preference]], heldout_share: float
) -> dict[str, list[Preference]]:
    """Pairs by side, in their order.

    A pair's side is a function of its opening alone, not of the seed, the order or the others.

    Raises:
        ValueError: a side would be empty.
    """
    sides: dict[str, list[Preference]] = {TRAIN: [], HELDOUT: []}
    for raw, pair in pairs:
        position = derive(0, "label_people", opening(raw)) / 2**63
        sides[HELDOUT if position < heldout_share else TRAIN].append(pair)
    empty = [side for side, members in sides.items() if not members]
    if empty:
        raise ValueError(
            f"{len(pairs)} pairs leave {' and '.join(empty)} empty. Use a file with more pairs "
            f"that fit (max_tokens), or change heldout_share."
        )
    return sides


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
