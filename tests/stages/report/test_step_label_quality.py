"""The audit on solutions worked by hand."""

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.algorithms.selection.best_of_n import pass_at_k
from stages.records.steps import PrefixCount, StepLabels
from stages.report.step_label_quality import (
    RATIOS,
    AuditConfig,
    AuditedSolution,
    audit_labels,
    first_error_probability,
    min_right,
    subset_sizes,
    summarise_labels,
    wrong_probability,
)

CONFIG = AuditConfig(thresholds=[0.5], num_bootstrap=200, confidence=0.95)
# K = 2. A: all right, but its second prefix is completed rightly only once; B: wrong from its
# second step on, one lucky completion of its second prefix; C: a wrong guess, which is known.
A = AuditedSolution(id="a", num_right=[2, 1], correct=True, true_labels=[True] * 3)
B = AuditedSolution(id="b", num_right=[2, 1], correct=False, true_labels=[True, False, False])
C = AuditedSolution(id="b", num_right=[], correct=False, true_labels=[False])


def values(found):
    return {name: found[name] and found[name]["value"] for name in RATIOS}


def test_sizes():
    assert subset_sizes(8) == [1, 2, 4, 8]
    assert subset_sizes(6) == [1, 2, 4, 6]
    assert subset_sizes(1) == [1]


def test_worked_by_hand():
    result = audit_labels([A, B, C], CONFIG, num_completions=2, seed=0)
    # Of one completion, the second prefix of A and that of B say "wrong" half of the time.
    quality = {
        "precision": 0.5,
        "recall": 0.5,
        "agreement": 0.5,
        "error_accuracy": 0.5,
        "correct_accuracy": 0.5,
    }
    assert values(result["hard"]["1"]) == pytest.approx(quality, abs=1e-6)
    assert values(result["soft_0.5"]["1"]) == pytest.approx(quality, abs=1e-6)
    assert result["hard"]["1"]["f1"] == pytest.approx(0.5)
    # Of two, one is right, which is "any" and half.
    for rule in ("hard", "soft_0.5"):
        two = values(result[rule]["2"])
        assert two["precision"] is None  # nothing is labelled wrong
        assert two["recall"] == 0.0
        assert two["error_accuracy"] == 0.0  # B's error is found a step late
        assert two["correct_accuracy"] == 1.0


def test_a_threshold_above_a_half_needs_both():
    config = AuditConfig(thresholds=[0.75], num_bootstrap=200, confidence=0.95)
    result = audit_labels([A, B, C], config, num_completions=2, seed=0)["soft_0.75"]["2"]
    assert values(result) == pytest.approx(
        {
            "precision": 0.5,
            "recall": 1.0,
            "agreement": 0.5,
            "error_accuracy": 1.0,
            "correct_accuracy": 0.0,
        },
        abs=1e-6,
    )
    assert result["f1"] == 0.0


def test_the_expectation_is_the_mean_over_all_choices_of_completions():
    outcomes = {"first": [1, 1, 0, 1], "second": [0, 1, 0, 0]}  # B's two prefixes, K = 4
    solution = AuditedSolution(
        id="b", num_right=[3, 1], correct=False, true_labels=[True, False, False]
    )
    result = audit_labels([solution], CONFIG, num_completions=4, seed=0)["hard"]["2"]
    hits = []
    for first in itertools.combinations(outcomes["first"], 2):
        for second in itertools.combinations(outcomes["second"], 2):
            labels = [any(first), any(second), False]
            hits.append(labels.index(False) == 1)
    assert result["error_accuracy"]["value"] == pytest.approx(sum(hits) / len(hits), abs=1e-6)


def test_intervals_hold_the_value_and_are_the_same_for_the_same_seed():
    stream = random.Random(0)
    many = []
    for problem in range(60):
        first = stream.choice([-1, 0, 1, 2])
        truth = [first in (-1, 2), first == 2, False] if first != -1 else [True] * 3
        counts = [stream.randint(0, 2) for _ in range(2)]
        many.append(
            AuditedSolution(
                id=str(problem), num_right=counts, correct=first == -1, true_labels=truth
            )
        )
    result = audit_labels(many, CONFIG, num_completions=2, seed=1)
    assert result == audit_labels(many, CONFIG, num_completions=2, seed=1)
    for name in RATIOS:
        entry = result["hard"]["1"][name]
        assert entry["low"] <= entry["value"] <= entry["high"]
        assert entry["low"] < entry["high"]


def test_without_an_error_only_the_right_ones_are_counted():
    result = values(audit_labels([A], CONFIG, num_completions=2, seed=0)["hard"]["2"])
    assert result["recall"] is None
    assert result["error_accuracy"] is None
    assert result["correct_accuracy"] == 1.0


PLAIN = AuditConfig(thresholds=[], num_bootstrap=100, confidence=0.95)


