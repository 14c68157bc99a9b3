"""Transcripts of the policies on the same problems, which fixed rules choose."""

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
"""Problems drawn at random; of a policy or a pair, those that speak for it, and against it."""
MAX_CHARACTERS = 4000
"""Of a completion, its beginning and end: with thoughts of thousands of tokens a page would be too
large to send."""
RULE = (
    "Greedy completions; problems are drawn at random, or chosen by a fixed rule, none twice. Of "
    "two policies: the problems that one has right and the other wrong with most seeds, and the "
    "reverse. Of one policy: the problems where its share of right seeds is furthest above, "
    "and below, that of all other policies together. Shown is the first seed with the largest such "
    "difference; ties are broken by a draw."
)
TITLE = "Drawn at random"
RULE_WITHOUT_ANSWERS = "Greedy completions of the first seed, on problems drawn at random."
Completions = Mapping[str, Sequence[Sequence[Completion]]]
"""Policy -> of each seed its greedy completions, one a problem; the baseline is the first."""
Verdicts = Bool[np.ndarray, "policy seed problem"]
ShownT = TypeVar("ShownT")
Show = Callable[[int, int, Sequence[int], str], ShownT]
"""A block of the report on a problem and a seed, by these policies, all by their places; and why it
was chosen."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """A problem, and what policies wrote."""

    prompt: Prompt
    reason: str
    answers: list[tuple[str, str, bool | None]]
    """A policy's name, what it wrote, and whether that is right; None: nothing is known."""


@dataclass(frozen=True, kw_only=True)
class Transcripts:
    """All that are shown, and how often policies disagree."""

    rule: str
    """How they were chosen, in words."""
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
    """Transcripts by `RULE`: where two policies differ most, of each policy, and at random.

    Without gold answers there is no verdict, `right` is None and all are drawn at random.
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
        return Transcripts(rule=RULE_WITHOUT_ANSWERS, disagreements=[], groups={TITLE: random})
    # Before any verdict is looked at.
    random = [show(at, 0, policies, "") for at in order[:DRAWN]]
    groups = dict(choose_groups(names, right, order[DRAWN:], show)) | {TITLE: random}
    disagreements = count_disagreements(names, right)
    return Transcripts(rule=RULE, disagreements=disagreements, groups=groups)


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
    """Places of problems in an order drawn by their ids."""
    return sorted(range(len(ids)), key=lambda at: derive_seed(seed, "transcripts", ids[at]))


def choose_groups(
    names: Sequence[str],
    right: Verdicts,
    order: Sequence[int],
    show: Show[ShownT],
    word: str = "right",
) -> Iterator[tuple[str, list[ShownT]]]:
    """Title and blocks: of the two policies that differ most, then of each policy.

    `word` says of a policy that its verdict is True.
    """
    unused, policies = list(order), range(len(names))
    if len(names) > 1:
        first, second = max(
            itertools.combinations(policies, 2),
            key=lambda pair: int((right[pair[0]] != right[pair[1]]).sum()),
        )
        better, worse = sorted((first, second), key=lambda at: -right[at].sum())
        title = f"Where {names[better]} and {names[worse]} differ most"
        yield title, _compare_policy(names, right, (better, [worse]), unused, show, word)
    if len(names) > 2:
        for policy in policies:
            rivals = [rival for rival in policies if rival != policy]
            title = f"What sets {names[policy]} apart"
            yield title, _compare_policy(names, right, (policy, rivals), unused, show, word)


def _compare_policy(
    names: Sequence[str],
    right: Verdicts,
    compared: tuple[int, Sequence[int]],
    unused: list[int],
    show: Show[ShownT],
    word: str,
) -> list[ShownT]:
    """The problems among `unused`, which loses them, that tell a policy from its rivals."""
    policy, rivals = compared
    against = names[rivals[0]] if len(rivals) == 1 else "the others"
    blocks: list[ShownT] = []
    for problem, seed in choose_places(right[policy] - right[rivals].mean(axis=0), unused):
        unused.remove(problem)
        seeds, cases = right[policy, :, problem], right[rivals][:, :, problem]
        reason = (
            f"{names[policy]} {word} with {seeds.sum()} of {seeds.size} seeds, {against} with "
            f"{cases.sum()} of {cases.size}; here "
        )
        blocks.append(show(problem, seed, sorted([policy, *rivals]), reason))
    return blocks


def choose_places(
    gaps: Float[np.ndarray, "seed problem"], order: Sequence[int]
) -> list[tuple[int, int]]:
    """Problems of the largest and of the smallest mean gap over seeds, each with the seed to show.

    `ABOVE` with a gap above 0 and `BELOW` with one below 0, where there are so many; ties stay in
    `order`. The seed is the first with the problem's largest gap, or its smallest.
    """
    means = gaps.mean(axis=0).round(9)
    above = sorted((at for at in order if means[at] > 0), key=lambda at: -means[at])[:ABOVE]
    below = sorted((at for at in order if means[at] < 0), key=lambda at: means[at])[:BELOW]
    return [(at, int(gaps[:, at].argmax())) for at in above] + [
        (at, int(gaps[:, at].argmin())) for at in below
    ]


def shorten(text: str) -> str:
    """A completion of more than `MAX_CHARACTERS` without its middle, and how much that was."""
    if len(text) <= MAX_CHARACTERS:
        return text
    half = MAX_CHARACTERS // 2
    return f"{text[:half]}\n[{len(text) - 2 * half:,} characters not shown]\n{text[-half:]}"
