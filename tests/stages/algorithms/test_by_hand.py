"""Numbers worked by hand: at least a row for every public function of stages/algorithms.

Losses have a table of their own, with their formulas: test_losses.py. A row is a function, the
result, and the arguments; to add a function, add its row. `refused` rows name what a refusal must
name.
"""

import importlib
import math
import pkgutil

import numpy as np
import pytest
import torch

import stages.algorithms
from stages.algorithms import (
    aggregation,
    ensemble,
    flops,
    forward_kl,
    group_advantages,
    judge_readings,
    kl,
    length_and_repetition,
    logprobs,
    packing,
    token_advantages,
)
from stages.algorithms.flops import Matrices, Passes
from stages.algorithms.logprobs import ChunkLimits, OutputLayer
from stages.algorithms.selection import best_of_n, step_scores, votes
from stages.algorithms.statistics import crossed_means, error_detection, intervals, score_quality
from stages.algorithms.statistics.crossed_means import PowerDesign, VarianceComponents

INF, NAN, LOG = math.inf, math.nan, math.log
ROWS, REFUSED = [], []


def case(function, result, *arguments, take=lambda found: found, **options):
    """`take` is the part of what the function returns that is compared."""
    ROWS.append((function, result, arguments, options, take))


def refused(function, words, *arguments, error=ValueError, **options):
    REFUSED.append((function, words, arguments, options, error))


def t(*values):
    return torch.tensor(values, dtype=None if _whole(values) else torch.float64)


def a(*values):
    return np.array(values, dtype=None if _whole(values) else np.float64)


def _whole(values):
    first = values[0] if values else 0.0
    return _whole(first) if isinstance(first, (tuple, list)) else isinstance(first, (bool, int))


def near(value, places=4):
    return pytest.approx(value, abs=0.6 * 10**-places, nan_ok=True)


# --- sums, means, whitening ---------------------------------------------------------------------
VALUES, MASK = t([1.0, 2.0, NAN], [3.0, INF, NAN]), t([True, True, False], [True, False, False])
LOSSES, COUNTED = t([1.0, 2, 3], [6, 50, 50]), t([True, True, True], [True, False, False])
NONE = torch.zeros_like(MASK)
case(aggregation.masked_sum, 6.0, VALUES, MASK)
case(aggregation.masked_mean, 2.0, VALUES, MASK)
# Counted 1, 2, 3: mean 2, variance 2/3. With eps 1/3 the divisor is sqrt(2/3 + 1/3) = 1.
case(aggregation.masked_whiten, [[-1, 0, 0], [1, 0, 0]], VALUES, MASK, eps=1 / 3)
SIDE = 1 / math.sqrt(2 / 3)
case(aggregation.masked_whiten, [[-SIDE, 0, 0], [SIDE, 0, 0]], VALUES, MASK, eps=0.0)
# Tokens: (1 + 2 + 3 + 6) / 4. Completions: ((1 + 2 + 3) / 3 + 6) / 2. Sums: 12 / 2, and / 4.
case(aggregation.token_mean, 3.0, LOSSES, COUNTED, num_tokens=4)
case(aggregation.sequence_mean, 4.0, LOSSES, COUNTED, num_sequences=2)
case(aggregation.sequence_sum, 6.0, LOSSES, COUNTED, num_sequences=2)
case(aggregation.fixed_length_mean, 1.5, LOSSES, COUNTED, num_sequences=2, length=4)
# A micro-batch of a step of 24 tokens or 6 completions: a share of its mean.
case(aggregation.token_mean, 0.5, LOSSES, COUNTED, num_tokens=24)
case(aggregation.sequence_mean, 8 / 6, LOSSES, COUNTED, num_sequences=6)
case(aggregation.fixed_length_mean, 12 / 6 / 8, LOSSES, COUNTED, num_sequences=6, length=8)
case(aggregation.masked_mean, 0.0, VALUES, NONE)
case(aggregation.masked_whiten, [[0.0] * 3] * 2, VALUES, NONE, eps=1e-8)
case(aggregation.token_mean, 0.0, LOSSES, NONE, num_tokens=0)
case(aggregation.sequence_mean, 0.0, LOSSES, NONE, num_sequences=0)
case(aggregation.sequence_sum, 0.0, LOSSES, NONE, num_sequences=0)

# --- ensembles: mean 4, deviations -3, 0, 3, variance 18 / 3; the second column agrees ----------
SCORES = t([1.0, 2], [4, 2], [7, 2])
case(ensemble.mean, [4, 2], SCORES)
case(ensemble.minimum, [1, 2], SCORES)
case(ensemble.std, [6**0.5, 0], SCORES)
case(ensemble.mean_minus_std, [4 - 2 * 6**0.5, 2], SCORES, k=2.0)
case(ensemble.mean_minus_variance, [1, 2], SCORES, k=0.5)
case(ensemble.std, [0, 0], SCORES[:1])

# --- operations: 10 positions, 4 with logits; whole, and with 8 numbers of adapters -------------
WHOLE = Matrices(body=100, output=30, trained_body=100, trained_output=30)
ADAPTED = Matrices(body=100, output=30, trained_body=8, trained_output=0)
SEEN = Passes(positions=10, outputs=4)
case(flops.count_forward_flops, 2 * (1000 + 120), WHOLE, SEEN)
case(flops.count_training_flops, 6 * (1000 + 120), WHOLE, SEEN)
case(flops.count_training_flops, 4 * (1000 + 120) + 2 * 80, ADAPTED, SEEN)