def row(index, labels, truth, *, correct):
    return StepLabels(
        id="a",
        index=index,
        prompt="",
        prompt_ids=[1],
        steps=["x"] * len(labels),
        step_ids=[[2]] * len(labels),
        labels=labels,
        num_completions=[4] * (len(labels) - 1) + [0],
        true_labels=truth,
        correct=correct,
        source="math_shepherd",
    )


def count(ids, right):
    return PrefixCount(
        id="a",
        prefix_ids=ids,
        num_completions=4,
        num_right=right,
        low=0.25,
        high=0.75,
        generated_tokens=30,
    )


COMMON = count([2], 4)
ROWS = [
    (row(0, [1.0, 0.0, 1.0], [True, False, False], correct=True), [COMMON, count([2, 2], 0)]),
    (row(1, [1.0, 1.0], [True, True], correct=True), [COMMON]),
]


def summary(rows):
    return summarise_labels(rows, PLAIN, num_cut=5, seed=0)


def test_what_was_completed_once_is_paid_once_and_labels_two_steps():
    result = summary(ROWS)
    assert (result["estimated_labels"], result["completed_prefixes"]) == (3, 2)
    assert result["tokens_per_label"] == 20.0


def test_counts_and_shares():
    result = summary(ROWS)
    assert (result["problems"], result["solutions"], result["steps"]) == (1, 2, 5)
    assert result["cut_completions"] == 5
    assert result["interval_width"] == 0.5
    assert result["labelled_right"] == 0.8
    assert result["truly_right"] == 0.6
    assert result["answers_right"] == 1.0
    assert result["right_answers_with_a_wrong_step"] == 0.5
    assert result["audit"]["hard"]["4"]["precision"]["value"] == 1.0


def test_nothing_is_audited_where_nothing_was_estimated_or_nothing_is_known():
    truth = [(row(0, [1.0, 0.0], [True, False], correct=False), [])]
    unknown = [(row(0, [1.0, 0.0], None, correct=False), [COMMON])]
    for rows in (truth, unknown):
        result = summary(rows)
        assert result["audit"] == {}
    assert summary(truth)["tokens_per_label"] is None
    assert summary(unknown)["truly_right"] is None


def test_no_solution_at_all_has_no_shares():
    assert summary([])["answers_right"] is None


@pytest.mark.parametrize(
    ("threshold", "k", "expected"),
    [(0.0, 8, 1), (0.5, 1, 1), (0.5, 4, 2), (0.5, 5, 3), (0.1, 10, 1), (0.3, 10, 3), (1.0, 4, 4)],
)
def test_the_fewest_right_completions(threshold, k, expected):
    assert min_right(threshold, k) == expected


def test_fewer_completions_worked_by_hand():
    assert wrong_probability(1, 4, subset_size=2, needed=1) == 0.5
    # 2 of 4 right, pairs of them: one pair of 6 is both right
    assert wrong_probability(2, 4, subset_size=2, needed=2) == pytest.approx(5 / 6)
    assert wrong_probability(0, 4, subset_size=1, needed=1) == 1.0
    assert wrong_probability(4, 4, subset_size=3, needed=3) == 0.0
    assert wrong_probability(2, 4, subset_size=4, needed=2) == 0.0
    assert wrong_probability(2, 4, subset_size=4, needed=3) == 1.0


@given(st.integers(1, 7), st.data())
def test_it_is_the_mean_over_all_subsets(num, data):
    outcomes = data.draw(st.lists(st.booleans(), min_size=num, max_size=num))
    k = data.draw(st.integers(1, num))
    needed = data.draw(st.integers(1, k))
    subsets = list(itertools.combinations(outcomes, k))
    expected = sum(sum(item) < needed for item in subsets) / len(subsets)
    actual = wrong_probability(sum(outcomes), num, subset_size=k, needed=needed)
    assert actual == pytest.approx(expected)


@given(st.integers(1, 20), st.data())
def test_with_one_needed_it_is_what_pass_at_k_leaves(num, data):
    num_right, k = data.draw(st.integers(0, num)), data.draw(st.integers(1, num))
    result = wrong_probability(num_right, num, subset_size=k, needed=1)
    assert result == pytest.approx(1 - pass_at_k(num, num_right, k=k))


def test_the_first_error_worked_by_hand():
    assert first_error_probability([0.5, 0.2], 0) == 0.5
    assert first_error_probability([0.5, 0.2], 1) == pytest.approx(0.1)
    assert first_error_probability([0.5, 0.2], -1) == pytest.approx(0.4)
    assert first_error_probability([], -1) == 1.0


@given(st.lists(st.floats(0, 1), max_size=6))
def test_the_first_error_is_somewhere_or_nowhere(wrong):
    total = math.fsum(first_error_probability(wrong, first) for first in range(-1, len(wrong)))
    assert total == pytest.approx(1.0)


def test_an_unknown_verdict_is_not_a_wrong_one():
    with pytest.raises(AssertionError, match="unknown"):
        summary([(row(0, [1.0], [True], correct=None), [])])
    with pytest.raises(AssertionError, match="unknown"):
        summary([(row(0, [1.0, 1.0], [True, None], correct=True), [])])
