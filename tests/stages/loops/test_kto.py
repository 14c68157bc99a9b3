import dataclasses
import math

import pytest
import torch
from tiny_checkpoints import PAD, compute, load, plain_logprobs
from tiny_rollouts import OPTIM, assert_same_gradients, make_pairs, watch_gradients

from stages.loops import epochs, kto
from stages.loops.kto import make_unpaired_examples
from stages.loops.preference import PreferenceConfig, PreferencePreset
from stages.models.policy import Policy

PAIRS = make_pairs(5)
ROWS = make_unpaired_examples(PAIRS)
ONE_STEP = [[0, 3, 4, 7, 8, 1, 2, 5, 6, 9]]
LOSS = PreferencePreset.model_validate(
    {"kind": "kto", "beta": 0.1, "desirable_weight": 1.0, "undesirable_weight": 1.5},
)


def reference(model, schedule, settings=None):
    return kto.compute_reference(Policy(model, settings or compute(), PAD), ROWS, schedule)


def train(model, schedule, settings=None, *, ref=None):
    settings = settings or compute()
    ref = reference(model, schedule, settings) if ref is None else ref
    optim = OPTIM | {"learning_rate": 3e-3}
    config = PreferenceConfig(num_epochs=1, batch_size=8, num_checkpoints=0, optim=optim)
    return list(kto.train(Policy(model, settings, PAD), ROWS, ref, schedule, LOSS, config))


def test_a_mismatched_pair_is_a_prompt_with_the_next_rows_completion_in_rotation():
    groups = kto.make_mismatched_groups(ROWS, [2, 0, 5])
    assert [group.prompt_ids for group in groups] == [ROWS[i].prompt_ids for i in (2, 0, 5)]
    assert [group.completions for group in groups] == [[ROWS[i].completion_ids] for i in (0, 5, 2)]
    assert [group.indices for group in groups] == [[0], [1], [2]]


def test_neighbours_of_one_problem_and_a_row_alone_are_no_mismatch():
    # Rows 0 and 1 are of one problem: only 1 -> 2 and 2 -> 0 are left.
    groups = kto.make_mismatched_groups(ROWS, [0, 1, 2])
    assert [group.prompt_ids for group in groups] == [ROWS[1].prompt_ids, ROWS[2].prompt_ids]
    assert kto.make_mismatched_groups(ROWS, [4]) == []
    (step,) = train(load("llama"), [[4]], ref=reference(load("llama", seed=1), [[4]]))
    assert step.metrics["kl/reference_point"] == 0.0
    assert "log_ratios/rejected" not in step.metrics


def test_the_first_step_starts_at_the_reference_with_half_of_every_weight():
    (step,) = train(load("llama"), ONE_STEP)
    # Five rows of weight 1 and five of 1.5: (0.5 + 0.75) / 2.
    assert step.metrics["loss/preference"] == pytest.approx(0.625, abs=1e-5)
    assert step.metrics["kl/reference_point"] == pytest.approx(0.0, abs=1e-4)


def test_metrics_are_those_of_log_probs_done_plainly():
    model, other = load("llama"), load("llama", seed=1)

    @torch.no_grad()
    def ratio(i, j):
        args = (ROWS[i].prompt_ids, ROWS[j].completion_ids)
        return (plain_logprobs(model, *args).sum() - plain_logprobs(other, *args).sum()).item()

    (order,) = ONE_STEP
    point = sum(ratio(i, j) for i, j in zip(order, [*order[1:], order[0]], strict=True)) / 10
    assert point > 0, "the case in which the reference point counts"
    losses, right = [], 0
    for i in order:
        gain = 0.1 * (ratio(i, i) - point)
        sign, weight = (1, 1.0) if ROWS[i].desirable else (-1, 1.5)
        losses.append(weight * (1 - 1 / (1 + math.exp(-sign * gain))))
        right += sign * gain > 0
    wanted = sum(ratio(i, i) for i in order if ROWS[i].desirable) / 5
    (step,) = train(model, ONE_STEP, ref=reference(other, ONE_STEP))
    assert step.metrics["kl/reference_point"] == pytest.approx(point, rel=1e-4)
    assert step.metrics["loss/preference"] == pytest.approx(sum(losses) / 10, rel=1e-4)
    assert step.metrics["margin/accuracy"] == pytest.approx(right / 10)
    assert step.metrics["log_ratios/chosen"] == pytest.approx(wanted, rel=1e-4)


def test_from_the_reference_the_order_of_the_rows_does_not_matter(monkeypatch):
    # There every mismatched log-ratio is 0, whichever the neighbours are.
    seen = watch_gradients(monkeypatch)
    for order in (ONE_STEP[0], list(range(10))):
        train(load("llama"), [order])
    assert_same_gradients(seen[1], seen[0])


def test_desirable_rows_rise_and_undesirable_ones_fall():
    steps = train(load("llama"), epochs.batches(len(ROWS), 30, 10, seed=0))
    last = steps[-1].metrics
    assert last["log_ratios/chosen"] > 1.0
    assert last["log_ratios/rejected"] < -1.0
    assert last["margin/accuracy"] == 1.0


FIRST, SECOND = make_pairs(2)


def test_the_chosen_are_desirable_and_the_rejected_are_not():
    rows = make_unpaired_examples([FIRST, SECOND])
    assert [(row.id, row.completion_ids, row.desirable) for row in rows] == [
        (FIRST.id, FIRST.chosen_ids, True),
        (FIRST.id, FIRST.rejected_ids, False),
        (SECOND.id, SECOND.chosen_ids, True),
        (SECOND.id, SECOND.rejected_ids, False),
    ]
    assert rows[0].prompt_ids == FIRST.prompt_ids


def test_a_completion_of_two_pairs_is_one_row_and_that_of_another_problem_another():
    other_rejected = dataclasses.replace(FIRST, rejected_ids=[9, 1])
    other_problem = dataclasses.replace(FIRST, id="elsewhere")
    rows = make_unpaired_examples([FIRST, other_rejected, FIRST, other_problem])
    assert [(row.id, row.desirable) for row in rows] == [
        (FIRST.id, True),
        (FIRST.id, False),
        (FIRST.id, False),
        ("elsewhere", True),
        ("elsewhere", False),
    ]


def test_the_middle_of_a_ranking_is_both():
    below = dataclasses.replace(FIRST, chosen_ids=FIRST.rejected_ids, rejected_ids=[9, 1])
    rows = make_unpaired_examples([FIRST, below])
    middle = [row.desirable for row in rows if row.completion_ids == FIRST.rejected_ids]
    assert middle == [False, True]


def test_no_pair_gives_no_row():
    assert make_unpaired_examples([]) == []


def test_a_label_that_is_not_sure_is_refused():
    with pytest.raises(ValueError, match=r"found a label of 0\.8 from 'verifier' at problem 'q0'"):
        make_unpaired_examples(make_pairs(1, probability=0.8))
