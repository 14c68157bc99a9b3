"""Metrics of a judge: position bias, consistency, and accuracy on pairs with a known truth."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from stages.algorithms import judge_readings
from stages.algorithms.statistics import intervals
from stages.records.metrics import round_metric, with_interval
from stages.records.preferences import Verdict

NUM_RESAMPLES, CONFIDENCE = 2000, 0.95
UNREAD = ("too_long", "parse_failure")
"""Reasons for dropped pairs, which do not show a preference of the judge."""
DIFFERENCES = ("gain", "beyond_length")
"""Columns of `compare_with_truth` that are differences of rates."""
Facts = Mapping[tuple[str, int], Any]
"""Facts about completions, by problem id and index."""


def summarise_verdicts(
    verdicts: Sequence[Verdict], correct: Facts, num_tokens: Facts, seed: int
) -> dict[str, Any]:
    """Metrics of one split's verdicts, over all pairs that the judge was asked about.

    `first_position_rate`: share of readings that prefer the first answer (1/2: no position bias);
    `swap_consistency`: share of pairs whose two orders prefer the same answer; `longer_wins_rate`:
    share, among pairs of different length, whose averaged label prefers the longer answer;
    `agreement`: see `compare_with_truth`.

    `correct`: the answer checker's verdict on a completion; `num_tokens`: its length.
    """
    dropped = Counter(verdict.dropped for verdict in verdicts if verdict.dropped is not None)
    metrics: dict[str, Any] = {
        "pairs_asked": len(verdicts), "pairs": len(verdicts) - dropped.total(),
        "dropped": dict(sorted(dropped.items())),
        "parse_failures": round_metric(dropped["parse_failure"] / max(1, len(verdicts))),
    }  # fmt: skip
    judged = [verdict for verdict in verdicts if verdict.dropped not in UNREAD]
    if not judged:
        return metrics
    p12, p21, soft, gap, mass = _columns(judged, "p12", "p21", "probability", "gap", "option_mass")
    agree = list(map(judge_readings.orders_agree, p12.tolist(), p21.tolist()))
    metrics |= {
        "swap_consistency": round_metric(sum(agree) / len(agree)),
        "first_position_rate": round_metric(judge_readings.first_position_share(p12, p21).mean()),
        "first_position_probability": round_metric(((p12 + p21) / 2).mean()),
        "mean_gap": round_metric(gap.mean()), "mean_option_mass": round_metric(mass.mean()),
    }  # fmt: skip
    longer = _longer(judged, num_tokens)
    if (uneven := longer != 0).any():
        won = judge_readings.choice_accuracy(soft[uneven], longer[uneven] > 0)
        metrics["longer_wins_rate"] = round_metric(won.mean())
    decided = [
        verdict
        for verdict in judged
        if correct[verdict.id, verdict.index_a] != correct[verdict.id, verdict.index_b]
    ]
    metrics["agreement"] = (
        compare_with_truth(decided, correct, num_tokens, seed) if decided else {"pairs": 0}
    )
    return metrics


def select_headline(metrics: Mapping[str, Any]) -> dict[str, int | float]:
    """Metrics shown while the stage runs: pairs, agreement of both orders, agreement with truth."""
    numbers = {name: metrics[name] for name in ("pairs", "swap_consistency") if name in metrics}
    agreement = metrics.get("agreement", {}).get("averaged")
    return numbers | ({"agreement": agreement["value"]} if agreement else {})


def compare_with_truth(
    verdicts: Sequence[Verdict], correct: Facts, num_tokens: Facts, seed: int
) -> dict[str, Any]:
    """Accuracy of the judge on pairs of one right and one wrong completion.

    `single_order`: with one reading per pair; `averaged`: with both orders; `gain`: the paired
    difference. `longer_wins`: of always choosing the longer completion (1/2 if equal);
    `beyond_length`: `averaged` less that; `equal_length`: `averaged` on pairs of equal length; on
    the others, `longer_preferred` and `longer_right`: by the judge, and by the answer checker.
    Pairs are averaged within problems, intervals are over problems.
    """
    p12, p21, soft = _columns(verdicts, "p12", "p21", "probability")
    a_right = np.array([correct[verdict.id, verdict.index_a] for verdict in verdicts])
    problems = [verdict.id for verdict in verdicts]
    longer = _longer(verdicts, num_tokens)
    single = judge_readings.single_order_accuracy(p12, p21, a_right)
    averaged = judge_readings.choice_accuracy(soft, a_right)
    by_length = judge_readings.choice_accuracy(0.5 + 0.5 * np.sign(longer), a_right)
    columns = {
        "single_order": single, "averaged": averaged, "gain": averaged - single,
        "longer_wins": by_length, "beyond_length": averaged - by_length,
    }  # fmt: skip
    metrics: dict[str, Any] = {"pairs": len(verdicts), "problems": len(set(problems))}
    metrics |= _intervals(problems, columns, seed)
    equal = np.flatnonzero(longer == 0)
    if len(equal):
        of_equal = [problems[pair] for pair in equal]
        metrics |= _intervals(of_equal, {"equal_length": averaged[equal]}, seed)
        metrics["equal_length_pairs"] = len(equal)
    uneven = np.flatnonzero(longer != 0)
    if len(uneven):
        preferred = judge_readings.choice_accuracy(soft[uneven], longer[uneven] > 0)
        columns = {"longer_preferred": preferred, "longer_right": by_length[uneven]}
        metrics |= _intervals([problems[pair] for pair in uneven], columns, seed)
    return metrics


def estimate_flip_rates(
    flips_by_attack: Mapping[str, Sequence[tuple[str, float]]], seed: int
) -> dict[str, Any]:
    """Share of verdicts that each attack flips, and that `all` attacks and the `control` do."""
    attacks = [
        flip for name, flips in flips_by_attack.items() if name != "control" for flip in flips
    ]
    metrics: dict[str, Any] = {}
    for name, flips in {"all": attacks, **flips_by_attack}.items():
        metrics[name] = {"readings": len(flips)}
        if flips:
            problems, flipped = zip(*flips, strict=True)
            metrics[name] |= _intervals(problems, {"flipped": np.array(flipped)}, seed)["flipped"]
    return metrics


def _columns(verdicts: Sequence[Verdict], *names: str) -> Float[np.ndarray, "name pair"]:
    rows = [[getattr(verdict, name) for verdict in verdicts] for name in names]
    return np.array(rows, dtype=float)


def _longer(verdicts: Sequence[Verdict], num_tokens: Facts) -> Int[np.ndarray, " pair"]:
    """Length difference in tokens, A minus B."""
    return np.array(
        [
            num_tokens[verdict.id, verdict.index_a] - num_tokens[verdict.id, verdict.index_b]
            for verdict in verdicts
        ]
    )


def _intervals(
    problems: Sequence[str], columns: Mapping[str, Float[np.ndarray, " pair"]], seed: int
) -> dict[str, dict[str, float]]:
    numbers = intervals.problem_numbers(problems)
    return {
        name: with_interval(
            *intervals.mean_over_problems(
                column, numbers, "difference" if name in DIFFERENCES else "rate",
                num_resamples=NUM_RESAMPLES, confidence=CONFIDENCE, seed=seed,
            )
        )
        for name, column in columns.items()
    }  # fmt: skip
