"""Transcripts of each policy on the same problems, which a fixed rule chooses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.records import lines
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import answer_checker
from stages.rows import PROMPTS
from stages.seeding import derive_seed

DRAWN, DISAGREEING = 2, 3
"""Problems drawn at random; problems that a policy gained, and as many that one lost."""
RULE = (
    "Greedy completions of the first seed. First problems drawn at random; then, of the others, "
    "those on which the policies disagree most: as many that {baseline} gets wrong and another "
    "policy right as the reverse."
)


@dataclass(frozen=True, slots=True)
class Transcript:
    """A problem, and what each policy wrote."""

    prompt: Prompt
    reason: str
    answers: list[tuple[str, str, bool | None]]
    """A policy's name, what it wrote, and whether that is right; None: nothing is known."""


def read_transcripts(samples: Path, policies: Sequence[str], seed: int) -> list[Transcript]:
    """Problems that are shown in full, with the greedy completions of a seed."""
    prompts = list(lines.read_lines(PROMPTS / "test.jsonl", Prompt))
    greedy = {
        name: list(lines.read_lines(samples / name / str(seed) / "test_greedy.jsonl", Completion))
        for name in policies
    }
    return choose_transcripts(prompts, greedy, seed)


def choose_transcripts(
    prompts: Sequence[Prompt], greedy: Mapping[str, Sequence[Completion]], seed: int
) -> list[Transcript]:
    """Problems by `RULE`, none twice; the baseline is the first policy of `greedy`.

    Disagreement is the smaller of the number of policies that are right and of those that are
    wrong; ties, and the problems at random, are drawn by `seed`. Without gold answers all are drawn
    at random.
    """
    baseline = next(iter(greedy))
    order = sorted(
        range(len(prompts)), key=lambda at: derive_seed(seed, "transcripts", prompts[at].id)
    )
    if prompts[0].answer is None:
        transcripts = [Transcript(prompts[at], "drawn at random", []) for at in order[: 2 * DRAWN]]
        for at, transcript in zip(order, transcripts, strict=False):
            transcript.answers.extend(
                (name, rows[at].completion, None) for name, rows in greedy.items()
            )
        return transcripts
    right = {
        name: [
            answer_checker.solves_problem(prompt, row.completion)
            for prompt, row in zip(prompts, rows, strict=True)
        ]
        for name, rows in greedy.items()
    }
    by_problem = [*zip(*right.values(), strict=True)]

    def disagreement(at: int) -> int:
        return min(sum(by_problem[at]), len(right) - sum(by_problem[at]))

    # The sort is stable: ties stay in the order that was drawn.
    by_disagreement = sorted(order[DRAWN:], key=disagreement, reverse=True)
    gains = [at for at in by_disagreement if not right[baseline][at] and any(by_problem[at])]
    losses = [at for at in by_disagreement if right[baseline][at] and not all(by_problem[at])]
    chosen = [
        *((at, "drawn at random") for at in order[:DRAWN]),
        *((at, f"{baseline} wrong, another right") for at in gains[:DISAGREEING]),
        *((at, f"{baseline} right, another wrong") for at in losses[:DISAGREEING]),
    ]
    return [
        Transcript(
            prompts[at],
            reason,
            [(name, rows[at].completion, right[name][at]) for name, rows in greedy.items()],
        )
        for at, reason in chosen
    ]