# --- log-probabilities: logits (ln 3, 0) are p = (3/4, 1/4); at temperature 2, (ln 9, 0) --------
STATES, LAYER = t([LOG(3)], [LOG(3)]), OutputLayer(t([1.0], [0.0]))
FLAT, ENTROPY = OutputLayer(t([1.0], [1.0])), 2 * LOG(2) - 0.75 * LOG(3)
for LIMITS in (logprobs.LIMITS, ChunkLimits(1, 1)):
    EXPECTED = [LOG(0.75), LOG(0.25)], [ENTROPY] * 2
    case(logprobs.token_logprobs, EXPECTED, STATES, LAYER, t(0, 1), temperature=1.0, limits=LIMITS)
    DOUBLE = 2 * STATES
    case(logprobs.token_logprobs, EXPECTED, DOUBLE, LAYER, t(0, 1), temperature=2.0, limits=LIMITS)
    # KL of (3/4, 1/4) from (1/2, 1/2)
    DIVERGENCE = 0.75 * LOG(1.5) + 0.25 * LOG(0.5)
    for SCALE in (1.0, 2.0):
        FOUR = t([5.0]), FLAT, SCALE * STATES[:1], LAYER
        case(forward_kl.forward_kl, [DIVERGENCE], *FOUR, temperature=SCALE, limits=LIMITS)
OTHER = OutputLayer(t([1.0], [0.0], [2.0]))
refused(forward_kl.forward_kl, "2 and 3", STATES, LAYER, STATES, OTHER, temperature=1.0)

# --- groups 7: 1.5, 1, 0, 0 and 3: 2, 4 ---------------------------------------------------------
REWARDS, GROUPS = t(1.5, 2, 1, 0, 4, 0), t(7, 3, 7, 7, 3, 7)
EVERY = torch.ones(6, dtype=torch.bool)
BY_GROUP = {"groups": GROUPS, "counted": EVERY}
case(group_advantages.group_sums, [2.5, 6, 2.5, 2.5, 6, 2.5], REWARDS, GROUPS)
case(group_advantages.group_counts, [4, 2, 4, 4, 2, 4], GROUPS, counted=EVERY)
case(group_advantages.group_means, [0.625, 3] + [0.625] * 2 + [3, 0.625], REWARDS, **BY_GROUP)
# Squares of group 7: 0.875^2 + 0.375^2 + 2 0.625^2 = 1.6875, of group 3: 2.
for DDOF, FIRST, SECOND in ((0, 1.6875 / 4, 1.0), (1, 1.6875 / 3, 2.0), (2, 1.6875 / 2, 0.0)):
    STDS = [FIRST**0.5, SECOND**0.5]
    case(group_advantages.group_stds, STDS, REWARDS, **BY_GROUP, ddof=DDOF, take=lambda s: s[:2])
case(group_advantages.has_equal_rewards, [True] * 4, t(0.1, 0.1, 2, 9), groups=t(0, 0, 1, 0),
    counted=t(True, True, True, False))  # fmt: skip
case(group_advantages.has_equal_rewards, [False, False], t(0.1, math.nextafter(0.1, 1)),
    groups=t(0, 0), counted=t(True, True))  # fmt: skip
# (1, 0, 0, 1): mean 1/2; ddof 1: std sqrt(1/3).
FOUR = {"groups": t(5, 5, 5, 5), "counted": EVERY[:4]}
SIDES = 0.5 / (math.sqrt(1 / 3) + 0.1)
case(group_advantages.group_zscore, [SIDES, -SIDES, -SIDES, SIDES], t(1.0, 0, 0, 1), **FOUR, ddof=1,
    eps=0.1)  # fmt: skip
case(group_advantages.group_centred, [0.875, -1, 0.375, -0.625, 1, -0.625], REWARDS, **BY_GROUP)
# Mean 2/5: with eps 0.1 a right completion has 0.6 / 0.5.
FIVE = {"groups": t(0, 0, 0, 0, 0), "counted": EVERY[:5]}
case(group_advantages.mean_normalised, [1.2, -0.8, -0.8, 1.2, -0.8], t(1.0, 0, 0, 1, 0), **FIVE,
    eps=0.1)  # fmt: skip
refused(group_advantages.mean_normalised, "-1", t(0.0, -1, 1, 1, 1), **FIVE, eps=0.0)
case(group_advantages.mean_normalised, [-1, 1, 0], t(0.0, 2, -1), groups=t(0, 0, 0),
    counted=t(True, True, False), eps=0.0)  # fmt: skip
# Centred (-1, 1) and (-1, 1); the batch 0, 2, 6, 8 has squares 16 + 4 + 4 + 16 around 4.
TWICE = {"groups": t(0, 0, 1, 1), "counted": EVERY[:4]}
SIDE = 1 / (math.sqrt(40 / 3) + 0.5)
case(group_advantages.batch_std, [-SIDE, SIDE, -SIDE, SIDE], t(0.0, 2, 6, 8), **TWICE, ddof=1,
    eps=0.5)  # fmt: skip
