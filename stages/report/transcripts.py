"""Transcripts of the policies on the same problems, chosen by fixed rules."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float

from stages.records import lines
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.report.estimates import GREEDY, Results, check_ids
from stages.report.tables import Rows
from stages.rows import PROMPTS
from stages.seeding import derive_seed

DRAWN, ABOVE, BELOW = 2, 3, 2
"""Numbers of problems: drawn at random; that speak for a policy; that speak against it."""
MAX_CHARACTERS = 4000
"""Most characters of a completion, from its beginning and end: with thoughts of thousands of tokens
a page would be too large to send."""
TITLE = "Drawn at random"
Completions = Mapping[str, Sequence[Sequence[Completion]]]
"""Policy -> greedy completions of each seed, one per problem; the baseline is the first."""
Verdicts = Bool[np.ndarray, "policy seed problem"]
ShownT = TypeVar("ShownT")
Show = Callable[[int, int, Sequence[int], str], ShownT]
"""Function that makes a block of the report, from the indices of a problem, a seed and policies,
and the reason for the choice."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """Problem, and the completions of policies."""

    prompt: Prompt
    reason: str
    answers: list[tuple[str, str, bool | None]]
    """A policy's name, its completion, and whether that is right; None: not known."""


@dataclass(frozen=True, kw_only=True)
class Transcripts:
    """Transcripts on the page, by the rules in sections.md.j2, and counts of disagreements."""

    disagreements: Rows
    """One row per pair of policies; none without gold answers."""
    groups: dict[str, list[Transcript]]
    """Title -> transcripts."""


def read_transcripts(samples: Path, results: Results) -> Transcripts:
    """Problems that are shown in full, with the greedy completions of all policies and seeds."""
    prompts = list(lines.read_lines(PROMPTS / "test.jsonl", Prompt))
    completions = {
        name: [
            list(lines.read_lines(samples / f"{name}/{seed}/test_greedy.jsonl", Completion))
            for seed in results.seeds
        ]
        for name in results.tables
    }
    right = None
    if prompts[0].answer is not None:
        right = np.stack([table[GREEDY] > 0.5 for table in results.tables.values()])
    return choose_transcripts(prompts, completions, results.seeds, right)


def choose_transcripts(
    prompts: Sequence[Prompt],
    completions: Completions,
    seeds: Sequence[int],
    right: Verdicts | None,
) -> Transcripts:
    """Transcripts: where each policy and the first differ most, and at random.

    Without gold answers there are no verdicts: `right` is None, and all are drawn at random.
    """
    rows = itertools.chain.from_iterable(completions.values())
    ids = [prompt.id for prompt in prompts]
    check_ids(ids, ([row.id for row in of_seed] for of_seed in rows), "greedy completions")
    names, order = list(completions), draw_order(ids, seeds[0])
    policies = list(range(len(names)))

    def show(problem: int, seed: int, policies: Sequence[int], reason: str) -> Transcript:
        answers = [
            (
                names[policy],
                shorten(completions[names[policy]][seed][problem].completion),
                None if right is None else bool(right[policy, seed, problem]),
            )
            for policy in policies
        ]
        return Transcript(prompts[problem], f"{reason}seed {seeds[seed]}", answers)

    if right is None:
        random = [show(at, 0, policies, "") for at in order[: 2 * DRAWN]]
        return Transcripts(disagreements=[], groups={TITLE: random})
    # Chosen before any verdict is read.
    random = [show(at, 0, policies, "") for at in order[:DRAWN]]
    groups = dict(choose_groups(names, right, order[DRAWN:], show)) | {TITLE: random}
    disagreements = count_disagreements(names, right)
    return Transcripts(disagreements=disagreements, groups=groups)


def count_disagreements(names: Sequence[str], right: Verdicts) -> Rows:
    """Number of pairs of seed and problem that both, one or neither of two policies has right."""
    rows: Rows = []
    for (first, a), (second, b) in itertools.combinations(zip(names, right, strict=True), 2):
        counts = {
            "only the first right": a & ~b, "only the second right": ~a & b, "both right": a & b,
            "both wrong": ~a & ~b,
        }  # fmt: skip
        rows.append(
            {"policies": f"{first}, {second}"}
            | {label: f"{int(cases.sum()):,}" for label, cases in counts.items()}
        )
    return rows


def draw_order(ids: Sequence[str], seed: int) -> list[int]:
    """Indices of problems in a random order, drawn by their ids."""
    return sorted(range(len(ids)), key=lambda at: derive_seed(seed, "transcripts", ids[at]))


def choose_groups(
    names: Sequence[str],
    right: Verdicts,
    order: Sequence[int],
    show: Show[ShownT],
    word: str = "right",
) -> Iterator[tuple[str, list[ShownT]]]:
    """Title and blocks of each policy against the first one.

    `word`: adjective for a policy whose verdict is True.
    """
    unused = list(order)
    for policy in range(1, len(names)):
        blocks: list[ShownT] = []
        for problem, seed in choose_places(right[policy] - right[0].astype(float), unused):
            unused.remove(problem)
            better, worse = right[policy, :, problem], right[0, :, problem]
            reason = (
                f"{names[policy]} {word} with {better.sum()} of {better.size} seeds, {names[0]} "
                f"with {worse.sum()}; here "
            )
            blocks.append(show(problem, seed, [0, policy], reason))
        yield f"Where {names[policy]} and {names[0]} differ most", blocks


def choose_places(
    gaps: Float[np.ndarray, "seed problem"], order: Sequence[int]
) -> list[tuple[int, int]]:
    """Problems of the largest and of the smallest mean gap over seeds, each with the seed to show.

    At most `ABOVE` with a gap above 0 and `BELOW` with one below 0; ties stay in `order`. The seed
    is the first with the problem's largest gap, or its smallest.
    """
    means = gaps.mean(axis=0).round(9)
    above = sorted((at for at in order if means[at] > 0), key=lambda at: -means[at])[:ABOVE]
    below = sorted((at for at in order if means[at] < 0), key=lambda at: means[at])[:BELOW]
    return [(at, int(gaps[:, at].argmax())) for at in above] + [
        (at, int(gaps[:, at].argmin())) for at in below
    ]


def shorten(text: str) -> str:
    """Completion; one of more than `MAX_CHARACTERS` without its middle, whose length is stated."""
    if len(text) <= MAX_CHARACTERS:
        return text
    half = MAX_CHARACTERS // 2
    return f"{text[:half]}\n[{len(text) - 2 * half:,} characters not shown]\n{text[-half:]}"
