"""Which problems the report page shows in full: by a rule that no one can bend to a story."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stages import seeding

RULE = (
    "Greedy completions. First problems drawn at random; then, of the others, those on which the "
    "methods disagree most: as many as that which {baseline} gets wrong and some method right, "
    "and as many which {baseline} gets right and some method wrong. Disagreement is the smaller "
    "of the number of policies that are right and of those that are wrong; ties and the random "
    "problems are drawn by the run's seed."
)
"""The rule in words, for the page."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """A problem that is shown."""

    place: int
    """Its number among the prompts, from 0."""
    reason: str


def choose(
    ids: Sequence[str],
    greedy_right: Mapping[str, Sequence[bool]],
    baseline: str,
    *,
    disagreeing: int,
    drawn: int,
    seed: int,
) -> list[Chosen]:
    """The problems by the rule of `RULE`, none twice; fewer where there are fewer.

    Args:
        ids: of the problems.
        greedy_right: for each policy, the baseline included, its verdict on each problem.
        baseline: the policy that the others are compared with.
        disagreeing: how many gains, and how many losses.
        drawn: how many at random.
        seed: of the draws.
    """
    order = sorted(range(len(ids)), key=lambda place: seeding.derive(seed, ids[place]))
    random, rest = order[:drawn], order[drawn:]
    others = [verdicts for name, verdicts in greedy_right.items() if name != baseline]
    before = greedy_right[baseline]

    def disagreement(place: int) -> int:
        num_right = sum(verdicts[place] for verdicts in greedy_right.values())
        return min(num_right, len(greedy_right) - num_right)

    # The sort is stable: ties stay in the order that was drawn.
    most = sorted(rest, key=disagreement, reverse=True)
    gains = [p for p in most if not before[p] and any(one[p] for one in others)][:disagreeing]
    losses = [p for p in most if before[p] and not all(one[p] for one in others)][:disagreeing]
    return [
        *(Chosen(place=place, reason="drawn at random") for place in random),
        *(Chosen(place=p, reason=f"{baseline} wrong, another right") for p in gains),
        *(Chosen(place=p, reason=f"{baseline} right, another wrong") for p in losses),
    ]


def transitions(
    greedy_right: Mapping[str, Sequence[bool]], baseline: str
) -> dict[str, tuple[int, int, int, int]]:
    """For each other policy: problems right under both, gained, lost, wrong under both."""
    before = greedy_right[baseline]
    found = {}
    for name, verdicts in greedy_right.items():
        if name != baseline:
            pairs = list(zip(before, verdicts, strict=True))
            kinds = ((True, True), (False, True), (True, False), (False, False))
            found[name] = tuple(sum(pair == kind for pair in pairs) for kind in kinds)
    return found