# Others of 1.5 are 1, 0, 0; of 1 they are 1.5, 0, 0; of 0 they are 1.5, 1, 0.
case(group_advantages.leave_one_out, [7 / 6, 0.5, -5 / 6, -5 / 6], t(1.5, 1, 0, 0), **FOUR)
case(group_advantages.greedy_baseline, [0.75, -1, 0, 0.25], t(1, 0, NAN, 0.5),
    counted=t(True, True, False, True), greedy_rewards=t(0.25, 1, NAN, 0.25))  # fmt: skip
case(group_advantages.weighted_sum, [6, -3], t([1.0, 2], [10, -10]), t(1, 0.5))
# Each pair becomes (-1, 1) or (1, -1); weights 1 and 2: (-1 + 2, 1 - 2), (-1 - 2, 1 + 2);
# over the batch the mean is 0 and the variance (1 + 1 + 9 + 9) / 4.
SUMS = [x / 5**0.5 for x in (1, -1, -3, 3)]
case(group_advantages.normalised_sum, SUMS, t([0.0, 1, 5, 9], [100, 0, 3, 4]), t(1.0, 2), **TWICE,
    ddof=0, eps=0.0)  # fmt: skip
# (0, 2): std 1, eps 1: (-1/2, 1/2); of these std 1/2, eps 1: (-1/3, 1/3).
case(group_advantages.normalised_sum, [-1 / 3, 1 / 3], t([0.0, 2.0]), t(1.0), groups=t(0, 0),
    counted=EVERY[:2], ddof=0, eps=1.0)  # fmt: skip

# --- advantages of tokens -----------------------------------------------------------------------
PAID = t([1.0, 0, 2], [4, 3, NAN])
ENDED, GAPS = t([True] * 3, [True, True, False]), t([True, False, True], [False, True, True])
# Gamma 0.5: 2; 0 + 1; 1 + 0.5. A token that does not count is skipped, and is no step.
case(token_advantages.returns_to_go, [[1.5, 1, 2], [5.5, 3, 0]], PAID, ENDED, gamma=0.5)
case(token_advantages.returns_to_go, [[2, 0, 2], [0, 7.5, 9]], t([1.0, NAN, 2], [NAN, 3, 9]), GAPS,
    gamma=0.5)  # fmt: skip
# Gamma 0.9, lambda 0.5: deltas 1.4, 0.35, 0.5 and -1.1, 2; A = delta + 0.45 A'.
STEPS, V = t([1.0, 0, 2], [0, 3, NAN]), t([0.5, 1, 1.5], [2, 1, NAN])
GAE = [[1.65875, 0.575, 0.5], [-0.2, 2, 0]], [[2.15875, 1.575, 2], [1.8, 3, 0]]
case(token_advantages.gae, GAE, STEPS, V, ENDED, gamma=0.9, lam=0.5)
# Lambda 0: deltas; lambda 1: discounted returns minus values.
case(token_advantages.gae, [[1, -0.25, 0.5], [-0.5, 2, 0]], STEPS, V, ENDED, gamma=0.5,
    lam=t(0.0, 1.0), take=lambda pair: pair[0])  # fmt: skip
case(token_advantages.length_adaptive_lambda, near([0, 0, 0.8, 0.98, 0], 6),
    t(0, 19, 100, 1000, 20), alpha=0.05)  # fmt: skip
# R = 1, 0, 2, 1: mean 1, std sqrt(1/2): z = 0, -sqrt 2, sqrt 2, 0. Steps end at 1, 3 and at 0, 1.
ROOT = 2**0.5
TWO = {"groups": t(0, 0), "counted": t(True, True), "ddof": 0, "eps": 0.0}
ENDS = t([False, True, False, True], [True, True, False, False])
case(token_advantages.step_zscore, [[-ROOT] * 4, [ROOT, 0, 0, 0]], t([9.0, 1, 9, 0], [2, 1, 9, 9]),
    ENDS, **TWO)  # fmt: skip
# The smallest step of a completion alone, of equal ones the first; junk between ends is none.
case(token_advantages.min_credit, ([[0, 0, 0, 0.2, 0], [0.5] + [0] * 4, [-1] + [0] * 4, [0] * 5],
     [[False] * 3 + [True, False], [True] + [False] * 4, [True] + [False] * 4, [False] * 5]),
     t([0.0, 0.9, 0, 0.2, 0.7], [0.5, 0, 0.5, 0, 0], [-1, 0, 0, 0, 0], [0.3, 0.4, 0, 0, 0]),
     t([False, True, False, True, True], [True, False, True, False, False], [True] * 5,
       [False] * 5))  # fmt: skip
case(token_advantages.teacher_log_ratio, [[0.5, 0.0]], t([-1.5, NAN]), t([-1.0, NAN]),
    t([True, False]))  # fmt: skip

# --- coefficients of a KL penalty ---------------------------------------------------------------
# Target 6, 100 of 1000 samples: 0.5 (1 + error / 10), the error cut at 0.2.
ADAPTIVE = {"target": 6.0, "num_samples": 100, "horizon": 1000}
for MEASURED, NEXT in ((6.6, 0.505), (5.4, 0.495), (6, 0.5), (60, 0.51), (INF, 0.51), (0, 0.49)):
    case(kl.adaptive_coef, NEXT, 0.5, float(MEASURED), **ADAPTIVE)
