"""Comparison of policies in environments, on episodes from the test starts.

These are rows of the table `episodes` with the test split, played by a policy. An episode whose
environment failed is no evidence on the policy: it is counted, but enters no mean. If all of a
policy's episodes from a start failed with some seed, the start is left out for all policies.

Intervals and tests generalise to other problems of the same kind. Starts with the same problem, as
in an environment with few problems, are one cluster (`crossed_means.collapse_clusters`): repeated
success on a problem is no evidence on other problems. Means are still over starts. If all starts
pose a single problem, intervals are for that problem, and its starts are trials of it.
`environments/problem_digest` decides which starts have the same problem; if the environment draws
the problem from its seed and neither shows nor demonstrates it at the start, each start counts as a
different problem.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from jaxtyping import Bool

from stages.records import lines
from stages.records.episodes import EPISODES, FAILED, STARTS, Episode, StartProblem
from stages.records.metrics import round_metric
from stages.report import verdict
from stages.report.comparison import estimate_intervals, test_gains, test_pairs
from stages.report.estimates import Results, Table, check_ids
from stages.report.stage_metrics import Plan

SUCCESS = "success"
MEASURES: dict[str, Callable[[Episode], float]] = {
    SUCCESS: lambda episode: episode.success,
    "reward": lambda episode: episode.reward,
    "turns": lambda episode: len(episode.sampled),
    "tool_calls": lambda episode: episode.num_tool_calls,
    "tool_errors": lambda episode: episode.num_tool_errors,
}
"""Measure -> its value for an episode."""


@dataclass(frozen=True, kw_only=True)
class SeedEpisodes:
    """Episodes of a policy and a seed in an environment, by start."""

    means: dict[str, list[float]]
    """Measure -> its mean for each start; NaN if all its episodes failed."""
    endings: Counter[str]
    shown: list[Episode]
    """For each start, the first episode that did not fail, or else the first."""

    @property
    def ids(self) -> list[str]:
        """Ids of the starts."""
        return [episode.id for episode in self.shown]


@dataclass(frozen=True, kw_only=True)
class EnvironmentEpisodes:
    """Episodes of all policies in an environment, from the same starts with the same seeds."""

    environment: str
    policies: dict[str, list[SeedEpisodes]]
    """Policy -> its episodes for each seed; the baseline is first, if it played."""
    problems: list[tuple[str, ...]]
    """Digests of each start's problem, one per seed."""
    baseline: str | None
    """None: the baseline has not played in this environment."""
    seeds: list[int]
    confidence: float


def read_episodes(
    data: Path, plan: Plan, baseline: str, seeds: Sequence[int], confidence: float
) -> list[EnvironmentEpisodes]:
    """Episodes of policies from the test starts of each environment."""
    rows = {
        name: row
        for name, row in plan.get("episodes", {}).items()
        if row["by"] == "policy" and row["split"] == "test"
    }
    played: list[EnvironmentEpisodes] = []
    for on in dict.fromkeys(row["on"] for row in rows.values()):
        names = {row["from"]: name for name, row in rows.items() if row["on"] == on}
        policies = {
            policy: [
                group_episodes(
                    lines.read_lines(data / f"episodes/{names[policy]}/{seed}/{EPISODES}", Episode)
                )
                for seed in seeds
            ]
            for policy in sorted(names, key=lambda policy: policy != baseline)
        }
        problems = [
            [row.problem for row in lines.read_lines(path, StartProblem)]
            for seed in seeds
            for path in [data / f"episodes/{next(iter(names.values()))}/{seed}/{STARTS}"]
        ]
        ids = [seed.ids for of_policy in policies.values() for seed in of_policy]
        check_ids(ids[0], ids, f"episodes from the starts of {on}")
        played.append(
            EnvironmentEpisodes(
                environment=on.partition("/")[2], policies=policies,
                problems=list(zip(*problems, strict=True)),
                baseline=baseline if baseline in names else None, seeds=list(seeds),
                confidence=confidence,
            )
        )  # fmt: skip
    return played


