"""Transcripts of the policies on the same problems, which fixed rules choose."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from stages.records import lines
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.report.tables import Rows
from stages.rewards import answer_checker
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
RULE_WITHOUT_ANSWERS = "Greedy completions of the first seed, on problems drawn at random."
Completions = Mapping[str, Sequence[Sequence[Completion]]]
"""Policy -> of each seed its greedy completions, one a problem; the baseline is the first."""
Verdicts = Bool[np.ndarray, "policy seed problem"]


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
    """A row a pair of policies; none without gold answers."""
    groups: dict[str, list[Transcript]]
    """Title -> transcripts."""


@dataclass(frozen=True, kw_only=True)
class Graded:
    """Greedy completions of all policies, with their verdicts."""

    prompts: Sequence[Prompt]
    seeds: Sequence[int]
    completions: Completions
    right: Verdicts

    @property
    def names(self) -> list[str]:
        """The policies, the baseline first."""
        return list(self.completions)

    def show(self, problem: int, seed: int, policies: Sequence[int], reason: str) -> Transcript:
        """What these policies wrote on a problem with a seed, all by their places."""
        answers: list[tuple[str, str, bool | None]] = [
            (
                self.names[policy],
                shorten(self.completions[self.names[policy]][seed][problem].completion),
                bool(self.right[policy, seed, problem]),
            )
            for policy in policies
        ]
        return Transcript(self.prompts[problem], f"{reason}seed {self.seeds[seed]}", answers)


def read_transcripts(samples: Path, policies: Sequence[str], seeds: Sequence[int]) -> Transcripts:
    """Problems that are shown in full, with greedy completions; the baseline comes first."""
    prompts = list(lines.read_lines(PROMPTS / "test.jsonl", Prompt))
    greedy = {
        name: [
            list(lines.read_lines(samples / f"{name}/{seed}/test_greedy.jsonl", Completion))
            for seed in seeds
        ]
        for name in policies
    }
    return choose_transcripts(prompts, greedy, seeds)


def choose_transcripts(
    prompts: Sequence[Prompt], greedy: Completions, seeds: Sequence[int]
) -> Transcripts:
    """Transcripts by `RULE`: where two policies differ most, of each policy, and at random.

    Without gold answers all are drawn at random.
    """
    numbers = {prompt.id: derive_seed(seeds[0], "transcripts", prompt.id) for prompt in prompts}
    order = sorted(range(len(prompts)), key=lambda at: numbers[prompts[at].id])
    if prompts[0].answer is None:
        chosen = [
            Transcript(
                prompts[at],
                f"seed {seeds[0]}",
                [(name, of_seeds[0][at].completion, None) for name, of_seeds in greedy.items()],
            )
            for at in order[: 2 * DRAWN]
        ]
        title = "Drawn at random"
        return Transcripts(rule=RULE_WITHOUT_ANSWERS, disagreements=[], groups={title: chosen})
    right = np.array(
        [
            [judge_completions(prompts, completions) for completions in of_seeds]
            for of_seeds in greedy.values()
        ]
    )
    graded = Graded(prompts=prompts, seeds=seeds, completions=greedy, right=right)
    return Transcripts(
        rule=RULE,
        disagreements=count_disagreements(graded),
        groups=dict(_choose_groups(graded, order)),
    )


def judge_completions(prompts: Sequence[Prompt], completions: Iterable[Completion]) -> list[bool]:
    """Whether each problem's completion is right."""
    return [
        answer_checker.solves_problem(prompt, row.completion)
        for prompt, row in zip(prompts, completions, strict=True)
    ]


def count_disagreements(graded: Graded) -> Rows:
    """Of every two policies the (seed, problem) that both, one or neither has right."""
    rows: Rows = []
    for (first, a), (second, b) in itertools.combinations(
        zip(graded.names, graded.right, strict=True), 2
    ):
        counts = {
            "only the first right": a & ~b, "only the second right": ~a & b, "both right": a & b,
            "both wrong": ~a & ~b,
        }  # fmt: skip
        rows.append(
            {"policies": f"{first}, {second}"}
            | {label: f"{int(cases.sum()):,}" for label, cases in counts.items()}
        )
    return rows


def _choose_groups(graded: Graded, order: Sequence[int]) -> Iterator[tuple[str, list[Transcript]]]:
    """Title and transcripts: of the two policies that differ most, of each policy, at random.

    Those at random are drawn first, so that no verdict has a say in them.
    """
    names, right = graded.names, graded.right
    policies, drawn = list(range(len(names))), list(order[:DRAWN])
    unused = list(order[DRAWN:])
    if len(names) > 1:
        first, second = max(
            itertools.combinations(policies, 2),
            key=lambda pair: int((right[pair[0]] != right[pair[1]]).sum()),
        )
        better, worse = sorted((first, second), key=lambda at: -right[at].sum())
        yield (
            f"Where {names[better]} and {names[worse]} differ most",
            _compare_policy(graded, better, [worse], unused),
        )
    if len(names) > 2:
        for policy in policies:
            others = [other for other in policies if other != policy]
            title = f"What sets {names[policy]} apart"
            yield title, _compare_policy(graded, policy, others, unused)
    yield "Drawn at random", [graded.show(problem, 0, policies, "") for problem in drawn]


def _compare_policy(
    graded: Graded, policy: int, others: Sequence[int], unused: list[int]
) -> list[Transcript]:
    """The problems among `unused`, which lose them, that tell a policy from others."""
    gaps = graded.right[policy] - graded.right[others].mean(axis=0)
    rival = graded.names[others[0]] if len(others) == 1 else "the others"
    transcripts: list[Transcript] = []
    for problem, seed in choose_places(gaps, unused):
        unused.remove(problem)
        own, theirs = graded.right[policy, :, problem], graded.right[others][:, :, problem]
        reason = (
            f"{graded.names[policy]} right with {own.sum()} of {own.size} seeds, {rival} with "
            f"{theirs.sum()} of {theirs.size}; here "
        )
        transcripts.append(graded.show(problem, seed, sorted([policy, *others]), reason))
    return transcripts


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
