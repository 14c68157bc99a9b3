"""A judge's numbers: how it reads pairs, and how often it is right where the truth is known."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from stages.algorithms import judge_readings
from stages.algorithms.statistics.intervals import bootstrap_means
from stages.records.preferences import Verdict

DIGITS = 6
NUM_RESAMPLES, CONFIDENCE = 2000, 0.95
UNREAD = ("too_long", "parse_failure")
"""Pairs dropped for these reasons say nothing about what the judge prefers."""


def summarise(
    verdicts: Sequence[Verdict],
    correct: Mapping[tuple[str, int], bool],
    num_tokens: Mapping[tuple[str, int], int],
    seed: int,
) -> dict[str, Any]:
    """Numbers of one split's verdicts.

    `first_position_rate`: share of readings that prefer the answer standing first (1/2: no
    position bias); `swap_consistency`: share of pairs of which both orders prefer the same
    answer; `longer_wins_rate`: of pairs of different length, those whose averaged label prefers
    the longer; `agreement`: see `against_truth`.

    Args:
        verdicts: of every pair that was asked about.
        correct: by problem and index, whether the verifier calls the completion right.
        num_tokens: likewise, its length.
        seed: of the bootstrap.
    """
    dropped = Counter(verdict.dropped for verdict in verdicts if verdict.dropped is not None)
    metrics: dict[str, Any] = {
        "pairs_asked": len(verdicts),
        "pairs": len(verdicts) - dropped.total(),
        "dropped": dict(sorted(dropped.items())),
        "parse_failures": _rate([verdict.dropped == "parse_failure" for verdict in verdicts]),
    }
    read = [verdict for verdict in verdicts if verdict.dropped not in UNREAD]
    if not read:
        return metrics
    p12, p21, soft = _readings(read)
    consistent = [
        judge_readings.orders_agree(a, b) for a, b in zip(p12.tolist(), p21.tolist(), strict=True)
    ]
    lengths = np.array(
        [
            num_tokens[verdict.id, verdict.index_a] - num_tokens[verdict.id, verdict.index_b]
            for verdict in read
        ]
    )
    uneven = lengths != 0
    longer = judge_readings.judged_right(soft[uneven], lengths[uneven] > 0)
    metrics |= {
        "swap_consistency": _rate(consistent),
        "first_position_rate": _mean(judge_readings.first_position(p12, p21)),
        "first_position_probability": _mean((p12 + p21) / 2),
        "mean_gap": _mean(np.array([verdict.gap for verdict in read], dtype=float)),
        "mean_option_mass": _mean(np.array([verdict.option_mass for verdict in read], dtype=float)),
    }
    if len(longer):
        metrics["longer_wins_rate"] = _mean(longer)
    decided = [
        verdict
        for verdict in read
        if correct[verdict.id, verdict.index_a] != correct[verdict.id, verdict.index_b]
    ]
    metrics["agreement"] = (
        against_truth(decided, correct, num_tokens, seed) if decided else {"pairs": 0}
    )
    return metrics


def headline(metrics: Mapping[str, Any]) -> dict[str, int | float]:
    """What is shown while the stage runs: pairs, both orders agreeing, and agreement with truth."""
    found = {name: metrics[name] for name in ("pairs", "swap_consistency") if name in metrics}
    agreement = metrics.get("agreement", {}).get("averaged")
    return found | ({"agreement": agreement["value"]} if agreement else {})


def against_truth(
    verdicts: Sequence[Verdict],
    correct: Mapping[tuple[str, int], bool],
    num_tokens: Mapping[tuple[str, int], int],
    seed: int,
) -> dict[str, Any]:
    """How often the judge is right about pairs of one right and one wrong completion.

    `single_order` is what reading each pair once would give, `averaged` both orders, `gain` the
    paired difference. `longer_wins` is what always choosing the longer completion would give (equal
    ones: half), `beyond_length` what the judge has over that, `equal_length` the averaged label on
    the pairs of equally long ones, of which length says nothing. Pairs are averaged within
    problems, intervals are bootstrapped over problems.
    """
    p12, p21, soft = _readings(verdicts)
    a_right = np.array([correct[verdict.id, verdict.index_a] for verdict in verdicts])
    problems = [verdict.id for verdict in verdicts]
    single = judge_readings.single_order_right(p12, p21, a_right)
    averaged = judge_readings.judged_right(soft, a_right)
    metrics: dict[str, Any] = {"pairs": len(verdicts), "problems": len(set(problems))}
    longer = np.array(
        [
            num_tokens[verdict.id, verdict.index_a] - num_tokens[verdict.id, verdict.index_b]
            for verdict in verdicts
        ]
    )
    by_length = judge_readings.judged_right(0.5 + 0.5 * np.sign(longer), a_right)
    columns = {
        "single_order": single,
        "averaged": averaged,
        "gain": averaged - single,
        "longer_wins": by_length,
        "beyond_length": averaged - by_length,
    }
    metrics |= _intervals(problems, columns, seed)
    equal = longer == 0
    if equal.any():
        of_equal = [problem for problem, same in zip(problems, equal, strict=True) if same]
        metrics |= _intervals(of_equal, {"equal_length": averaged[equal]}, seed)
        metrics["equal_length_pairs"] = int(equal.sum())
    return metrics


def flip_rates(found: Mapping[str, Sequence[tuple[str, float]]], seed: int) -> dict[str, Any]:
    """Share of verdicts that each attack flips; `all` of them; `control`, for comparison."""
    attacks = [flip for name, flips in found.items() if name != "control" for flip in flips]
    groups = {"all": attacks, **found}
    return {
        name: {"readings": len(flips)}
        | (
            _intervals(
                [problem for problem, _ in flips],
                {"flipped": np.array([flipped for _, flipped in flips])},
                seed,
            )["flipped"]
            if flips
            else {}
        )
        for name, flips in groups.items()
    }


def _readings(
    verdicts: Sequence[Verdict],
) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " pair"], Float[np.ndarray, " pair"]]:
    rows = [(verdict.p12, verdict.p21, verdict.probability) for verdict in verdicts]
    columns = np.array(rows, dtype=float).T
    return columns[0], columns[1], columns[2]


def _intervals(
    problems: Sequence[str], columns: Mapping[str, Float[np.ndarray, " pair"]], seed: int
) -> dict[str, dict[str, float]]:
    means = judge_readings.means_by_problem(problems, np.stack(list(columns.values()), axis=1))
    found = bootstrap_means(means, num_resamples=NUM_RESAMPLES, confidence=CONFIDENCE, seed=seed)
    return {
        name: {
            "value": round(float(value), DIGITS),
            "low": round(float(low), DIGITS),
            "high": round(float(high), DIGITS),
        }
        for name, value, low, high in zip(columns, *found, strict=True)
    }


def _rate(flags: Sequence[bool] | Bool[np.ndarray, " pair"]) -> float:
    return round(float(np.mean(flags)), DIGITS) if len(flags) else 0.0


def _mean(values: Float[np.ndarray, " pair"]) -> float:
    return round(float(values.mean()), DIGITS)
