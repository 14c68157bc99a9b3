r"""Files of people's preferences: read in three formats, split by their openings, counted.

A prompt and two answers, each in a column of its own (`text`):

    {"prompt": "What is 2+2?\n", "chosen": "4", "rejected": "5"}

Lists of messages with a role and a content (`chat`). Either both lists hold the whole conversation
and share all but the last message, or a column `prompt` holds what they share and each list only
its answer:

    {"chosen": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}],
     "rejected": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "No"}]}

Two transcripts that differ in the last turn only (`transcript`), the form of HH-RLHF: Bai et al.,
"Training a Helpful and Harmless Assistant" (2022), https://arxiv.org/abs/2204.05862.

    {"chosen": "\n\nHuman: Hi\n\nAssistant: Hello!", "rejected": "\n\nHuman: Hi\n\nAssistant: No"}
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from stages.config import Params
from stages.records import transcripts
from stages.records.preferences import Preference, RawPreference
from stages.records.problems import BadRow, Prompt, Turn
from stages.sources import conversations, raw_rows, splitting
from stages.sources.quarantine import RejectedError, bad_row

Format = Literal["text", "chat", "transcript"]


class PreferenceColumns(Params):
    """What the file calls its columns."""

    prompt: str | None
    """The prompt; null where both answers begin with it (chat, transcript)."""
    chosen: str
    rejected: str
    probability: str | None
    """A number from 0 to 1, P(chosen is better), or true and false; null: chosen always is."""


def read_pairs(
    path: Path, form: Format, columns: PreferenceColumns
) -> Iterator[RawPreference | BadRow]:
    """Each row of the file as a pair, or with the reason why it is none."""
    parse = partial(read_pair, form=form, columns=columns)
    return raw_rows.parse_rows(raw_rows.read_rows(path), parse, path.name)


def read_pair(
    fields: Mapping[str, Any], line: int, *, form: Format, columns: PreferenceColumns
) -> RawPreference:
    """The pair that a row holds, the answer that is more likely the better one as `chosen`.

    A soft label below 1/2 says that `rejected` is better: every count of pairs ordered rightly
    takes `chosen` for the better one. RejectedError where a column is missing or malformed, the
    answers share other than all but the last turn, one is empty, both are the same, or neither is
    preferred.
    """
    if form == "text":
        if columns.prompt is None or not fields.get(columns.prompt):
            raise RejectedError(f"no common prompt: there is nothing in column {columns.prompt!r}")
        prompt, lead = raw_rows.read_verbatim(fields, columns.prompt), ""
        turns = (Turn("user", prompt.strip()),)
        chosen, rejected = (
            raw_rows.read_maybe_empty(fields, name) for name in (columns.chosen, columns.rejected)
        )
    else:
        shared = columns.prompt if form == "chat" else None
        before = [] if shared is None else _turns(fields, shared, form)
        answers = [_turns(fields, column, form) for column in (columns.chosen, columns.rejected)]
        turns, chosen, rejected = _split_last(*([*before, *answer] for answer in answers))
        prompt, lead = transcripts.render_transcript(turns), " "
    probability = _probability(fields, columns.probability)
    for name, answer in (("chosen", chosen), ("rejected", rejected)):
        if not answer.strip():
            raise RejectedError(f"empty answer: '{name}' says nothing after the prompt")
    if chosen.strip() == rejected.strip():
        raise RejectedError(f"equal answers: both are {chosen.strip()!r:.60}")
    if probability < 0.5:
        chosen, rejected, probability = rejected, chosen, 1.0 - probability
    return RawPreference(
        turns=turns, plain_prompt=prompt, plain_lead=lead, chosen=chosen, rejected=rejected,
        probability=probability, line=line,
    )  # fmt: skip


def _probability(fields: Mapping[str, Any], column: str | None) -> float:
    """P(chosen is better); 1 where the file has no such column."""
    if column is None or isinstance(fields.get(column), bool):
        return 1.0 if column is None else float(fields[column])
    value = raw_rows.read_share(fields, column, "no probability")
    if value == 0.5:
        raise RejectedError(f"tie: '{column}' is 0.5 and prefers neither answer")
    return value


def _split_last(
    chosen: Sequence[Turn], rejected: Sequence[Turn]
) -> tuple[tuple[Turn, ...], str, str]:
    """The turns that two conversations share, and the answer in which each ends."""
    *turns, answer = chosen
    *rejected_turns, other_answer = rejected
    if turns != rejected_turns:
        raise RejectedError(
            f"no common prompt: 'chosen' has {len(chosen)} turns and 'rejected' {len(rejected)}, "
            f"and they differ before the last"
        )
    if {answer.role, other_answer.role} != {"assistant"}:
        raise RejectedError("no answer: the last turn is not the assistant's")
    if not turns or turns[-1].role != "user":
        raise RejectedError("no question: the turn before the answer is not the user's")
    return tuple(turns), answer.content, other_answer.content


def _turns(fields: Mapping[str, Any], column: str, form: Format) -> list[Turn]:
    if form == "transcript":
        return conversations.parse_transcript(raw_rows.read_verbatim(fields, column))
    return conversations.read_messages(fields, column)


def exclude_openings(
    pairs: Sequence[tuple[RawPreference, Preference]], prompts: Iterable[Prompt]
) -> list[tuple[RawPreference, Preference]]:
    """The pairs of conversations that do not open as one of `prompts` does."""

    def opening(question: str) -> str:
        # Of both sides what is shown is read, since prompts hold nothing else.
        return splitting.opening(conversations.parse_question(question))

    openings = {opening(prompt.question) for prompt in prompts}
    return [
        pair
        for pair in pairs
        if opening(conversations.render_question(pair[0].turns)) not in openings
    ]


def split_pairs(
    pairs: Sequence[tuple[RawPreference, Preference]], heldout_share: float
) -> dict[str, list[Preference]]:
    """Pairs by side, each on the side of its opening."""
    by_opening = [(splitting.opening(raw.turns), pair) for raw, pair in pairs]
    return splitting.hold_out(by_opening, heldout_share, "label_people")


def left_out_pairs(file: str, left_out: Iterable[tuple[RawPreference, str]]) -> list[BadRow]:
    """The records, for the quarantine file."""
    return [bad_row(file, raw.line, reason, raw.plain_prompt) for raw, reason in left_out]


def describe_pairs(pairs: Sequence[Preference]) -> dict[str, int | float]:
    """Pairs, prompts, soft labels, mean tokens, and how often the longer answer is chosen.

    Of answers with as many tokens each is longer half the time.
    """
    lengths = [(len(pair.chosen_ids), len(pair.rejected_ids)) for pair in pairs]
    longer = [
        0.5 if chosen == rejected else float(chosen > rejected) for chosen, rejected in lengths
    ]
    return {
        "pairs": len(pairs), "prompts": len({pair.id for pair in pairs}),
        "mean_probability": round(fmean(pair.probability for pair in pairs), 6),
        "mean_prompt_tokens": round(fmean(len(pair.prompt_ids) for pair in pairs), 2),
        "mean_chosen_tokens": round(fmean(chosen for chosen, _ in lengths), 2),
        "mean_rejected_tokens": round(fmean(rejected for _, rejected in lengths), 2),
        "longer_chosen_share": round(fmean(longer), 6),
    }  # fmt: skip