for MEASURED, NEXT in ((1.9, 0.25), (2.0, 0.5), (4.5, 0.5), (4.6, 1.0), (INF, 1.0), (0, 0.25)):
    case(kl.doubling_coef, NEXT, 0.5, float(MEASURED), target=3.0)
# 0.2 times 5000 is the whole horizon: an error of -0.2 would leave nothing.
refused(kl.adaptive_coef, "horizon", 0.5, 1.0, target=6.0, num_samples=5000, horizon=1000)

# --- judges: (0.2 + 0.1) of "1" and 0.1 of "2" --------------------------------------------------
case(judge_readings.option_probabilities, ([0.75, 0.25], 0.4), [[LOG(0.2), LOG(0.1)], [LOG(0.1)]])
case(judge_readings.option_probabilities, ([0.75, 0.25], 0), [[-2000.0], [-2000.0 - LOG(3)]])
case(judge_readings.option_probabilities, ([0.5, 0.5], 0), [[-INF], [-INF]])
case(judge_readings.option_probabilities, ([0.5, 0.5], 1), [[LOG(0.5) + 1e-7]] * 2)
READINGS = (
    # p12, p21, label, gap, both orders agree
    (0.3, 0.8, 0.25, 0.1, True), (0.9, 0.7, 0.6, 0.6, False), (0.5, 0.2, 0.65, 0.3, False),
)  # fmt: skip
for P12, P21, LABEL, GAP, AGREE in READINGS:
    case(judge_readings.soft_label, LABEL, P12, P21)
    case(judge_readings.order_gap, GAP, P12, P21)
    case(judge_readings.orders_agree, AGREE, P12, P21)
case(judge_readings.ring_pairs, [(0, 2), (2, 4), (4, 0), (1, 3)], [1, 0, 1, 0, 1])
case(judge_readings.ring_pairs, [(0, 1), (1, 2), (2, 3), (3, 0)], [0] * 4)
case(judge_readings.ring_pairs, [], [])
refused(judge_readings.ring_pairs, "2 alone", [0, 0, 1])
case(judge_readings.ring_means, [0.75, 0.4, 0.35], 3, [(0, 1), (1, 2), (2, 0)],
    [(0.8, 0.2), (0.6, 0.4), (0.3, 0.7)])  # fmt: skip
case(judge_readings.wins, [1, 0, 0.5], a(0.8, 0.2, 0.5))
# Right in both orders; in none; when first alone; undecided in the first.
P12, P21, BETTER = a(0.9, 0.2, 0.8, 0.5), a(0.3, 0.7, 0.6, 0.1), np.array([True] * 4)
case(judge_readings.single_order_accuracy, [1, 0, 0.5, 0.75], P12, P21, BETTER)
case(judge_readings.choice_accuracy, [1, 0, 0.5], a(0.8, 0.8, 0.5), a(True, False, True))
case(judge_readings.first_position_share, [0.5, 0.5, 1, 0.25], P12, P21)

# --- lengths and repetition: from 80 on (80 - length) / 20 --------------------------------------
case(length_and_repetition.soft_overlong, near([0, 0, 0, -0.25, -0.95, -1, -1], 6),
    t(0, 79, 80, 85, 99, 100, 999), max_length=100, buffer=20)  # fmt: skip
for BUFFER in (0, -1, 101):
    refused(length_and_repetition.soft_overlong, "buffer", t(5), max_length=100, buffer=BUFFER)
case(length_and_repetition.repeated_share, 0.75, [1] * 5, 2)  # of four pairs one is new
case(length_and_repetition.repeated_share, 0.5, [1, 2, 1, 2, 1], 2)
case(length_and_repetition.repeated_share, 0.0, [1, 2], 3)
LOOPS = (
    # whether the end loops, tokens, and the least length of all rounds together
    (True, [9, 1, 2, 1, 2, 1, 2], 1), (False, [1, 2, 1, 2], 1), (False, [1, 2] * 3 + [9], 1),
    (False, [], 1), (True, [9, 2, *[1, 2] * 3, 1], 8), (False, [*[1, 2] * 3], 8),
    (True, [0] * 8, 8), (False, [0] * 7, 8), (False, [1, 2, 3, 4] * 2, 8),
)  # fmt: skip
for LOOPING, TOKENS, LENGTH in LOOPS:
    case(length_and_repetition.ends_in_loop, LOOPING, TOKENS, min_length=LENGTH)

# --- packing: budget rows x longest; capacity of a sum ------------------------------------------
case(packing.token_budget_batches, [[1, 2], [0, 3]], [3, 5, 4, 2], 10)
case(packing.token_budget_batches, [[1], [2, 0]], [3, 50, 4], 10)
case(packing.token_budget_batches, [], [], 10)
# 6 opens a bin, 5 another, 4 fits the first, 3 the second, 3 opens a third, 2 fits the second.
case(packing.first_fit_decreasing, [[2, 3], [5, 1, 0], [4]], [2, 3, 6, 4, 3, 5], 10)
case(packing.first_fit_decreasing, [[1], [0]], [1, 2], 0)

