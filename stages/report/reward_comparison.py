"""Comparison of policies by reward models, if answers cannot be checked.

For each reward: the mean score of a policy's samples, with differences paired by seed and prompt
(`comparison.test_gains`), and the win rate: the share of pairs of a policy's and the baseline's
sample for a prompt in which the policy's has the higher score, ties half. Scores have no unit and
no zero, and the models of two seeds have different scales; the win rate depends on neither.

A policy trained on a reward model also learns what the model overrates (Gao et al. 2023,
https://arxiv.org/abs/2210.10760): a gain by that model need not be a gain to people.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from stages.records.metrics import read_metrics
from stages.records.pools import ScoredPrompt
from stages.report.comparison import estimate_intervals, test_gains
from stages.report.estimates import OF_SAMPLES, TOKENS, Results, Table, read_rows


def read_scored_results(
    folder: Path, policies: Sequence[str], seeds: Sequence[int], confidence: float
) -> Results:
    """Results of the policies, baseline first, as written by `evaluate` below `folder`."""
    rows = read_rows(folder, policies, seeds, ScoredPrompt)
    names, first = list(rows), rows[policies[0]][0]

    def scores(policy: str, scorer: str) -> Float[np.ndarray, "seed prompt sample"]:
        return np.array([[row.scores[scorer] for row in of_seed] for of_seed in rows[policy]])

    tables: dict[str, dict[str, Table]] = {}
    for name, of_seeds in rows.items():
        tables[name] = {
            measure: np.array([[getattr(row, measure) for row in of_seed] for of_seed in of_seeds])
            for measure in OF_SAMPLES
        }
        for scorer in first[0].scores:
            policy_scores, baseline_scores = scores(name, scorer), scores(names[0], scorer)
            tables[name][f"reward/{scorer}"] = policy_scores.mean(axis=-1)
            if name != names[0]:
                tables[name][f"wins/{scorer}"] = win_rates(policy_scores, baseline_scores)
    return Results(
        seeds=list(seeds), ids=[row.id for row in first],
        num_samples=len(next(iter(first[0].scores.values()), ())),
        ns=[], tables=tables, halves={},
        metrics={name: read_metrics(folder / name, seeds) for name in names}, confidence=confidence,
    )  # fmt: skip


def win_rates(
    policy_scores: Float[np.ndarray, "seed prompt sample"],
    baseline_scores: Float[np.ndarray, "seed prompt other"],
) -> Table:
    """Win rate of the policy's samples against the baseline's, [seed, prompt].

        mean over samples i, j of  (1 + sign(policy_scores[i] - baseline_scores[j])) / 2

    A tie counts half.
    """
    gaps = policy_scores[..., :, None] - baseline_scores[..., None, :]
    return (0.5 + 0.5 * np.sign(gaps)).mean(axis=(-2, -1))


def compare_by_rewards(results: Results) -> dict[str, Any]:
    """Numbers of `data/report/metrics.json` that are estimated on test prompts.

    Each reward has its own family of comparisons: every policy minus the baseline.
    """
    baseline = next(iter(results.tables))
    measures = [name for name in results.tables[baseline] if name.startswith("reward/")]
    gains = {name: test_gains(results, name, baseline, are_shares=False) for name in measures}
    return {
        "baseline": baseline, "seeds": results.seeds, "num_problems": len(results.ids),
        "confidence": results.confidence,
        "policies": {
            name: estimate_intervals(table, results, no_shares=[*measures, TOKENS])
            for name, table in results.tables.items()
        },
        "gains": gains,
    }  # fmt: skip
