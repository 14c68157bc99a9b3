import math

import pytest
import torch
from tiny_checkpoints import PAD, compute, load, plain_logprobs
from tiny_rollouts import OPTIM, make_pairs

from stages.loops import epochs, preference, ref_logprobs
from stages.loops.preference import (
    BOTH_FELL,
    PreferenceConfig,
    PreferencePreset,
    late_mean,
    summarise,
)
from stages.models.policy import Policy

PAIRS = make_pairs(8)
ONE_STEP = [list(range(8))]
DPO = {"kind": "sigmoid", "beta": 0.1, "label_smoothing": 0.0}
LOSSES = [
    DPO,
    {"kind": "robust", "beta": 0.1, "flip_rate": 0.1},
    {"kind": "ipo_sum", "beta": 0.1},
    {"kind": "ipo_mean", "beta": 0.5},
    {"kind": "hinge", "beta": 0.1},
    {"kind": "simpo", "beta": 2.0, "gamma": 0.5},
    {"kind": "orpo", "lam": 0.5},
    {"kind": "cpo", "beta": 0.1, "alpha": 0.5},
]
kinds = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss["kind"])


def reference(model, settings=None):
    wanted = ref_logprobs.list_pair_completions(PAIRS)
    return ref_logprobs.compute(Policy(model, settings or compute(), PAD), wanted).view(-1, 2)


def train(model, schedule, settings=None, *, loss=DPO, ref=None):
    settings = settings or compute()
    ref = reference(model, settings) if ref is None else ref
    optim = OPTIM | {"learning_rate": 3e-3}
    config = PreferenceConfig(num_epochs=1, batch_size=8, num_checkpoints=0, optim=optim)
    chosen = PreferencePreset.model_validate(loss)
    steps = preference.train(Policy(model, settings, PAD), PAIRS, ref, schedule, chosen, config)
    return list(steps)


def test_the_first_step_starts_at_the_reference_with_loss_log_2():
    (step,) = train(load("llama"), ONE_STEP)
    assert step.metrics["loss/preference"] == pytest.approx(math.log(2), abs=1e-5)
    assert step.metrics["margin/mean"] == pytest.approx(0.0, abs=1e-5)
    assert step.metrics["log_ratios/chosen"] == pytest.approx(0.0, abs=1e-4)


def test_metrics_are_means_over_the_pairs_of_log_probs_done_plainly():
    model, other = load("llama"), load("llama", seed=1)
    sides = {"chosen": [], "rejected": []}
    ratios = {"chosen": [], "rejected": []}
    with torch.no_grad():
        for pair in PAIRS:
            for side, ids in (("chosen", pair.chosen_ids), ("rejected", pair.rejected_ids)):
                logprob = plain_logprobs(model, pair.prompt_ids, ids).sum().item()
                sides[side].append(logprob)
                ref = plain_logprobs(other, pair.prompt_ids, ids).sum().item()
                ratios[side].append(logprob - ref)
    margins = [0.1 * (c - r) for c, r in zip(ratios["chosen"], ratios["rejected"], strict=True)]
    (step,) = train(model, ONE_STEP, compute(max_tokens=30), ref=reference(other))
    expected = {
        "loss/preference": sum(math.log(1 + math.exp(-margin)) for margin in margins) / 8,
        "margin/mean": sum(margins) / 8,
        "margin/accuracy": sum(margin > 0 for margin in margins) / 8,
        **{f"logprobs/{side}": sum(values) / 8 for side, values in sides.items()},
        **{f"log_ratios/{side}": sum(values) / 8 for side, values in ratios.items()},
    }
    assert {name: step.metrics[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    lengths = [len(p.chosen_ids) + len(p.rejected_ids) for p in PAIRS]
    assert step.metrics["tokens/trained"] == sum(lengths)


@kinds
def test_every_loss_learns_the_order_of_the_pairs(loss):
    steps = train(load("llama"), epochs.batches(8, 30, 8, seed=0), loss=loss)
    first, last = steps[0].metrics, steps[-1].metrics
    assert last["loss/preference"] < first["loss/preference"]
    assert last["margin/accuracy"] == 1.0
    assert last["log_ratios/chosen"] > last["log_ratios/rejected"]


def metrics_of(chosen, rejected, tokens):
    return {
        "log_ratios/chosen": chosen,
        "log_ratios/rejected": rejected,
        "margin/accuracy": 0.75,
        "tokens/trained": tokens,
    }


def test_tokens_are_summed_and_the_rest_is_of_the_end():
    result = summarise(
        [metrics_of(*item) for item in ((0.0, 0.0, 7), (1.0, -1.0, 5), (-1.0, -2.5, 3))]
    )
    assert result == {
        "generated_tokens": 0,
        "trained_tokens": 15,
        "final_margin_accuracy": 0.75,
        "final_chosen_log_ratio": -1.0,
        "final_rejected_log_ratio": -2.5,
        "both_logprobs_fell": True,
    }
    assert "mean log-ratios -1.00 and -2.50 over" in BOTH_FELL % result


@pytest.mark.parametrize("rejected", [-3.0, 3.0])
def test_a_chosen_completion_that_rose_is_no_displacement(rejected):
    assert summarise([metrics_of(0.5, rejected, 1)])["both_logprobs_fell"] is False


def test_a_side_that_no_step_had_is_none():
    result = summarise([{"log_ratios/chosen": -1.0, "margin/accuracy": 1.0, "tokens/trained": 2}])
    assert result["final_rejected_log_ratio"] is None
    assert result["both_logprobs_fell"] is False


def both_fell(steps):
    return summarise(steps)["both_logprobs_fell"]


def history(chosen, rejected):
    return [
        {"log_ratios/chosen": c, "log_ratios/rejected": r}
        for c, r in zip(chosen, rejected, strict=True)
    ]


@pytest.mark.parametrize(
    ("chosen", "rejected", "expected"),
    [
        (-2.0, -5.0, True),
        (2.0, -5.0, False),
        (-2.0, 5.0, False),
        (2.0, 5.0, False),
        (-0.05, -5.0, False),  # less than a tenth of a nat
    ],
)
def test_it_is_told_only_where_both_end_below_the_reference(chosen, rejected, expected):
    assert both_fell(history([0.0, 0.5 * chosen, chosen], [0.0, 0.5, rejected])) is expected


def test_only_the_end_counts():
    fell_and_rose = [-3.0] * 18 + [1.0, 1.0]
    assert not both_fell(history(fell_and_rose, [-3.0] * 20))


def test_the_late_mean_is_of_the_last_tenth_of_the_steps_that_have_it():
    steps = [{"a": float(i)} for i in range(20)]
    assert late_mean(steps, "a") == 18.5
    assert late_mean([*steps, {"b": 7.0}], "a") == 18.5
    assert late_mean([*steps, {"b": 7.0}], "b") == 7.0


def test_without_a_number_nothing_is_told():
    assert late_mean([], "a") is None
    assert not both_fell([])
    assert not both_fell([{"log_ratios/chosen": -2.0}])
