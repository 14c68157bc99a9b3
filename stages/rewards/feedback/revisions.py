"""Preference pairs and demonstrations from revised answers, and the quality of the revisions.

Bai et al. 2022 (Constitutional AI), https://arxiv.org/abs/2212.08073: section 3 fine-tunes on the
revisions. Departures: only those of the last round; and pairs that prefer the last revision to the
first answer, while the paper asks a judge: such a label is a claim of the constitution, and may be
wrong.

The answer checker, which has no part in the labels, measures their quality. `harsher`: models
trained too long on a constitution scold and refuse in set phrases (section 4.3 there). `longer`:
judges and people prefer long answers, whatever they say.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from stages.records import pools
from stages.records.pools import Completion
from stages.records.preferences import Preference, Revision
from stages.records.problems import Demonstration, Prompt
from stages.rewards import answer_checker

Outcome = Literal["pair", "unchanged", "empty", "cut", "too_long"]


class DraftAnswer(NamedTuple):
    """First answer, to be revised."""

    prompt: Prompt
    completion: Completion


@dataclass(frozen=True, slots=True)
class RevisedAnswer:
    """An answer with its revisions, in the order of the rounds."""

    prompt: Prompt
    original: Completion
    revisions: list[Revision]
    num_rounds: int
    """Planned number of revisions; with fewer, a request was too long."""

    @property
    def outcome(self) -> Outcome:
        """Outcome of the revisions: a pair, or the reason why there is none."""
        if len(self.revisions) < self.num_rounds:
            return "too_long"
        last = self.revisions[-1]
        if "length" in (self.original.finish_reason, last.revision_finish):
            return "cut"
        if not last.revision.strip():
            return "empty"
        return "unchanged" if last.revision == self.original.completion else "pair"

    def final(self) -> Completion:
        """The last revision, as another answer to the problem."""
        last = self.revisions[-1]
        return replace(self.original, completion=last.revision, completion_ids=last.revision_ids)

    def preference(self) -> Preference | None:
        """Pair that prefers the last revision to the first answer, if `outcome` is a pair."""
        if self.outcome != "pair":
            return None
        pair = self.final(), self.original
        return pools.make_preference(self.prompt, *pair, 1.0, "constitution")

    def demonstration(self) -> Demonstration | None:
        """The problem with the last revision, unless that is empty, truncated or missing."""
        if self.outcome in ("too_long", "empty") or self.revisions[-1].revision_finish == "length":
            return None
        return pools.make_demonstration(self.prompt, self.final())

    def is_right(self, text: str) -> bool:
        """The answer checker's verdict on another answer; False without a gold answer."""
        return self.prompt.answer is not None and answer_checker.solves_problem(self.prompt, text)


def choose_answers(
    problems: Sequence[tuple[Prompt, list[Completion]]], max_per_problem: int
) -> list[DraftAnswer]:
    """The first distinct completions of each problem, at most `max_per_problem`, as drawn.

    One per problem is a fair sample of the policy; among several, frequent ones are too rare.
    """
    return [
        DraftAnswer(prompt, completion)
        for prompt, pool in problems
        for completion in pools.deduplicate(pool)[0][:max_per_problem]
    ]


def join_revisions(
    answers: Sequence[DraftAnswer], rows: Sequence[Revision], num_rounds: int
) -> list[RevisedAnswer]:
    """Each answer with its revisions, in the order of `answers`."""
    revisions: dict[tuple[str, int], list[Revision]] = {}
    for row in sorted(rows, key=lambda row: row.round):
        revisions.setdefault((row.id, row.index), []).append(row)
    return [
        RevisedAnswer(prompt, original, revisions.get((prompt.id, original.index), []), num_rounds)
        for prompt, original in answers
    ]


SCOLDING = re.compile(
    r"\b(?:i (?:cannot|can't|can not|won't|will not)|i'?m sorry|as an ai|inappropriate|unethical|"
    r"immoral|offensive|harmful|illegal|unacceptable|disrespectful|seek (?:professional )?help)\b",
    re.IGNORECASE,
)
"""Phrases of refusing and lecturing; `harsher`: the preferred answer has more of them."""


def summarise_revisions(
    answers: Sequence[RevisedAnswer],
) -> dict[str, int | float | dict[str, float]]:
    """Metrics of the revisions: counts and shares.

    `accuracy`: of the answers that went through all rounds, before them and after each; empty if
    there is no gold answer. `label_right`: share of the `decided_pairs`, those with one right
    answer, that prefer it.
    """
    outcomes = Counter(answer.outcome for answer in answers)
    whole = [answer for answer in answers if answer.outcome != "too_long"]
    checkable = [answer for answer in whole if answer.prompt.answer is not None]
    pairs = [(answer, pair) for answer in whole if (pair := answer.preference()) is not None]
    verdicts = [
        (answer.is_right(pair.chosen), answer.is_right(pair.rejected)) for answer, pair in pairs
    ]
    decided = [chosen for chosen, rejected in verdicts if chosen != rejected]
    changed = sum(answer.revisions[-1].revision != answer.original.completion for answer in whole)
    right: dict[str, list[bool]] = {}
    if checkable:
        right["original"] = [answer.is_right(answer.original.completion) for answer in checkable]
    for number in range(checkable[0].num_rounds if checkable else 0):
        texts = [answer.revisions[number].revision for answer in checkable]
        right[f"round_{number + 1}"] = list(map(RevisedAnswer.is_right, checkable, texts))
    phrases = [
        [len(SCOLDING.findall(t)) for t in (pair.chosen, pair.rejected)] for _, pair in pairs
    ]
    return {
        "answers": len(answers),
        "pairs": len(pairs),
        **{f"left_out_{why}": outcomes[why] for why in ("unchanged", "empty", "cut", "too_long")},
        "changed": rounded_share(changed, len(whole)),
        "accuracy": {
            name: rounded_share(sum(round_), len(round_)) for name, round_ in right.items()
        },
        "decided_pairs": len(decided),
        "label_right": rounded_share(sum(decided), len(decided)),
        "longer": rounded_share(
            sum(len(p.chosen_ids) > len(p.rejected_ids) for _, p in pairs), len(pairs)
        ),
        "harsher": rounded_share(
            sum(chosen > rejected for chosen, rejected in phrases), len(pairs)
        ),
    }


def check_pairs(answers: Sequence[RevisedAnswer], pool: Path) -> None:
    """Raise a ValueError if there is not a single pair."""
    outcomes = Counter(answer.outcome for answer in answers)
    if not outcomes["pair"]:
        raise ValueError(
            f"{pool}: expected answers that were revised into others, found none: {dict(outcomes)}."
            f" Take a policy that has learned to revise (data.mixture), or raise max_new_tokens"
        )


def rounded_share(count: int, total: int) -> float:
    """`count` / `total`, rounded; 0 if `total` is 0."""
    return round(count / total, 6) if total else 0.0