# --- selection ----------------------------------------------------------------------------------
case(best_of_n.pass_at_k, 0.5, 2000, 1, k=1000)
refused(best_of_n.pass_at_k, "5, 4", 4, 1, k=5, error=AssertionError)
case(best_of_n.best_of_n, 1 / 2, a(1.0, 2, 2), a(0, 1.0, 0), n=2)
refused(best_of_n.best_of_n, "finite", a(0, NAN), a(0, 1.0), n=1, error=AssertionError)
for N, BOUND in ((1, 0), (2, LOG(2) - 1 / 2), (16, LOG(16) - 15 / 16)):
    case(best_of_n.kl_bound, BOUND, N)
# q = (1/4, 3/4) of p = (1/2, 1/2)
case(best_of_n.kl_plug_in, 0.25 * LOG(0.5) + 0.75 * LOG(1.5), a(1.0, 2), n=2)
case(best_of_n.distinct_cost, 44 / 3, [2, 1], [10.0, 7.0], n=2)  # pairs hold 10, 17 and 17
for KIND, SCORE in (("last", 0.5), ("min", 0.2), ("product", 0.09), ("mean", 1.6 / 3)):
    case(step_scores.KINDS[KIND], SCORE, [0.9, 0.2, 0.5])
    case(step_scores.KINDS[KIND], 0.3, [0.3])
case(step_scores.select_beam, [1, 2, 0], a(0.5, 0.9, 0.9, 0.5), a(0, 0, 0, 0), keep=3)
# Tree by tree: of tree 0 the second and fourth, of tree 2 its only one, of tree 3 two of equals.
case(step_scores.select_beam, [3, 1, 4, 0, 2], a(0.5, 0.6, 0.5, 0.7, 0.1, 0.2, 0.5),
    a(3, 0, 3, 0, 2, 0, 3), keep=2)  # fmt: skip
refused(step_scores.select_beam, "finite", a(0.5, NAN), a(0, 0), keep=1, error=AssertionError)
MAJORITY = votes.majority_vote
case(MAJORITY, [1 / 3, 2 / 3, 1], a(1), a(True), num_unreadable=2, ns=[1, 2, 3])
case(MAJORITY, [0.5, 0.5], a(500, 500), a(True, False), num_unreadable=0, ns=[7, 250])
refused(MAJORITY, "1001", a(750, 251), a(True, False), num_unreadable=0, ns=[1])
TRIPLE = np.array([[0, 1, 2]])
# 0.1 + 0.2 is 0.3 but for rounding: a tie.
TIED = a(0, 0, 1), a(0.1, 0.2, 0.3), a(False, True)
case(votes.weighted_vote, 0.5, *TIED, subsets=TRIPLE)
# Weights of nothing: a tie of the answers that are there.
case(votes.weighted_vote, 0.5, a(0, 1, -1), a(0.0, 0, 0), a(True, False, False), subsets=TRIPLE)
refused(votes.weighted_vote, "weight", a(0, 1), a(-0.1, 0.2), a(True, False), subsets=TRIPLE[:, :2],
    error=AssertionError)  # fmt: skip
case(votes.nested_subsets, [[0, 1, 2]] * 4, 3, num_draws=4, seed=0,
    take=lambda o: np.sort(o, axis=1))  # fmt: skip


# --- means over seeds and problems --------------------------------------------------------------
def means(result):
    """Squared standard error and the seeds' share of it; the three variance components."""
    parts = [result.standard_error**2, result.seed_share, *result.components]
    return [float(part[0]) for part in parts]


def cells(*rows):
    return np.array(rows, dtype=np.float64)[..., None]


CELLS = crossed_means.estimate_means
# Mean squares: of seeds 2 (4 + 0 + 4) / 2 = 8, no others; their variance is 8 / 2. Rare: four cells
# of six deviate, by 2, so 3 * 4 / 2^2.
case(CELLS, near([8 / 6 + 3, 4 / 13, 4, 0, 0], 9), cells([0, 0], [2, 2], [4, 4]), confidence=0.95,
    take=means)  # fmt: skip
# Seeds 0, problems 2 (1 + 1 + 4) / 2 = 6, residual 4 / 2 = 2, which takes the seeds' place. Rare:
# from the median 2.5 the mean square is 17.5 / 6.
CROSSED = cells([1, 2, 6], [3, 2, 4])
case(CELLS, near([1 + 17.5 / 18, 12 / 71, 0, 2, 2], 9), CROSSED, confidence=0.95, take=means)
# Student's t of 1 and 2 degrees: 1 - 2 atan(t) / pi and 1 - t / sqrt(2 + t^2).
T = 3 / (1 + 17.5 / 18) ** 0.5
MIXED = 12 / 71 * (1 - 2 * math.atan(T) / math.pi) + 59 / 71 * (1 - T / (2 + T**2) ** 0.5)
case(CELLS, near([MIXED], 9), CROSSED, confidence=0.95, take=lambda r: [float(r.p_value[0])])
case(CELLS, near([0.0, 6.0], 5), CROSSED, confidence=1 - MIXED,
    take=lambda r: [float(r.low[0]), float(r.high[0])])  # fmt: skip
