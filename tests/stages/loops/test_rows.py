"""Loops over rows: which rows they learn from, in which steps, and what they say of a run.

Losses and gradients of these loops are in `test_definitions`.
"""

import dataclasses
import math
from dataclasses import replace
from functools import partial
from itertools import chain

import pytest
import torch
from seed_runs import make_run
from tiny_checkpoints import CPU, PAD, checkpoint, compute, load, plain_logprobs
from tiny_rollouts import OPTIM, draws, make_demonstrations, make_pairs

from stages.algorithms.losses.preference_losses import PairLogprobs
from stages.loops import (
    epochs,
    kto,
    preference,
    process_reward,
    ref_logprobs,
    reward,
    sft,
    training,
)
from stages.loops.preference import PreferencePreset, expected_loss
from stages.loops.process_reward import HardTargets, SoftTargets, compute_targets, measure_quality
from stages.loops.reward import OutcomeConfig
from stages.loops.sft import SftConfig, SftPreset
from stages.models import model_tokenizer, policy, process_head, row_policy, scalar_head
from stages.models.policy import Policy
from stages.models.process_head import ProcessHead
from stages.models.row_policy import LoraConfig
from stages.models.scalar_head import ScalarHead
from stages.records.episodes import Episode
from stages.records.preferences import Outcome
from stages.records.steps import StepLabels
from stages.runtime import journal

# --- Demonstrations

ROWS = make_demonstrations(8)
ALL = SftPreset(
    num_epochs=None, learning_rate=None, num_demonstrations=None, tasks=None, learn_prompt=False
)


def choose(rows=ROWS, seed=0, **changes):
    return sft.choose_demonstrations(rows, ALL.model_copy(update=changes), seed=seed)


def test_demonstrations_are_chosen_by_number_task_and_as_documents():
    assert choose() == ROWS
    three = choose(num_demonstrations=3)
    assert len({row.id for row in three}) == 3
    assert any(choose(num_demonstrations=3, seed=s) != three for s in (1, 2))
    rows = [replace(row, task="judge" if i % 2 else "solve") for i, row in enumerate(ROWS)]
    assert choose(rows, tasks=["solve"]) == rows[::2]
    assert {row.task for row in choose(rows, tasks=["judge"], num_demonstrations=3)} == {"judge"}
    for row, document in zip(ROWS, choose(learn_prompt=True), strict=True):
        assert document.prompt_ids == row.prompt_ids[:1]
        assert document.completion_ids == row.prompt_ids[1:] + row.completion_ids


PAIRS = make_pairs(6)
EPISODIC = replace(ROWS[0], completion_ids=[4, 5, 6, 9], insertions=[(2, (7, 8))])


def test_a_preset_has_epochs_and_a_rate_or_leaves_them_to_the_section():
    section = SftConfig(num_epochs=0, batch_size=8, optim=OPTIM)
    assert ALL.override(section) == section
    result = ALL.model_copy(update={"num_epochs": 4, "learning_rate": 0.5}).override(section)
    assert (result.num_epochs, result.optim.learning_rate, result.batch_size) == (4, 0.5, 8)


def make_episode(index, **changes):
    fields = {
        "id": "p", "index": index, "env_seed": 0, "messages": [], "num_start_messages": 0,
        "tools": None, "prompt_ids": [3], "token_ids": [4, 5, 7, 8, 6, index],
        "sampled": [(0, 2), (4, 6)], "rewards": [0.0, 1.0], "reward": 1.0, "success": True,
        "ending": "done", "error": None,
    }  # fmt: skip
    return Episode(**fields | changes)


def test_distinct_episodes_that_succeeded_and_finished_are_demonstrations():
    same = make_episode(2, token_ids=make_episode(1).token_ids)
    bad = [{"role": "assistant", "content": "?", "error": "no call"}, {"role": "tool"}]
    rest = [make_episode(3, success=False), make_episode(4, ending="tokens")]
    rest += [make_episode(6, ending="turns", messages=bad)]
    rows = sft.select_successes([make_episode(1), same, *rest, make_episode(5)])
    assert [row.completion_ids for row in rows] == [[4, 5, 6, 1], [4, 5, 6, 5]]
    assert [[(n, list(ids)) for n, ids in row.insertions] for row in rows] == [[(2, [7, 8])]] * 2


