"""What a reinforcement-learning run's rollouts were like, step by step."""

from collections.abc import Iterable
from dataclasses import dataclass

from stages.records.pools import Rollout


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """Means over the rollouts of one step."""

    step: int
    num_rollouts: int
    reward: float
    """What the algorithm maximised."""
    accuracy: float
    """The answer checker's verdict: the true reward, on training problems."""
    tokens: float
    truncation_rate: float


def points(rollouts: Iterable[Rollout]) -> list[CurvePoint]:
    """One point a step, in order."""
    steps: dict[int, list[Rollout]] = {}
    for row in rollouts:
        steps.setdefault(row.step, []).append(row)
    return [
        CurvePoint(
            step=step,
            num_rollouts=len(rows),
            reward=sum(row.reward for row in rows) / len(rows),
            accuracy=sum(row.correct for row in rows) / len(rows),
            tokens=sum(len(row.completion_ids) for row in rows) / len(rows),
            truncation_rate=sum(row.finish_reason == "length" for row in rows) / len(rows),
        )
        for step, rows in sorted(steps.items())
    ]
