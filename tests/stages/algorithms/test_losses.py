"""Every loss, estimator and weight against its formula in plain numbers, and what holds of all.

A row of TABLE is a function, how it is called on columns of single numbers, its formula in plain
numbers (of pairs: `pairs_by_hand`), and the inputs that have a gradient. Values are compared on a
grid that has both sides of every clip, gradients with central differences of the formula. To add a
loss, add its row.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch
from pairs_by_hand import pair_loss

from stages.algorithms import kl
from stages.algorithms.losses import importance_ratios as ratios
from stages.algorithms.losses import preference_losses as pairs
from stages.algorithms.losses import reference_free_losses as free
from stages.algorithms.losses import reward_and_value_losses as scores
from stages.algorithms.losses import surrogates

INF, NAN = math.inf, math.nan
exp, log = math.exp, math.log


@dataclass(frozen=True, kw_only=True)
class Row:
    function: Callable
    call: Callable
    """Of columns; returns the loss, or the loss and a second result: a flag, or a margin."""
    plain: Callable
    """Of single numbers, both results; `frozen` is the first input where it has no gradient."""
    grid: dict[str, tuple[float, ...]]
    graded: tuple[str, ...] = ()
    extremes: dict[str, tuple[float, ...]] = field(default_factory=dict)
    on_grids: Callable | None = None
    """Of [batch, token] inputs and a mask."""


def nls(x):
    """- log sigmoid(x)"""
    return math.log1p(exp(-x)) if x > -700 else -x


def sigmoid(x):
    return 1 / (1 + exp(-x))


def clip(x, low, high):
    return min(max(x, low), high)


# --- at a token: new and old log-probability, advantage --------------------------------------
NEW, OLD, ADVANTAGE = (-3.0, -1.9, -1.0, -0.6, -0.2), (-1.0, -2.0), (2.0, -2.0, 0.0)
TOKEN = {"new": NEW, "old": OLD, "a": ADVANTAGE}
FAR = {"new": (-1e4, -500.0, -INF, -0.1), "old": (-INF, -500.0, -0.1), "a": ADVANTAGE}
CLIP = {"low": 0.2, "high": 0.3}


def surrogate(function, plain, **numbers):
    def on_grids(new, old, a, mask):
        return function(new, old, a, mask, **numbers)

    def call(*columns):
        grids = [column[:, None] for column in columns]
        mask = torch.ones_like(grids[0], dtype=torch.bool)
        return [result[:, 0] for result in on_grids(*grids, mask)]

    return Row(function=function, call=call, plain=plain, grid=TOKEN, graded=("new",), extremes=FAR,
        on_grids=on_grids)  # fmt: skip


def ppo(new, old, a, **_):
    ratio = exp(new - old)
    clipped = clip(ratio, 1 - CLIP["low"], 1 + CLIP["high"])
    return -min(ratio * a, clipped * a), clipped * a < ratio * a


def dual(new, old, a, **_):
    loss, active = ppo(new, old, a)
    return (min(loss, -3 * a), active or loss > -3 * a) if a < 0 else (loss, active)


def penalised(new, old, a, **_):
    ratio = exp(new - old)
    return -ratio * a + 0.5 * (ratio - 1 - (new - old)), False


def cispo(new, old, a, frozen=None):
    ratio = exp((new if frozen is None else frozen) - old)
    return -min(ratio, 2.0) * a * new, ratio > 2.0


SURROGATES = {
    "clip": surrogate(surrogates.clipped_surrogate, ppo, **CLIP),
    "dual_clip": surrogate(surrogates.dual_clip_surrogate, dual, **CLIP, cap=3.0),
    "gspo": surrogate(surrogates.sequence_ratio_surrogate, ppo, **CLIP, normalise=True),
    "rloo": surrogate(surrogates.sequence_ratio_surrogate, ppo, **CLIP, normalise=False),
    "kl_penalty": surrogate(surrogates.kl_penalty_surrogate, penalised, beta=0.5),
    "cispo": surrogate(surrogates.cispo, cispo, cap=2.0),
}
REINFORCE = surrogate(lambda new, _, a, mask: surrogates.reinforce(new, a, mask), lambda n, _, a,
    **__: (-a * n, False))  # fmt: skip
SURROGATES["reinforce"] = Row(**vars(REINFORCE) | {"function": surrogates.reinforce})


def weight(function, plain, **numbers):
    def on_grids(old, sampler, _, mask):
        return function(old, sampler, mask, **numbers), mask

    def call(old, sampler):
        mask = torch.ones_like(old, dtype=torch.bool)[:, None]
        return function(old[:, None], sampler[:, None], mask, **numbers)[:, 0]

    grid = {"old": (-2.0, -1.3, -0.7, 0.0, -1.0), "sampler": (-2.0, -0.1, -3.5, -1.0)}
    far = {"old": (-500.0, -1.0, -INF), "sampler": (-500.0, -INF, -1.0)}
    graded = ("old",) if function is ratios.masked_log_ratio else ()
    return Row(function=function, call=call, plain=plain, grid=grid, graded=graded, extremes=far,
        on_grids=on_grids)  # fmt: skip


def within(low, high):
    return lambda old, sampler, **_: ratio if low <= (ratio := exp(old - sampler)) <= high else 0.0


def truncated(old, sampler, **_):
    return min(exp(old - sampler), 3.0)


WEIGHTS = {
    "log_ratio": weight(ratios.masked_log_ratio, lambda old, sampler, **_: old - sampler),
    "token_truncated": weight(ratios.token_truncated, truncated, cap=3.0),
    "token_masked": weight(ratios.token_masked, within(0.4, 3.0), low=0.4, high=3.0),
    "token_masked_at_1": weight(ratios.token_masked, within(1.0, 1.0), low=1.0, high=1.0),
    "sequence_truncated": weight(ratios.sequence_truncated, truncated, cap=3.0),
    "sequence_masked": weight(ratios.sequence_masked, within(0.4, 3.0), low=0.4, high=3.0),
}


def estimate(function, plain):
    grid = {"policy": (-3.0, -0.4, -1.0), "reference": (-2.0, -0.1, -1.0)}
    far = {"policy": (-500.0, -1.0), "reference": (-500.0, -0.1)}
    return Row(function=function, plain=plain, grid=grid, graded=("policy",), extremes=far,
        call=lambda p, q: function(p[:, None], q[:, None])[:, 0])  # fmt: skip


ESTIMATES = {
    "k1": estimate(kl.k1, lambda p, q, **_: p - q),
    "k2": estimate(kl.k2, lambda p, q, **_: (p - q) ** 2 / 2),
    "k3": estimate(kl.k3, lambda p, q, **_: exp(q - p) - 1 - (q - p)),
    "corrected": Row(
        function=kl.importance_corrected, plain=lambda e, p, s, **_: exp(p - s) * e,
        call=lambda e, p, s: kl.importance_corrected(e[:, None], p[:, None], s[:, None])[:, 0],
        grid={"estimate": (3.0, -1.0), "policy": (-3.0, -0.4), "sampler": (-2.0, -0.1)},
        graded=("estimate", "policy"),
        extremes={"estimate": (3.0,), "policy": (-1.0,), "sampler": (-500.0, -INF)},
    ),
}  # fmt: skip

# --- of pairs: log-probabilities, then those of the reference; 2 and 4 tokens ----------------
PAIR = {"c": (-4.0, -9.0, -0.5), "r": (-6.0, -0.7), "cr": (-5.0, -8.0), "rr": (-5.0, -1.0)}
ANY = {"c": (-1e30, -1e6, -INF, -1e-30, -0.1), "r": (-INF, -1e30, -1.0, -1e-30), "cr": (-1.0,),
       "rr": (0.0,)}  # fmt: skip


def make_pairs(*columns):
    number = len(columns[0])
    return pairs.PairLogprobs(*columns, torch.full((number,), 2), torch.full((number,), 4))


def preference(function, kind, **numbers):
    def plain(*log_probs, **_):
        c, r, *refs = torch.tensor(log_probs, dtype=torch.float64)
        results = pair_loss(kind, SimpleNamespace(**numbers), c, r, refs, (2, 4))
        return tuple(map(float, results))

    return Row(function=function, call=lambda *columns: function(make_pairs(*columns), **numbers),
        plain=plain, grid=PAIR, graded=("c", "r"), extremes=ANY)  # fmt: skip


PREFERENCES = {
    "dpo": preference(pairs.dpo_loss, "sigmoid", beta=0.5, label_smoothing=0.0),
    "cdpo": preference(pairs.dpo_loss, "sigmoid", beta=0.5, label_smoothing=0.2),
    "robust": preference(pairs.robust_dpo_loss, "robust", beta=0.5, flip_rate=0.25),
    "ipo_sum": preference(pairs.ipo_sum_loss, "ipo_sum", beta=0.25),
    "ipo_mean": preference(pairs.ipo_mean_loss, "ipo_mean", beta=0.25),
    "hinge": preference(pairs.hinge_loss, "hinge", beta=0.45),
    "simpo": preference(free.simpo_loss, "simpo", beta=2.0, gamma=0.5),
    "orpo": preference(free.orpo_loss, "orpo", lam=0.3),
    "cpo": preference(free.cpo_loss, "cpo", beta=0.5, alpha=0.25),
    "cpo_alone": preference(free.cpo_loss, "cpo", beta=0.5, alpha=0.0),
}


def kto_columns(x, ref, good, z):
    results = [pairs.kto_loss(x[i : i + 1], ref[i : i + 1], good[i : i + 1] > 0, z[i], beta=0.5,
        desirable_weight=2.0, undesirable_weight=1.0) for i in range(len(x))]  # fmt: skip
    return [torch.cat(part) for part in zip(*results, strict=True)]


def odds(x):
    return x - log(1 - exp(x))


def kto(x, ref, good, z, **_):
    gain = 0.5 * (x - ref) - 0.5 * z
    return 2 * sigmoid(-gain) if good else sigmoid(gain), 0.5 * (x - ref)


def value(v, old, target, **_):
    return max((v - target) ** 2, (old + clip(v - old, -0.5, 0.5) - target) ** 2) / 2


def cross(s, y):
    return y * nls(s) + (1 - y) * nls(-s)


LABEL = (0.0, 0.3, 1.0)
OTHERS = {
    "kto": Row(
        function=pairs.kto_loss, call=kto_columns, plain=kto, graded=("x",),
        grid={"x": (-3.0, -5.0), "ref": (-5.0, -2.0), "good": (1.0, 0.0), "z": (0.0, 1.0)},
        extremes={"x": (1e30, -1e30, -INF), "ref": (0.0,), "good": (1.0, 0.0), "z": (0.0,)},
    ),
    "bradley_terry": Row(
        function=scores.bradley_terry_loss, graded=("c", "r", "p"),
        call=lambda c, r, p: scores.bradley_terry_loss(c, r, p, margin=1.5),
        plain=lambda c, r, p, **_: cross(c - r - 1.5 * (2 * p - 1), p),
        grid={"c": (0.3, -1.0), "r": (0.7, 2.0), "p": LABEL},
        extremes={"c": (1e4, -1e4), "r": (0.0,), "p": LABEL},
    ),
    "outcome": Row(
        function=scores.outcome_label_loss, call=scores.outcome_label_loss, graded=("s", "y"),
        plain=lambda s, y, **_: cross(s, y), grid={"s": (-2.0, 0.0, 1.5), "y": LABEL},
        extremes={"s": (1e4, -1e4), "y": LABEL},
    ),
    "step": Row(
        function=scores.step_label_loss, graded=("w", "s"),
        call=lambda w, s, y: scores.step_label_loss(torch.stack([w, s], 1), y),
        plain=lambda w, s, y, **_: cross(s - w, y),
        grid={"w": (1.0, -4.0), "s": (0.0, 2.0), "y": LABEL},
        extremes={"w": (1e4, -1e4), "s": (0.0,), "y": LABEL},
    ),
    "value": Row(
        function=scores.clipped_value_loss, plain=value, graded=("v",),
        call=lambda *columns: scores.clipped_value_loss(*(x[None] for x in columns), clip=0.5)[0],
        grid={"v": (1.2, 2.0, 0.0), "old": (1.0, -1.0), "target": (3.0, -2.0)},
    ),
    "log_odds": Row(
        function=free.log_odds, call=free.log_odds, plain=lambda x, **_: odds(x), graded=("x",),
        grid={"x": (-0.01, -0.5, -0.8, -7.0)}, extremes={"x": (0.0, -1e-30, -1e4, -INF)},
    ),
    "log1mexp": Row(
        function=free.log1mexp, call=free.log1mexp, plain=lambda x, **_: log(-math.expm1(x)),
        graded=("x",), grid={"x": (-1e-3, -log(2), -0.1, -5.0)},
        extremes={"x": (-1e-30, -1.0, -1e4, -INF)},
    ),
    "finite": Row(
        function=pairs.finite, call=pairs.finite, plain=lambda x, **_: x, graded=("x",),
        grid={"x": (-3.0, 1e3)}, extremes={"x": (-INF, INF)},
    ),
}  # fmt: skip
TABLE = SURROGATES | WEIGHTS | ESTIMATES | PREFERENCES | OTHERS
each = pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
BY_HAND = {pairs.kto_reference_point, ratios.sequence_log_ratio, kl.adaptive_coef, kl.doubling_coef}
"""What no column of single numbers can show: below, and in test_by_hand.py."""


def columns(row, grid, dtype=torch.float64):
    # Of two infinities there is no difference.
    numbers = [x for x in itertools.product(*grid.values()) if sum(map(math.isinf, x)) < 2]
    inputs = zip(*numbers, strict=True)
    return numbers, [torch.tensor(x, dtype=dtype).requires_grad_() for x in inputs]


def results(row, inputs):
    actual = row.call(*inputs)
    return actual if isinstance(actual, (tuple, list)) else (actual,)


def test_every_public_function_is_in_the_table():
    for module in (surrogates, pairs, free, scores, ratios, kl):
        public = {
            function
            for name, function in vars(module).items()
            if callable(function) and name.islower() and not name.startswith("_")
            if getattr(function, "__module__", "") == module.__name__
        }
        missing = public - {row.function for row in TABLE.values()} - BY_HAND
        assert {function.__qualname__ for function in missing} == set()


@each
def test_results_are_those_of_the_formula(row):
    numbers, inputs = columns(row, row.grid)
    expected = [row.plain(*item) for item in numbers]
    expected = expected if isinstance(expected[0], tuple) else [(item,) for item in expected]
    for actual, plain in zip(results(row, inputs), zip(*expected, strict=True), strict=True):
        result = torch.tensor(plain, dtype=actual.dtype)
        torch.testing.assert_close(actual.detach(), result, rtol=1e-12, atol=1e-12)


@each
def test_gradients_are_central_differences_and_no_other_input_has_one(row):
    numbers, inputs = columns(row, row.grid)
    actual = results(row, inputs)[0]
    assert actual.requires_grad == bool(row.graded)
    if row.graded:
        actual.sum().backward()

    def loss(item, place, change):
        moved = [x + change * (at == place) for at, x in enumerate(item)]
        result = row.plain(*moved, frozen=item[0])
        return result[0] if isinstance(result, tuple) else result

    for place, (name, column) in enumerate(zip(row.grid, inputs, strict=True)):
        if name not in row.graded:
            assert column.grad is None, name
            continue
        step = 1e-6
        slopes = [(loss(item, place, step) - loss(item, place, -step)) / 2e-6 for item in numbers]
        torch.testing.assert_close(column.grad, torch.tensor(slopes).double(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("row", [row for row in TABLE.values() if row.extremes],
    ids=[name for name, row in TABLE.items() if row.extremes])  # fmt: skip
def test_extreme_numbers_give_no_nan_in_value_or_gradient(row, dtype):
    _, inputs = columns(row, row.extremes, dtype)
    actual = results(row, inputs)
    assert not any(result.isnan().any() for result in actual)
    if row.graded:
        actual[0].sum().backward()
        assert not any(x.grad is not None and x.grad.isnan().any() for x in inputs)


@pytest.mark.parametrize("small", [-500.0, -INF])
@pytest.mark.parametrize("name", [*SURROGATES, "log_ratio", "corrected", "k3"])
def test_a_capped_log_ratio_is_20_and_leaves_finite_numbers(name, small):
    new, old = (small, -1.0) if name == "k3" else (-1.0, small)
    leaf = torch.tensor([new], requires_grad=True)
    inputs = [leaf, torch.tensor([old])] + [torch.tensor([2.0])] * (name in SURROGATES)
    inputs = [torch.ones(1), *inputs] if name == "corrected" else inputs
    actual = results(TABLE[name], inputs)[0]
    actual.sum().backward()
    assert actual.isfinite().all()
    assert leaf.grad.isfinite().all()
    expected = {"log_ratio": 20.0, "corrected": exp(20), "k3": exp(20) - 21}
    assert actual.item() == pytest.approx(expected.get(name, actual.item()))
    assert name != "log_ratio" or leaf.grad.item() == 0.0


LOGICAL = torch.tensor([[True] * 3, [True, False, False], [False] * 3])
GRIDS = torch.randn(3, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
MASKED = {name: row for name, row in TABLE.items() if row.on_grids}


@pytest.mark.parametrize("row", MASKED.values(), ids=MASKED)
def test_masked_entries_reach_neither_value_nor_gradient(row):
    kept = []
    for filler in (0.0, NAN, INF, -INF):
        inputs = [torch.where(LOGICAL, grid, filler) for grid in GRIDS]
        leaf = inputs[0].requires_grad_()
        losses, active = row.on_grids(*inputs, LOGICAL)
        if losses.requires_grad:
            losses.sum().backward()
            assert (leaf.grad[~LOGICAL] == 0).all()
        assert (losses[~LOGICAL] == 0).all()
        assert not (active & ~LOGICAL).any()
        kept.append([losses.detach(), leaf.grad if losses.requires_grad else losses.detach()])
    for other in kept[1:]:
        assert all(map(torch.equal, other, kept[0]))


def test_a_completion_has_the_product_or_the_geometric_mean_of_its_ratios():
    new = torch.tensor([[0.5, 0.0, -2.0], [0.25, 9.0, 9.0]], dtype=torch.float64)
    mask, zeros = LOGICAL[:2], torch.zeros(2, 3, dtype=torch.float64)
    for normalise, expected in ((False, [-1.5, 0.25]), (True, [-0.5, 0.25])):
        leaf = new.clone().requires_grad_()
        ratio = ratios.sequence_log_ratio(leaf, zeros, mask, normalise=normalise)
        assert ratio[:, 0].tolist() == expected
        row = SURROGATES["gspo" if normalise else "rloo"]
        losses, clipped = row.on_grids(leaf, zeros, torch.ones_like(new), mask)
        assert losses[:, 0].tolist() == pytest.approx([-exp(expected[0]), -exp(0.25)])
        assert not clipped.any()
        losses[0].sum().backward()
        # Three tokens of the loss, in each of the three, or a third of it.
        share = -exp(expected[0]) * (1 if normalise else 3)
        assert leaf.grad.tolist() == [pytest.approx([share] * 3), [0.0] * 3]
    product = ratios.sequence_truncated(new, zeros, mask, cap=3.0)
    assert product.tolist() == [pytest.approx([exp(-1.5)] * 3), pytest.approx([exp(0.25), 0, 0])]
    assert not ratios.sequence_masked(new, zeros, mask, low=0.3, high=3.0)[0].any()
    # Capped once more after the sum; without tokens there is no ratio.
    long, every = torch.zeros(1, 1000), torch.ones(1, 1000, dtype=torch.bool)
    for normalise, expected in ((False, 20.0), (True, 1.0)):
        assert ratios.sequence_log_ratio(long, long - 1, every, normalise=normalise) == expected
        assert ratios.sequence_log_ratio(long, long - 1, ~every, normalise=normalise) == 0


@pytest.mark.parametrize("row", PREFERENCES.values(), ids=PREFERENCES)
def test_swapping_a_pair_turns_its_margin_and_no_pair_is_no_loss(row):
    _, inputs = columns(row, PAIR)
    c, r, cr, rr = inputs
    # By the row's own formula; its lengths go with the completions.
    lengths = torch.full_like(c, 4).long(), torch.full_like(c, 2).long()
    turned = pairs.PairLogprobs(r, c, rr, cr, *lengths).swapped()
    for actual, expected in zip(turned, make_pairs(*inputs), strict=True):
        assert torch.equal(actual, expected)
    empty = torch.zeros(0)
    assert [result.shape for result in row.call(empty, empty, empty, empty)] == [(0,), (0,)]


def test_the_reference_point_of_kto_is_a_mean_without_gradient_and_never_negative():
    def point(new, reference):
        return pairs.kto_reference_point(*(torch.tensor(x) for x in (new, reference)))

    assert point([-2.0, -6.0], [-5.0, -5.0]).item() == 1.0
    assert point([-6.0], [-5.0]).item() == 0.0
    assert pairs.kto_reference_point(torch.zeros(0), torch.zeros(0)).item() == 0.0
    leaf = torch.tensor([3.0], requires_grad=True)
    assert not pairs.kto_reference_point(leaf, torch.zeros(1)).requires_grad


def test_log1mexp_loses_no_digits():
    actual = free.log1mexp(torch.tensor([-1e-12, -50.0], dtype=torch.float64)).tolist()
    assert actual == pytest.approx([log(1e-12), -exp(-50.0)], rel=1e-12, abs=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_odds_of_certain_completions_are_finite_with_finite_gradients(dtype):
    logprobs = torch.tensor([0.0, -1e-30, -1e-3, -1e4, -INF], dtype=dtype, requires_grad=True)
    odds = free.log_odds(logprobs)
    odds.sum().backward()
    assert odds[:-1].isfinite().all()
    assert logprobs.grad.isfinite().all()