# Three seeds, problems 9, residual 4 / 4 = 1. Rare: five cells deviate from 2, 31 in square.
case(CELLS, near([1 + 6.2 / 3, 1 / 27.6, 0, 8 / 3, 1], 9), cells([1, 2, 6], [3, 2, 4], [2, 2, 5]),
    confidence=0.95, take=means)  # fmt: skip
# Seeds 2 (1/4 + 1/4 + 1) / 2 = 1.5, problems 0, residual 4 / 2 = 2. Rare: 7.375 / 6 from 0.25.
case(CELLS, near([1 / 3 + 7.375 / 8, 1 / (1 + 3 * 7.375 / 8), 0, 0, 2], 9),
    cells([0, 0], [1, -1], [0.5, 2.5]), confidence=0.95, take=means)  # fmt: skip
case(CELLS, [1 / 3 + 1 / 3, 0, NAN, 1, 0], cells([0, 1, 2]), confidence=0.95,
    take=lambda r: [round(x, 12) if x == x else x for x in means(r)])  # fmt: skip
# Student's t of 2 degrees: 4.302653 at 0.975.
case(CELLS, near([4.302653 * (2 / 3) ** 0.5, 1 - (3 / 7) ** 0.5], 5), cells([0, 1, 2]),
    confidence=0.95,
    take=lambda r: [float(r.high[0] - r.value[0]), float(r.p_value[0])])  # fmt: skip
# Shares that are equal in all cells: 3 of 5 problems may differ by 1; t of 4 degrees is 2.776445.
for SEEDS in (1, 3):
    case(CELLS, near([0.5 - 2.776445 * 3**0.5 / 5], 6), cells(*[[0.5] * 5] * SEEDS),
        confidence=0.95, largest=1.0, take=lambda r: [float(r.low[0])])  # fmt: skip
for SAME, P in ((0.0, 1.0), (1.0, 0.0), (0.1 + 0.2 - 0.3, 1.0)):
    for SEEDS in (1, 3):
        FLAT = cells(*[[SAME] * 5] * SEEDS)
        case(CELLS, near([round(SAME), round(SAME), P], 12), FLAT, confidence=0.95,
            take=lambda r: [float(r.low[0]), float(r.high[0]), float(r.p_value[0])])  # fmt: skip
case(crossed_means.collapse_clusters, [[9 / 8, 3 / 16, 15 / 16]], cells([1, 1, 0, 1]),
    a(0, 0, 1, 2), take=lambda c: c[..., 0])  # fmt: skip
case(crossed_means.holm_adjusted, [0.03, 0.06, 0.06], [0.01, 0.04, 0.03])
case(crossed_means.holm_adjusted, [1, 1, 0.08, 1], [0.5, 0.9, 0.02, 0.5])
case(crossed_means.holm_adjusted, [0.2], [0.2])
case(crossed_means.holm_adjusted, [], [])
# t of 100 degrees: 1.983972 at 0.975, 0.845230 at 0.8.
DESIGN = PowerDesign(significance=0.05, power=0.8)
ONE = VarianceComponents(a(NAN), a(0.16), a(0.0))
SEVERAL = VarianceComponents(a(0.0004), a(0.01), a(0.05))
case(crossed_means.detectable_difference, near([2.829202 * 0.4 / 101**0.5], 6), ONE, DESIGN,
    num_seeds=1, num_problems=101)  # fmt: skip
case(crossed_means.forecast_difference, near(0.1126, 3), ONE, DESIGN, confidence=0.95, num_seeds=1,
    num_problems=101, take=lambda f: f.detectable)  # fmt: skip
# Half of the interval: 1.983972 standard errors.
case(crossed_means.forecast_difference, near(1.983972 * 0.4 / 101**0.5, 3), ONE, DESIGN,
    confidence=0.95, num_seeds=1, num_problems=101, take=lambda f: f.half_width)  # fmt: skip
# 3 seeds leave 0.02 / sqrt(3) (4.302653 + 1.060660) however many problems there are.
case(crossed_means.detectable_difference, near([0.02 / 3**0.5 * 5.363313], 5), SEVERAL, DESIGN,
    num_seeds=3, num_problems=10**9)  # fmt: skip

# --- intervals ----------------------------------------------------------------------------------
SETTINGS = {"num_resamples": 500, "confidence": 0.95, "seed": 3}
case(intervals.percentiles, [0.25, 0.75], np.linspace(0, 1, 5), 0.5)
case(intervals.percentiles, [0.5, 1.5], a(0, 1, 2.0, NAN), 0.5)
case(intervals.resamples, [3, 3], 3, 2, 0, take=lambda r: [int(counts.sum()) for counts in r])
case(intervals.bootstrap_means, [[0.25], [0.25], [0.25]], np.full((7, 1), 0.25), **SETTINGS)
# The ratio of sums: resamples are 1/1, 4/8 or 6/14; with nothing to count there is no number.
case(intervals.bootstrap_ratios, [[0.5], [6 / 14], [1]], a([1.0], [3]), a([1.0], [7]), **SETTINGS)
case(intervals.bootstrap_ratios, [[0.6], [0.5], [1]], a([1.0], [2], [0]), a([1.0], [4], [0]),
    **SETTINGS)  # fmt: skip
