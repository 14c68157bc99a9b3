"""Quality of labels and rewards by hand: judges, reward and outcome models, labels of steps."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from tiny_rollouts import make_pairs

from stages.records.preferences import Outcome, Verdict
from stages.records.steps import PrefixCount, StepLabels
from stages.report import judge_quality, reward_quality
from stages.report.evaluation_config import QualityConfig
from stages.report.step_label_quality import (
    RATIOS,
    AuditConfig,
    AuditedSolution,
    audit_labels,
    min_right,
    subset_sizes,
    summarise_labels,
)


def near(value, places=4):
    return pytest.approx(value, abs=0.6 * 10**-places)


# --- judges
def verdict(name, p12, p21, dropped=None):
    numbers = {"gap": None, "probability": None, "option_mass": None}
    if p12 is not None:
        numbers = {"gap": abs(p12 - (1 - p21)), "probability": (p12 + 1 - p21) / 2,
            "option_mass": 0.8}  # fmt: skip
    return Verdict(split="train", id=name, index_a=0, index_b=1, p12=p12, p21=p21, principle=None,
        prompt_version="short-1", dropped=dropped, **numbers)  # fmt: skip


VERDICTS = [
    verdict("a", 0.9, 0.2),  # A in both orders
    verdict("b", 0.9, 0.7),  # the first, both times; label 0.6
    verdict("c", 0.3, 0.6),  # B in both orders
    verdict("d", 0.8, 0.7, dropped="low_confidence"),  # label 0.55
    verdict("e", 0.9, 0.9, dropped="parse_failure"),
    verdict("f", None, None, dropped="too_long"),
]
KEYS = list(itertools.product("abcdef", (0, 1)))
CORRECT = {(name, index): index == 0 for name, index in KEYS}
LENGTHS = {(name, index): 5 - 2 * index for name, index in KEYS}


def judge(verdicts=VERDICTS, correct=CORRECT, lengths=LENGTHS):
    return judge_quality.summarise_verdicts(verdicts, correct, lengths, seed=0)


def test_a_judges_numbers_by_hand():
    found = judge()
    expected = {
        "pairs_asked": 6, "pairs": 3, "parse_failures": 1 / 6,
        # read: a, b, c, d; A is longer and wins a, b and d
        "swap_consistency": 0.5, "first_position_rate": (0.5 + 1 + 0.5 + 1) / 4,
        "first_position_probability": (0.55 + 0.8 + 0.45 + 0.75) / 4, "longer_wins_rate": 0.75,
        "mean_gap": (0.1 + 0.6 + 0.1 + 0.5) / 4, "mean_option_mass": 0.8,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert found["dropped"] == {"low_confidence": 1, "parse_failure": 1, "too_long": 1}
    # Right in single orders: a 2 of 2, b 1, c 0, d 1. A is right, and longer, in each.
    rates = {"single_order": 0.5, "averaged": 0.75, "gain": 0.25, "longer_wins": 1.0,
        "beyond_length": -0.25}  # fmt: skip
    assert {name: found["agreement"][name]["value"] for name in rates} == rates
    assert (found["agreement"]["pairs"], found["agreement"]["problems"]) == (4, 4)
    assert "equal_length" not in found["agreement"]
    headline = judge_quality.select_headline(found)
    assert headline == {"pairs": 3, "swap_consistency": 0.5, "agreement": 0.75}


def test_a_judge_is_compared_where_it_was_read_and_one_answer_is_right():
    assert judge(correct=CORRECT | {("a", 1): True, ("b", 0): False})["agreement"]["pairs"] == 2
    assert judge(correct=dict.fromkeys(KEYS, False))["agreement"] == {"pairs": 0}
    assert set(judge(VERDICTS[4:])) == {"pairs_asked", "pairs", "dropped", "parse_failures"}
    assert "longer_wins_rate" not in judge(lengths=dict.fromkeys(KEYS, 5))


def test_pairs_of_equal_length_stand_apart():
    """`c`, which the judge has wrong, is of two as long; in `b` the wrong one is longer."""
    lengths = LENGTHS | {("c", 0): 4, ("c", 1): 4, ("b", 0): 2, ("b", 1): 9}
    found = judge(lengths=lengths)["agreement"]
    assert found["longer_wins"]["value"] == (1 + 0 + 0.5 + 1) / 4
    assert found["beyond_length"]["value"] == 0.75 - 2.5 / 4
    assert (found["equal_length_pairs"], found["equal_length"]["value"]) == (1, 0.0)


@pytest.mark.parametrize(("lengths", "correct", "preferred", "right"), [
    ({}, {}, 2 / 3, 2 / 3),  # of a, b, d the longer is A, B, A; it prefers A each time, A is right
    ({("a", 1): 9}, {}, 1 / 3, 1 / 3),
    ({("a", 1): 9}, {("a", 0): False, ("a", 1): True}, 1 / 3, 2 / 3),
    ({("a", 1): 9}, {("a", 1): True}, 1 / 2, 1 / 2),  # a is no pair of a right and a wrong one
])  # fmt: skip
def test_that_the_longer_is_preferred_and_that_it_is_right_are_of_the_same_pairs(
    lengths, correct, preferred, right
):
    unequal = LENGTHS | {("c", 0): 4, ("c", 1): 4, ("b", 0): 2, ("b", 1): 9}
    found = judge(correct=CORRECT | correct, lengths=unequal | lengths)["agreement"]
    values = [found[name]["value"] for name in ("longer_preferred", "longer_right")]
    assert values == pytest.approx([preferred, right], abs=1e-6)


def test_flip_rates_are_of_problems_with_the_control_apart():
    flips = {"x": [("a", 1.0), ("b", 0.0)], "y": [("a", 1.0)], "z": [], "control": [("a", 0.0)]}
    found = judge_quality.estimate_flip_rates(flips, 0)
    counts = {name: (row["readings"], row.get("value")) for name, row in found.items()}
    # All of problem a: 1 and 1, of b: 0. None of 1 at 95 %: to 1.96^2 / (1 + 1.96^2).
    assert counts == {"all": (3, 0.5), "x": (2, 0.5), "y": (1, 1.0), "z": (0, None),
        "control": (1, 0.0)}  # fmt: skip
    assert found["control"]["high"] == near(0.7935)


# --- reward models
CONFIG = QualityConfig(num_bins=2, length_tolerance=1, length_edges=[-1, 2], num_bootstrap=200,
    confidence=0.95)  # fmt: skip


def measure(rows, margins):
    """Rows: problem, label, tokens of the chosen and of the rejected completion."""
    (shared,) = make_pairs(1)
    pairs = [dataclasses.replace(shared, id=name, probability=label, chosen_ids=[2] * chosen,
        rejected_ids=[2] * rejected) for name, label, chosen, rejected in rows]  # fmt: skip
    scores = np.array([[margin, 0.0] for margin in margins]).reshape(-1, 2)
    return reward_quality.evaluate_pairs(pairs, scores, CONFIG, seed=0)


def test_pairs_are_averaged_over_problems_and_by_the_side_of_their_label():
    # a: (1 + 0 + 1/2) / 3, b: 1; over pairs it would be 5/8.
    found = measure([("a", 1.0, 3, 3)] * 3 + [("b", 1.0, 3, 3)], [1.0, -1.0, 0.0, 3.0])
    assert found["accuracy"] == {"value": 0.75, "low": 0.5, "high": 1.0}
    assert found["tie_rate"]["value"] == near(1 / 6)
    assert (found["pairs"], found["problems"], found["undecided_pairs"]) == (4, 2, 0)
    found = measure([("a", 0.9, 3, 3), ("b", 0.1, 3, 3), ("c", 0.5, 3, 3)], [1.0] * 3)
    assert (found["accuracy"]["value"], found["undecided_pairs"]) == (0.5, 1)
    found = measure([("a", 0.5, 3, 3)], [1.0])
    assert found["label_entropy"]["low"] == found["label_entropy"]["high"], "a number, no rate"
    assert found["accuracy"] is found["length_matched_accuracy"] is None


def test_likelihood_entropy_and_calibration_by_hand():
    # P = 3/4, which is the label: the likelihood is the label's entropy, the least it can be.
    found = measure([("a", 0.75, 3, 3)], [math.log(3.0)])
    entropy = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    names = ("negative_log_likelihood", "label_entropy", "expected_calibration_error")
    assert [found[name]["value"] for name in names] == near([entropy, entropy, 0.0], 6)
    hard = measure([("a", 1.0, 3, 3)], [-1e6])
    assert (hard["negative_log_likelihood"]["value"], hard["label_entropy"]["value"]) == (1e6, 0.0)


def test_a_model_of_lengths_is_right_by_length_alone():
    # Tokens of the better side minus the other's: 6, 0, -6, 1, and 7, for d's label is turned.
    rows = [("a", 1.0, 9, 3), ("b", 1.0, 4, 4), ("c", 1.0, 3, 9), ("d", 0.0, 2, 9),
            ("e", 1.0, 5, 4)]  # fmt: skip
    found = measure(rows, [chosen - rejected for _, _, chosen, rejected in rows])
    by_length = found["accuracy_by_length_difference"]
    shares = {name: (row["value"], row["pairs"]) for name, row in by_length.items()}
    assert shares == {"<= -2": (0.0, 1), "-1 .. 1": (0.75, 2), ">= 2": (1.0, 2)}
    assert found["length_matched_accuracy"]["pairs"] == 2
    assert by_length[">= 2"]["low"] < 0.5 < by_length[">= 2"]["high"] == 1.0
    assert measure(rows[:1], [1.0])["accuracy_by_length_difference"]["<= -2"] is None


def test_nothing_depends_on_which_of_a_pair_stands_first():
    stream = np.random.default_rng(0)
    rows = [(f"p{at // 3}", stream.random(), *stream.integers(1, 9, 2).tolist())
        for at in range(30)]  # fmt: skip
    turned = [(name, 1 - label, rejected, chosen) for name, label, chosen, rejected in rows]
    margins = stream.normal(0, 2, 30)
    assert str(measure(rows, margins)) == str(measure(turned, -margins))


def outcomes(scores, **problems):
    rows = [Outcome(id=name, prompt_ids=[2], completion_ids=[3, 1], right=right == "+", weight=1.0)
        for name, verdicts in problems.items() for right in verdicts]  # fmt: skip
    return reward_quality.evaluate_outcomes(rows, np.array(scores, dtype=float), CONFIG, seed=0)


def test_outcome_models_by_hand():
    # Areas: a 1, b 1/2, c none; shares of right ones 1/2, 1/3, 1.
    found = outcomes([1, 0, 1, 2, 0, -9, 9], a="+-", b="+--", c="++")
    assert (found["auc"]["value"], found["problems_with_both"], found["problems"]) == (0.75, 2, 3)
    assert found["right_share"]["value"] == near((1 / 2 + 1 / 3 + 1) / 3)
    # P(right) = 3/4 of both: 1/4 from the share; -ln 3/4 and -ln 1/4.
    found = outcomes([math.log(3.0)] * 2, a="+-")
    assert found["accuracy"]["value"] == found["one_verdict_accuracy"] == 0.5
    assert found["negative_log_likelihood"]["value"] == near((math.log(4 / 3) + math.log(4)) / 2, 6)
    assert found["expected_calibration_error"]["value"] == near(0.25)
    found = outcomes([1e5, -1e5, -1e5, 1e5], a="+-", b="-+")
    assert found["negative_log_likelihood"]["value"] == 0.0
    assert found["accuracy"]["value"] == found["auc"]["value"] == 1.0
    assert found["auc"]["low"] < 1.0
    assert outcomes([0.0], a="+")["accuracy"]["value"] == 0.5
    assert outcomes([1, 1, -1, -1], a="++", b="--")["auc"] is None


def test_bad_scores_rows_and_edges_are_refused():
    assert measure([], []) == {"pairs": 0}
    for call, words in (
        (lambda: measure([("a", 1.0, 3, 3)], [math.nan]), "diverged"),
        (lambda: outcomes([math.inf], a="+"), "diverged"), (lambda: outcomes([]), "none"),
        (lambda: QualityConfig(**vars(CONFIG) | {"length_edges": [0, 0]}), "edges"),
        (lambda: QualityConfig(**vars(CONFIG) | {"length_edges": [3, -2]}), "edges"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            call()


# --- labels of steps: K = 2. A: all right, its second prefix completed rightly once; B: wrong from
# its second step on, with a lucky completion of its second prefix; C: a wrong guess, known.
A = AuditedSolution(id="a", num_right=[2, 1], correct=True, true_labels=[True] * 3)
B = AuditedSolution(id="b", num_right=[2, 1], correct=False, true_labels=[True, False, False])
C = AuditedSolution(id="b", num_right=[], correct=False, true_labels=[False])
AUDITS = {
    # solutions, threshold, k, and precision, recall, agreement, error and correct accuracy, F1
    "one_completion": ([A, B, C], 0.5, "1", [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]),
    # Of two, one is right, which is "any" and half; B's error is placed a step late.
    "two_completions": ([A, B, C], 0.5, "2", [None, 0.0, 0.5, 0.0, 1.0, 0.0]),
    "both_are_needed": ([A, B, C], 0.75, "2", [0.5, 1.0, 0.5, 1.0, 0.0, 0.0]),
    "no_error": ([A], 0.5, "2", [None, None, 1.0, None, 1.0, None]),
}


@pytest.mark.parametrize("name", AUDITS)
def test_an_audit_by_hand(name):
    solutions, threshold, k, expected = AUDITS[name]
    config = AuditConfig(thresholds=[threshold], num_bootstrap=200, confidence=0.95)
    found = audit_labels(solutions, config, num_completions=2, seed=0)
    rules = [f"soft_{threshold}"] + ["hard"] * (threshold == 0.5)
    for rule in rules:
        row = found[rule][k]
        assert [row[ratio] and row[ratio]["value"] for ratio in RATIOS] + [row["f1"]] == expected


def test_an_audit_is_the_mean_over_all_choices_of_completions():
    first, second = [1, 1, 0, 1], [0, 1, 0, 0]  # of the two prefixes, K = 4
    solution = dataclasses.replace(B, num_right=[3, 1])
    config = AuditConfig(thresholds=[], num_bootstrap=200, confidence=0.95)
    found = audit_labels([solution], config, num_completions=4, seed=0)["hard"]["2"]
    hits = [any(one) and not any(other) for one in itertools.combinations(first, 2)
        for other in itertools.combinations(second, 2)]  # fmt: skip
    assert found["error_accuracy"]["value"] == near(np.mean(hits), 6)
    assert [subset_sizes(k) for k in (8, 6, 1)] == [[1, 2, 4, 8], [1, 2, 4, 6], [1]]
    # ten times 0.3 is 3 but for rounding; a label needs one right completion
    assert [min_right(*of) for of in ((0.3, 10), (0.0, 8), (0.5, 5))] == [3, 1, 3]


def row(labels, truth, index=0, *, correct=True):
    return StepLabels(id="a", index=index, prompt="", prompt_ids=[1], steps=["x"] * len(labels),
        step_ids=[[2]] * len(labels), labels=labels, num_completions=[4] * (len(labels) - 1) + [0],
        true_labels=truth, correct=correct, source="math_shepherd")  # fmt: skip


def count(ids, right):
    return PrefixCount(id="a", prefix_ids=ids, num_completions=4, num_right=right, low=0.25,
        high=0.75, generated_tokens=30)  # fmt: skip


def test_a_summary_of_labels_by_hand():
    def summarise(rows):
        config = AuditConfig(thresholds=[], num_bootstrap=100, confidence=0.95)
        return summarise_labels(rows, config, num_cut=5, seed=0)

    common = count([2], 4)  # completed once, paid once, and labels two steps
    found = summarise([
        (row([1.0, 0.0, 1.0], [True, False, False]), [common, count([2, 2], 0)]),
        (row([1.0, 1.0], [True, True], 1), [common]),
    ])  # fmt: skip
    expected = {"problems": 1, "solutions": 2, "steps": 5, "cut_completions": 5,
        "estimated_labels": 3, "completed_prefixes": 2, "tokens_per_label": 20.0,
        "interval_width": 0.5, "labelled_right": 0.8, "truly_right": 0.6, "answers_right": 1.0,
        "right_answers_with_a_wrong_step": 0.5}  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert found["audit"]["hard"]["4"]["precision"]["value"] == 1.0
    truth = summarise([(row([1.0, 0.0], [True, False], correct=False), [])])
    unknown = summarise([(row([1.0, 0.0], None, correct=False), [common])])
    assert truth["audit"] == unknown["audit"] == {}
    assert truth["tokens_per_label"] is unknown["truly_right"] is None
    assert summarise([])["answers_right"] is None