def group_episodes(episodes: Iterable[Episode]) -> SeedEpisodes:
    """The episodes of a file, in which those of a start are consecutive, by start."""
    grouped = SeedEpisodes(means={name: [] for name in MEASURES}, endings=Counter(), shown=[])
    for _, group in itertools.groupby(episodes, key=lambda episode: episode.id):
        of_start = list(group)
        played = [episode for episode in of_start if episode.ending != FAILED]
        grouped.endings.update(episode.ending for episode in of_start)
        grouped.shown.append((played or of_start)[0])
        for name, measure in MEASURES.items():
            grouped.means[name].append(fmean(map(measure, played)) if played else float("nan"))
    return grouped


def compare_episodes(played: EnvironmentEpisodes) -> dict[str, Any]:
    """The numbers of an environment in `data/report/metrics.json`, and its verdict.

    Differences in success are two families of comparisons: every policy minus the baseline, and all
    pairs of the other policies.
    """
    results, num_left_out = tabulate_starts(played)
    clusters = results.clusters
    metrics = {
        "baseline": played.baseline, "seeds": played.seeds, "confidence": played.confidence,
        "num_starts": len(results.ids), "left_out": num_left_out,
        "num_problems": 1 if clusters is None else int(clusters.max()) + 1,
        "num_episodes": results.num_samples,
        "policies": {
            policy: estimate_intervals(tables, results, no_shares=MEASURES.keys() - {SUCCESS})
            | count_endings(played.policies[policy])
            for policy, tables in results.tables.items()
        },
        "gains": {SUCCESS: test_gains(results, SUCCESS, played.baseline)},
        "pairs": test_pairs(results, SUCCESS, played.baseline),
    }  # fmt: skip
    return {"verdict": verdict.describe_success(played.environment, metrics), **metrics}


def tabulate_starts(played: EnvironmentEpisodes) -> tuple[Results, int]:
    """Tables over starts with an episode of every policy and seed; number of the other starts.

    The clusters are the starts' problems; None if all starts have the same.
    """
    estimates = {
        policy: {name: np.array([seed.means[name] for seed in seeds]) for name in MEASURES}
        for policy, seeds in played.policies.items()
    }
    is_complete = find_complete(played)
    if not is_complete.any():
        raise ValueError(
            f"expected a start of {played.environment} with an episode of every policy and "
            f"seed, found none, since the environment failed: play them again"
        )
    tables: dict[str, dict[str, Table]] = {
        policy: {name: table[:, is_complete] for name, table in of_policy.items()}
        for policy, of_policy in estimates.items()
    }
    complete = np.flatnonzero(is_complete)
    _, clusters = np.unique([played.problems[at] for at in complete], axis=0, return_inverse=True)
    first = next(iter(played.policies.values()))[0]
    results = Results(
        seeds=played.seeds, ids=[first.ids[at] for at in complete],
        num_samples=first.endings.total() // len(first.ids), ns=[], tables=tables, halves={},
        metrics={}, confidence=played.confidence, clusters=clusters if clusters.any() else None,
    )  # fmt: skip
    return results, int((~is_complete).sum())


def find_complete(played: EnvironmentEpisodes) -> Bool[np.ndarray, " start"]:
    """Whether every policy has, with every seed, an episode from the start that did not fail."""
    success = [[seed.means[SUCCESS] for seed in seeds] for seeds in played.policies.values()]
    return np.all(np.isfinite(np.array(success)), axis=(0, 1))


def count_endings(seeds: Sequence[SeedEpisodes]) -> dict[str, Any]:
    """Share of each ending in all episodes, most frequent first, and number of failed episodes."""
    endings = sum((seed.endings for seed in seeds), Counter[str]())
    return {
        "endings": {
            name: round_metric(count / endings.total()) for name, count in endings.most_common()
        },
        "failed": endings[FAILED],
    }