case(intervals.bootstrap_ratios, [[NAN]] * 3, np.zeros((3, 1)), np.zeros((3, 1)), **SETTINGS)
# Always 1, or 0: Wilson's, of as many trials as problems with anything to count.
WILSON = 1.959964**2
for RATE, BOUNDS in ((1.0, [1 / (1 + WILSON / 2), 1]), (0.0, [0, 1 - 1 / (1 + WILSON / 2)])):
    case(intervals.bootstrap_ratios, near([RATE, *BOUNDS], 6), a([4 * RATE], [6 * RATE], [0]),
        a([4.0], [6], [0]), **SETTINGS, take=lambda r: [float(part[0]) for part in r])  # fmt: skip
case(intervals.wilson_interval, near([0, WILSON / (10 + WILSON)], 6), 0, 10, confidence=0.95)
case(intervals.wilson_interval, near([0.4038, 0.5962]), 50, 100, confidence=0.95)
# A share w of 1 - 0.025^(1/10) = 0.3085 of the problems may differ, and be 1, or -1.
W = 1 - 0.025**0.1
for D, BOUNDS in ((0.0, (-W, W)), (1.0, (1 - 2 * W, 1)), (-0.5, (-0.5 - 0.5 * W, -0.5 + 1.5 * W))):
    case(intervals.constant_difference_interval, BOUNDS, D, 10, confidence=0.95)
for KIND, ALL, BOUNDS in (("rate", 1.0, [10 / (10 + WILSON), 1]), ("number", 1.0, [1, 1]),
    ("rate", 0.0, [0, WILSON / (10 + WILSON)]),
    ("difference", 1.0, [1 - 2 * W, 1]), ("rate", 0.5, [0.5 - W / 2, 0.5 + W / 2])):  # fmt: skip
    case(intervals.mean_over_problems, near([ALL, *BOUNDS], 6), a(*[ALL] * 20), np.arange(20) % 10,
        KIND, **SETTINGS)  # fmt: skip
case(intervals.problem_numbers, [0, 1, 0], ["b", "a", "b"])
case(intervals.problem_means, [[0.5, 3], [0, 1]], a([1.0, 4], [0, 1], [0, 2]), a(0, 1, 0))
case(intervals.problem_means, [[3], [1]], a([1.0], [3]), a(5, 2))

# --- first errors -------------------------------------------------------------------------------
for THRESHOLD, STEP in ((1.0, 0), (0.5, 1), (0.4, 2), (0.3, 2), (0.2, -1)):
    case(error_detection.first_below, STEP, (0.9, 0.4, 0.2), THRESHOLD)
case(error_detection.harmonic_mean, [0, 0.5, 0, 0.3], a(0, 0.5, 1, 0.2), a(0, 0.5, 0, 0.6))
RATES = error_detection.accuracy_intervals
# Erroneous: exact, wrong step, missed, exact; correct: none shown, one shown.
FIRST = a(1, 0, -1, 3, -1, 2), a(1, 2, 0, 3, -1, -1), np.arange(6)
case(RATES, [0.5, 0.5, 0.5], *FIRST, **SETTINGS, take=lambda r: [row.value for row in r.values()])
# A baseline that finds no error; and one that is right where these are, in each draw, too.
case(RATES, [0.5, -0.5, 0.5], *FIRST, baseline=a(-1, -1, -1, -1, -1, -1), **SETTINGS,
    take=lambda r: [row.value for row in r.values()])  # fmt: skip
case(RATES, [[0, 0, 0]] * 3, *FIRST, baseline=a(1, -1, 1, 3, -1, 0), **SETTINGS,
    take=lambda r: [list(row) for row in r.values()])  # fmt: skip
case(RATES, [2 / 3, 0, 0], a(1, 2, -1, 0), a(1, 2, 0, -1), np.arange(4), **SETTINGS,
    take=lambda r: [row.value for row in r.values()])  # fmt: skip
for TRUTH in (a(-1, -1), a(0, 1)):
    refused(RATES, "erroneous", a(0, 0), TRUTH, np.arange(2), **SETTINGS)
    refused(error_detection.best_threshold, "erroneous", [[0.5, 0.5]] * 2, TRUTH.tolist())
case(error_detection.best_threshold, (0.5, 1.0), [[0.9, 0.4], [0.8, 0.6]], [1, -1])
# The error of the third is never found, and its scores part no gap.
case(error_detection.best_threshold, (0.5, 2 / 3), [[0.9, 0.4], [0.8, 0.6], [0.5, 0.5]], [1, -1, 1])
# (0.2, 0.3] and (0.4, 0.9] have one of two errors each: the middle of the wider.
case(error_detection.best_threshold, (0.65, 2 / 3), [[0.3, 0.2], [0.9, 0.4], [0.95]], [1, 1, -1])
for SCORES, TRUTH in (
    ([[0.0], [0.0, 0.0]], [0, -1]), ([[1.0], [1.0, 1.0]], [0, -1]),
    ([[0.5, 0.5], [0.5]], [1, -1]), ([[1.0], [0.9]], [0, -1]),
):  # fmt: skip
    case(error_detection.best_threshold, 0.0, SCORES, TRUTH, take=lambda chosen: chosen.f1)