def test_what_an_environment_wrote_is_context_and_is_not_learned():
    model, ids = load("llama").eval(), [4, 5, 6, 9]
    pair = replace(
        PAIRS[0], prompt_ids=EPISODIC.prompt_ids, chosen_ids=ids, rejected_ids=[4, 9],
        chosen_insertions=[[2, [7, 8]]], rejected_insertions=[[1, [3]]],
    )  # fmt: skip
    chosen = plain_logprobs(model, pair.prompt_ids, [4, 5, 7, 8, 6, 9])[[0, 1, 4, 5]]
    rejected = plain_logprobs(model, pair.prompt_ids, [4, 3, 9])[[0, 2]]
    without = plain_logprobs(model, pair.prompt_ids, ids)
    config = SftConfig(num_epochs=1, batch_size=1, optim=OPTIM)
    (step,) = sft.train(Policy(load("llama"), compute(), PAD), [EPISODIC], [[0]], config)
    assert step.metrics["loss/nll"] == pytest.approx(-chosen.mean().item(), rel=1e-5)
    requests = ref_logprobs.list_pair_completions([pair, replace(pair, chosen_insertions=None)])
    result = ref_logprobs.compute(Policy(model, compute(), PAD), requests).tolist()
    sums = [each.sum().item() for each in (chosen, rejected, without, rejected)]
    assert result == pytest.approx(sums, abs=1e-4)
    assert abs(sums[0] - sums[2]) > 1e-3
    (group,) = preference.make_pair_groups([pair], [0])
    sides = [[[place, list(ids)] for place, ids in side] for side in group.insertions]
    assert sides == [pair.chosen_insertions, pair.rejected_insertions]


# --- Pairs and unpaired examples


def test_a_completion_of_several_pairs_of_a_problem_is_read_once_by_the_reference():
    again = replace(PAIRS[0], rejected_ids=PAIRS[1].rejected_ids)
    wanted = ref_logprobs.list_pair_completions([*PAIRS, again, again])
    groups, numbers = ref_logprobs.group_by_problem(wanted, 64)
    assert sum(len(group.completions) for group in groups) == 2 * 6 + 1
    # Another problem's completion is read for each of them.
    assert (numbers[:4], numbers[12:]) == ([0, 1, 3, 4], [0, 2, 0, 2])
    model = load("llama")
    for training_mode in (True, False):
        model.train(training_mode)
        actual = ref_logprobs.compute(Policy(model, compute(row_tokens=14), PAD), wanted).tolist()
        assert model.training is training_mode
        for (_, prompt_ids, ids, _), value in zip(wanted, actual, strict=True):
            assert value == pytest.approx(
                plain_logprobs(model, prompt_ids, ids).sum().item(), abs=1e-3
            )
    assert ref_logprobs.compute(Policy(model, compute(), PAD), []).tolist() == []


def unpaired(*pairs):
    return [(r.id, r.completion_ids, r.desirable) for r in kto.make_unpaired_examples(pairs)]


def test_the_distinct_completions_of_pairs_are_desirable_and_undesirable_rows():
    first, second = PAIRS[:2]
    both = [("q0", first.chosen_ids, True), ("q0", first.rejected_ids, False)]
    others = [("q1", second.chosen_ids, True), ("q1", second.rejected_ids, False)]
    assert unpaired(first, second, first) == [*both, *others]
    elsewhere = replace(first, id="q9")
    assert unpaired(first, elsewhere)[2:] == [("q9", *row[1:]) for row in both]
    # The middle of a ranking is both.
    below = replace(first, chosen_ids=first.rejected_ids, rejected_ids=[9, 1])
    assert unpaired(first, below) == [
        *both, ("q0", first.rejected_ids, True), ("q0", [9, 1], False)
    ]  # fmt: skip
    assert unpaired() == []