# --- scores: right 1, 3; wrong 2, 0: three of four pairs are in order ---------------------------
case(score_quality.auc, 0.75, a(1.0, 3, 2, 0), a(True, True, False, False))
case(score_quality.auc, 0.5, a(2.0, 2, 1, 3), a(True, False, False, False))
case(score_quality.auc, None, a(0.0, 1), a(True, True))
case(score_quality.auc, None, np.array([]), np.array([], bool))
RIGHT = a(True, True, True, False)
case(score_quality.balanced_accuracy, 1 / 3, a(0.9, 0.8, 0.2, 0.6), RIGHT, threshold=0.5)
case(score_quality.balanced_accuracy, 5 / 6, a(0.9, 0.8, 0.2, 0.6), RIGHT, threshold=0.7)
case(score_quality.balanced_accuracy, 1.0, a(0.5, 0.4), a(True, False), threshold=0.5)
case(score_quality.balanced_accuracy, None, a(0.1, 0.9), a(True, True), threshold=0.5)
case(score_quality.negative_log_likelihood, (LOG(2) - LOG(0.8)) / 2, a(0.8, 0.5), a(1, 0.25))
case(score_quality.negative_log_likelihood, -LOG(1e-7), a(0.0), a(1.0))
BUCKETS = {"<= -6": [-9, -6], "-5 .. -1": [-5, -1], "0 .. 4": [0, 4], ">= 5": [5, 30]}
GAPS = a(-9, -6, -5, -1, 0, 4, 5, 30)
case(score_quality.length_buckets, BUCKETS, GAPS, [-5, 0, 5],
    take=lambda b: {name: GAPS[inside].tolist() for name, inside in b.items()})  # fmt: skip
for EDGES in ([], [2, 1], [1, 1]):
    refused(score_quality.length_buckets, None, a(0), EDGES, error=AssertionError)
case(score_quality.equal_mass, [1, 1, 1, 4, 0], a(0.5, 0.5, 0.5, 0.9, 0.1), 5)
SIGMOID = [1 / (1 + math.exp(-x)) for x in (2, 1, 0)]
case(score_quality.preferred_side, [SIGMOID, [1, 0.3, 0.5]], a(2.0, -1, 0), a(1, 0.7, 1))
BINS, TRUE = a(0.1, 0.3, 0.6, 0.8), a(0.0, 1, 1, 1)
# 1/2 |0.5 - 0.2| + 1/2 |1 - 0.7|; a problem is drawn with all of its predictions.
ECE = score_quality.expected_calibration_error
# Errors of 1/2 and -1/2 cancel, except if a problem is drawn twice.
case(ECE, (0.0, 0.0, 0.5), a(0.5, 0.5), a(0.0, 1), np.arange(2), num_bins=1, **SETTINGS)
case(ECE, (0.3, 0.3, 0.3), BINS, TRUE, a(0, 0, 0, 0), num_bins=2, **SETTINGS)
case(ECE, 0.0, a(0.8, 0.8), a(0.6, 1.0), np.arange(2), num_bins=2, **SETTINGS,
    take=lambda i: i.value)  # fmt: skip


def plain(found):
    if isinstance(found, torch.Tensor):
        found = found.detach()
    if isinstance(found, (torch.Tensor, np.ndarray, np.generic)):
        found = found.tolist()
    if isinstance(found, dict):
        return {key: plain(value) for key, value in found.items()}
    return [plain(item) for item in found] if isinstance(found, (list, tuple)) else found


def assert_same(found, expected):
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, float) or (isinstance(expected, int) and isinstance(found, float)):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True)
    else:
        assert found == expected


def name_row(row):
    function = row[0]
    return f"{function.__module__.rpartition('.')[2]}.{getattr(function, '__name__', function)}"


@pytest.mark.parametrize("row", ROWS, ids=name_row)
def test_numbers_by_hand(row):
    function, expected, arguments, options, take = row
    assert_same(plain(take(function(*arguments, **options))), expected)


@pytest.mark.parametrize("row", REFUSED, ids=name_row)
def test_bad_inputs_are_refused(row):
    function, words, arguments, options, error = row
    with pytest.raises(error, match=words):
        function(*arguments, **options)


INNER = {logprobs.evaluate_term, logprobs.vocabulary_logprobs, logprobs.cast_layer}
"""Parts of token_logprobs and forward_kl."""
ESTIMATES = {kl.k1, kl.k2, kl.k3, kl.importance_corrected}
"""In the table of test_losses.py."""


def test_every_public_function_has_a_row():
    modules = [importlib.import_module(module.name)
        for module in pkgutil.walk_packages(stages.algorithms.__path__,
        "stages.algorithms.") if not module.ispkg and ".losses." not in module.name]  # fmt: skip
    public = {
        function
        for module in modules
        for name, function in vars(module).items()
        if callable(function) and name.islower() and not name.startswith("_")
        if getattr(function, "__module__", "") == module.__name__
    }
    assert len(modules) > 15
    missing = public - {row[0] for row in ROWS} - INNER - ESTIMATES
    assert sorted(function.__qualname__ for function in missing) == []