def test_a_mismatched_pair_is_a_prompt_with_the_next_rows_completion_in_rotation():
    rows = kto.make_unpaired_examples(PAIRS[:5])

    def mismatched(*numbers):
        groups = kto.make_mismatched_groups(rows, numbers)
        prompts = [row.prompt_ids for row in rows]
        return [(prompts.index(g.prompt_ids) // 2, g.completions) for g in groups]

    assert mismatched(2, 0, 5) == [
        (1, [rows[0].completion_ids]), (0, [rows[5].completion_ids]), (2, [rows[2].completion_ids])
    ]  # fmt: skip
    # Rows 0 and 1 are of one problem: only 1 -> 2 and 2 -> 0 are left.
    assert [number for number, _ in mismatched(0, 1, 2)] == [0, 1]
    assert mismatched(4) == []


def test_a_step_without_rows_of_a_kind_has_no_metrics_of_it():
    result = kto.mean_by_desirability("x", torch.tensor([1.0, 2.0]), torch.tensor([True, True]))
    assert result == {"x/chosen": 1.5}


def test_the_loss_of_a_sure_pair_is_finite_beside_others_where_its_reverse_is_not():
    """The reference excludes its chosen completion: turned round, the loss is infinite."""
    log, lengths = torch.tensor([-1.0, -2.0]), torch.tensor([3, 3])
    excluded = torch.tensor([-torch.inf, -2.0])
    hinge, sure = PreferencePreset(kind="hinge", beta=1.0), torch.tensor([1.0, 0.6])
    pairs = PairLogprobs(log + 0.5, log, excluded, log, lengths, lengths)
    losses, _ = expected_loss(hinge, pairs, sure)
    assert losses[0] == preference.compute_pair_losses(hinge, pairs)[0][0] == 0


@pytest.mark.parametrize(
    ("chosen", "rejected", "fell"),
    [
        ([0.0, -1.0, -2.0], [0.0, 0.5, -5.0], True),
        ([0.0, 1.0, 2.0], [0.0, 0.5, -5.0], False),
        ([0.0, 0.0, -0.05], [0.0, 0.0, -5.0], False),  # less than a tenth of a nat
        ([-3.0] * 18 + [2.0, 0.0], [-3.0] * 20, False),  # only the end counts
        ([], [], False),
    ],
)
def test_a_warning_where_both_sides_end_below_the_reference(chosen, rejected, fell, caplog):
    history = [
        {
            "log_ratios/chosen": a,
            "log_ratios/rejected": b,
            "tokens/trained": 2,
            "margin/accuracy": 1,
        }
        for a, b in zip(chosen, rejected, strict=True)
    ]
    summary = preference.summarise(history)
    assert summary["both_logprobs_fell"] is bool(caplog.messages) is fell
    assert summary["trained_tokens"] == 2 * len(chosen)
    ends = [summary[f"final_{side}_log_ratio"] for side in ("chosen", "rejected")]
    last = max(1, len(chosen) // 10)
    assert ends == [sum(x[-last:]) / last if x else None for x in (chosen, rejected)]


# --- Reward models


def scalar():
    model = scalar_head.init_scalar_model(checkpoint("llama"), PAD, compute(), CPU, head_seed=1)
    return ScalarHead(model, compute(), PAD)


def outcomes(right, wrong, weight):
    labels = [True] * right + [False] * wrong
    return [
        Outcome(id="q", prompt_ids=[4, 5], completion_ids=[6 + i, 1], right=label, weight=weight)
        for i, label in enumerate(labels)
    ]


@pytest.mark.parametrize("mixed", [[], [outcomes(1, 1, 0.5)]], ids=["alone", "beside both classes"])
def test_a_problem_of_one_class_weighs_its_share_whatever_else_is_in_the_step(mixed):
    config = OutcomeConfig(
        max_per_problem=4, one_class_weight=0.0, num_epochs=1, batch_size=6, optim=OPTIM
    )

    def loss(share):
        problems = [outcomes(n, 0, share / n) for n in (1, 2, 4)] + mixed
        (step,) = reward.train_outcomes(scalar(), problems, [[*range(len(problems))]], config)
        return step.metrics["loss/outcome"]

    whole, half, quarter = map(loss, (1.0, 0.5, 0.25))
    assert half < 0.95 * whole
    assert quarter == pytest.approx(1.5 * half - 0.5 * whole)  # on a line over the share


# --- Process reward models

HARD, SOFT = HardTargets(kind="hard", threshold=0.0), SoftTargets(kind="soft")


def labelled(labels, problem="a", truth=None, **changes):
    fields = {
        "id": problem, "index": 2, "prompt": "", "prompt_ids": [4], "steps": ["x"] * len(labels),
        "step_ids": [[5]] * len(labels), "labels": labels, "num_completions": [4] * len(labels),
        "true_labels": truth, "correct": None, "source": "math_shepherd",
    }  # fmt: skip
    return StepLabels(**fields | changes)


@pytest.mark.parametrize(
    ("labels", "rule", "to_error", "expected"),
    [
        ([1.0, 0.25, None, 0.0], HARD, False, [1.0, 1.0, None, 0.0]),
        # the threshold itself is wrong
        ([1.0, 0.25, None], HardTargets(kind="hard", threshold=0.25), False, [1.0, 0.0, None]),
        ([1.0, 0.25, None, 0.0], SOFT, False, [1.0, 0.25, None, 0.0]),
        ([1.0, 0.0, 1.0, 0.0], HARD, True, [1.0, 0.0, None, None]),
        ([1.0, 0.5, 0.4, 0.9], SOFT, True, [1.0, 0.5, 0.4, None]),
        ([1.0, 1.0, None, 1.0], HARD, True, [1.0, 1.0, None, 1.0]),
    ],
)
def test_targets_of_steps(labels, rule, to_error, expected):
    assert compute_targets(labelled(labels), rule, up_to_first_error=to_error) == expected


def process_config(**changes):
    fields = {"targets": {"kind": "hard", "threshold": 0.25}, "up_to_first_error": True}
    fields |= {"num_epochs": 3, "batch_size": 1, "optim": OPTIM}
    return process_reward.ProcessRewardConfig(**fields | changes)


def test_solutions_of_a_problem_are_learned_from_together_and_each_once_an_epoch():
    rows = [labelled([1.0], problem=problem) for problem in "aaabb"]
    result = process_reward.schedule_steps(rows, process_config(), seed=0)
    assert sorted(map(sorted, result)) == [[0, 1, 2]] * 3 + [[3, 4]] * 3
    assert process_reward.schedule_steps(rows, process_config(), seed=0) == result


def process_steps(rows, schedule, **changes):
    model = process_head.init_process_model(checkpoint("llama"), 2, compute(), CPU)
    inputs = ProcessHead(model, compute(), PAD), rows, schedule, process_config(**changes)
    return process_reward.train(*inputs)


def test_steps_after_the_first_error_and_solutions_without_labels_do_not_count():
    rows = [labelled(labels) for labels in ([1.0, 0.5], [0.0, 1.0], [1.0, None, 0.25], [None])]
    (step,) = process_steps(rows, [[0, 1, 2, 3]])
    assert step.metrics["steps/labelled"] == 2 + 1 + 2
    assert step.metrics["loss/step_labels"] == pytest.approx(math.log(2), rel=1e-5)  # a new head
    steps = process_steps(rows, [[0], [3]])
    next(steps)
    with pytest.raises(ValueError, match="step 1"):
        next(steps)


def test_agreement_of_scores_with_labels_and_the_truth_by_hand():
    """Labels: right 0.9 and 0.6, wrong 0.7; truth: right 0.9, wrong 0.6, 0.7 and 0.1."""
    rows = [labelled([1.0, 0.25], "a", [True, False]), labelled([0.0, None], "b", [False, False])]
    scores, log = [[0.9, 0.6], [0.7, 0.1]], math.log
    result = measure_quality(rows, scores, HARD)
    assert result["labels"] == {
        "steps": 3, "right_share": pytest.approx(2 / 3), "balanced_accuracy": pytest.approx(0.5),
        "negative_log_likelihood": pytest.approx(-(log(0.9) + log(0.6) + log(0.3)) / 3),
        "auroc": pytest.approx(0.5), "auroc_within_problem": None,
    }  # fmt: skip
    assert result["truth"]["balanced_accuracy"] == pytest.approx((1 + 1 / 3) / 2)
    assert (result["truth"]["auroc"], result["truth"]["auroc_within_problem"]) == (1.0, 1.0)
    soft = measure_quality(rows, scores, SOFT)["labels"]
    assert soft["right_share"] == pytest.approx(1 / 3)
    expected = -(log(0.9) + 0.25 * log(0.6) + 0.75 * log(0.4) + log(0.3)) / 3
    assert soft["negative_log_likelihood"] == pytest.approx(expected)
    # A step without a label and a truth is compared with nothing.
    parts = [labelled([None, 1.0, 0.25], "a", [None, True, False]), rows[1]]
    with_more = measure_quality(parts, [[0.2, 0.9, 0.6], scores[1]], HARD)
    assert (with_more["labels"], with_more["truth"]) == (result["labels"], result["truth"])
    unknown = [dataclasses.replace(row, true_labels=None) for row in rows]
    assert measure_quality(unknown, scores, SOFT)["truth"] == {"steps": 0}
    # Scores that know only the problem.
    rows = [labelled([1.0, 1.0, 0.0], "a"), labelled([0.0, 0.0, 1.0], "b")]
    result = measure_quality(rows, [[0.9] * 3, [0.1] * 3], SOFT)["labels"]
    assert (result["auroc"], result["auroc_within_problem"]) == (pytest.approx(6 / 9), 0.5)


def test_the_share_of_solutions_whose_last_step_alone_is_lowest():
    scores = [[0.9, 0.2], [0.2, 0.9], [0.3], [0.4, 0.4]]
    assert process_reward.lowest_is_last(scores) == pytest.approx(1 / 3)
    assert process_reward.lowest_is_last([[0.3]]) is None


# --- Steps


@pytest.mark.parametrize("seed", range(4))
def test_every_row_comes_once_an_epoch_in_a_fresh_order_and_never_twice_in_a_step(seed):
    steps = epochs.batches(7, 2, 3, seed)
    assert [len(step) for step in steps] == [3, 3, 1, 3, 3, 1]
    first, second = list(chain(*steps[:3])), list(chain(*steps[3:]))
    assert sorted(first) == sorted(second) == list(range(7))
    assert first != second
    assert epochs.batches(7, 4, 3, seed)[:6] == steps != epochs.batches(7, 2, 3, seed + 1)
    endless = draws(5, num_steps=10, batch_size=3, seed=seed)
    assert all(len(set(step)) == 3 for step in endless)
    order = list(chain(*endless))
    assert all(sorted(order[n : n + 5]) == list(range(5)) for n in range(0, 30, 5))


def test_a_budget_ends_with_the_step_that_reaches_it_in_whatever_epoch():
    lengths, long = [5, 1, 1, 1, 4], epochs.batches(5, 9, 2, seed=0)
    for budget in range(1, 40):
        steps = epochs.batches_within(lengths, budget, 2, seed=0)
        spent = [sum(lengths[row] for row in step) for step in steps]
        assert sum(spent[:-1]) < budget <= sum(spent)
        assert steps == long[: len(steps)]


def test_the_rate_of_a_loop_over_rows_ends_with_its_schedule():
    optim = OPTIM | {"learning_rate": 1e-3, "schedule": "linear", "warmup_share": 0.25}
    config = SftConfig(num_epochs=1, batch_size=2, optim=optim)
    steps = sft.train(Policy(load("llama"), compute(), PAD), ROWS, [[i] for i in range(4)], config)
    rates = [step.metrics["optim/learning_rate"] for step in steps]
    assert rates == pytest.approx([1e-3, 1e-3, 1e-3 * 2 / 3, 1e-3 / 3])


@pytest.mark.parametrize(
    ("num_steps", "number", "expected"),
    [
        (32, 3, [8, 16, 24]), (10, 3, [3, 5, 8]), (8, 0, []), (1, 5, []), (4, 9, [1, 2, 3]),
        (100, 1, [50]),
    ],
)  # fmt: skip
def test_intermediate_policies_are_evenly_spaced_and_never_the_last(num_steps, number, expected):
    assert training.spaced_steps(num_steps, number) == expected


def watch(steps, model, seen):
    """The steps; `seen` are the weights after each."""
    for step in steps:
        seen.append({name: value.clone() for name, value in policy.merged_weights(model)})
        yield step


@pytest.mark.parametrize("rank", [0, 4])
def test_an_intermediate_policy_is_that_after_its_step_and_training_goes_on_the_same(
    rank, tmp_path
):
    words, seen = model_tokenizer.train_tokenizer(["3 + 4 = 7"], 700), []
    config = SftConfig(num_epochs=1, batch_size=2, optim=OPTIM)
    for number in (0, 2):
        model, folder = load("llama"), tmp_path / str(number)
        row_policy.add_adapters(model, LoraConfig(rank=rank, alpha=8), 0)
        outputs = folder / "saved", folder / "logged"
        outputs[1].mkdir(parents=True)
        with journal.writing(tmp_path / "journal.jsonl") as log:
            run = make_run(seed=number, folder=folder, log=log, outputs=outputs)
            learner, state = Policy(model, compute(), PAD), run.resume()
            steps = sft.train(learner, ROWS, [[0, 1]] * 4, config, state)
            save = partial(policy.save_model, model, words)
            run.record(watch(steps, model, seen), total=4, num_checkpoints=number, save=save)
            run.write_policy(save)
    assert all(torch.equal(seen[7][name], weight) for name, weight in seen[3].items())
    paths = sorted((outputs[1] / "checkpoints").glob("*"))
    assert [path.name for path in paths] == ["step-0001", "step-0003"]
    for path, weights in zip(paths, (seen[0], seen[2]), strict=True):
        again = dict(policy.merged_weights(policy.load_policy(path, compute(), CPU)))
        for name, weight in again.items():
            torch.testing.assert_close(weight, weights[name], rtol=1e-4, atol=1e-5)


# --- Refusals


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: choose([]), "demonstrations"),
        (lambda: choose(num_demonstrations=9), "at most 8"),
        (lambda: choose(tasks=["revise"]), "revise"),
        (lambda: choose([EPISODIC], learn_prompt=True), "learn_prompt"),
        (lambda: unpaired(replace(PAIRS[0], probability=0.8)), r"0\.8.*'q0'"),
        (lambda: unpaired(replace(PAIRS[0], chosen_insertions=[[2, [7]]])), "pairs"),
        (lambda: draws(3, num_steps=1, batch_size=4, seed=0), "4 prompts"),
        # before anything is learned
        (lambda: next(process_steps([labelled([1.0]), labelled([1.0] * 70)], [[0]])), "leave out"),
        *(
            (lambda keys=keys: PreferencePreset.model_validate(keys), word)
            for keys, word in (
                ({"kind": "dpo"}, "sigmoid"), ({"beta": 0.5}, "kind"),
                ({"kind": "sigmoid", "flip_rate": 0.1}, "flip_rate"),
                ({"kind": "hinge", "gamma": 1.0}, "gamma"),
                ({"kind": "kto", "label_smoothing": 0.1}, "label_smoothing"),
                ({"kind": "hinge", "beta": 0.0}, "beta"),
                ({"kind": "robust", "flip_rate": 0.5}, "flip_rate"),
            )
        ),
    ],
)  # fmt: skip
def test_rows_and_presets_that_cannot_be_learned_from_are_refused(call, word):
    with pytest.raises(ValueError, match=word):
        call()
