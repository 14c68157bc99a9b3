from dataclasses import replace

import pytest
import torch
from tiny_checkpoints import FAMILIES, PAD, compute, gradients, load, plain_logprobs
from tiny_rollouts import (
    OPTIM,
    assert_same_gradients,
    make_demonstrations,
    watch_gradients,
    weights,
)

from stages.loops import epochs, sft
from stages.loops.sft import SftConfig, SftPreset, Teacher, TeacherLoss
from stages.models.policy import Policy

ROWS = make_demonstrations(8)
ONE_STEP = [list(range(8))]


ALL = SftPreset(
    num_epochs=None, learning_rate=None, num_demonstrations=None, tasks=None, learn_prompt=False
)


def config(**optim):
    return SftConfig(num_epochs=1, batch_size=8, optim=OPTIM | optim)


def train(model, schedule, settings=None, optim=None, rows=ROWS):
    steps = sft.train(
        Policy(model, settings or compute(), PAD), rows, schedule, config(**(optim or {}))
    )
    return list(steps)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_is_minus_the_mean_log_prob_of_the_steps_completion_tokens(family):
    model = load(family)
    rows = [plain_logprobs(model, r.prompt_ids, r.completion_ids) for r in ROWS]
    flat = torch.cat(rows)
    (step,) = train(model, ONE_STEP)
    assert step.metrics["loss/nll"] == pytest.approx(-flat.mean().item(), rel=1e-5)
    assert step.metrics["tokens/trained"] == len(flat)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gradient_is_that_of_the_plain_loss(family, monkeypatch):
    seen, model = watch_gradients(monkeypatch), load(family)
    train(load(family), ONE_STEP)
    flat = torch.cat([plain_logprobs(model, r.prompt_ids, r.completion_ids) for r in ROWS])
    (-flat.mean()).backward()
    # As the optimizer numbers them: matrices first.
    ordered = sorted(model.parameters(), key=lambda parameter: parameter.ndim < 2)
    assert_same_gradients(seen[0], gradients(torch.nn.ParameterList(ordered)))


def test_all_rows_are_chosen_as_they_are_unless_fewer_or_documents_are_asked_for():
    assert sft.choose_demonstrations(ROWS, ALL, seed=0) == ROWS
    few = ALL.model_copy(update={"num_demonstrations": 3})
    chosen = sft.choose_demonstrations(ROWS, few, seed=0)
    assert len({row.id for row in chosen}) == 3
    assert sft.choose_demonstrations(ROWS, few, seed=0) == chosen
    assert any(sft.choose_demonstrations(ROWS, few, seed=seed) != chosen for seed in range(1, 5))
    with pytest.raises(ValueError, match="at most 8, which is all there are; found 9"):
        sft.choose_demonstrations(ROWS, few.model_copy(update={"num_demonstrations": 9}), seed=0)


def test_a_preset_says_its_own_epochs_and_rate_or_leaves_them_to_the_section():
    assert ALL.override(config()) == config()
    result = ALL.model_copy(update={"num_epochs": 4, "learning_rate": 0.5}).override(config())
    assert result == config(learning_rate=0.5).model_copy(update={"num_epochs": 4})


def test_a_documents_prompt_is_learned_too_from_its_second_token():
    documents = sft.choose_demonstrations(
        ROWS, ALL.model_copy(update={"learn_prompt": True}), seed=0
    )
    for row, document in zip(ROWS, documents, strict=True):
        assert document.prompt_ids == row.prompt_ids[:1]
        assert document.completion_ids == row.prompt_ids[1:] + row.completion_ids


def test_the_padding_share_is_that_of_all_positions_of_the_step():
    lengths = [len(r.prompt_ids) + len(r.completion_ids) for r in ROWS]
    (step,) = train(load("llama"), ONE_STEP)
    expected = 1 - sum(lengths) / (8 * max(lengths))
    assert step.metrics["batch/padding_share"] == pytest.approx(expected)
    (step,) = train(load("llama"), ONE_STEP, compute(pack_tokens=sum(lengths)))
    assert step.metrics["batch/padding_share"] == 0


def test_eight_demonstrations_are_learned_by_heart():
    model = load("llama")
    schedule = epochs.batches(8, 60, 4, seed=0)
    steps = train(model, schedule)
    assert steps[0].metrics["loss/nll"] > 2
    assert steps[-1].metrics["loss/nll"] < 0.05
    assert [step.index for step in steps] == list(range(120))


def test_gradient_checkpointing_gives_the_same_step():
    result = []
    for checkpointing in (False, True):
        model = load("llama", gradient_checkpointing=checkpointing)
        train(model, ONE_STEP)
        result.append(weights(model))
    torch.testing.assert_close(result[0], result[1], rtol=1e-4, atol=1e-5)


def test_a_bfloat16_step_lowers_the_loss_and_leaves_weights_in_float32():
    model = load("llama", dtype="bfloat16")
    plain = train(load("llama"), ONE_STEP)[0].metrics["loss/nll"]
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        steps = train(model, ONE_STEP * 5, compute(dtype="bfloat16"))
    losses = [step.metrics["loss/nll"] for step in steps]
    assert losses[0] == pytest.approx(plain, rel=0.05)
    assert losses[-1] < losses[0]
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_a_gradient_that_is_no_number_stops_the_run_before_the_weights_change():
    model = load("llama")
    with torch.no_grad():
        model.model.norm.weight[0] = torch.inf
    before = weights(model)
    with pytest.raises(ValueError, match="Lower the learning rate"):
        train(model, ONE_STEP)
    assert torch.equal(weights(model), before)


def test_only_demonstrations_of_the_tasks_asked_for_are_chosen():
    rows = [replace(row, task="judge" if i % 2 else "solve") for i, row in enumerate(ROWS)]
    solve = ALL.model_copy(update={"tasks": ["solve"]})
    assert sft.choose_demonstrations(rows, solve, seed=0) == rows[::2]
    both = ALL.model_copy(update={"tasks": ["solve", "judge"]})
    assert sft.choose_demonstrations(rows, both, seed=0) == rows
    # The number is of those that are left.
    few = solve.model_copy(update={"num_demonstrations": 3})
    assert {row.task for row in sft.choose_demonstrations(rows, few, seed=0)} == {"solve"}
    with pytest.raises(ValueError, match=r"of \['revise'\], found those of \['judge', 'solve'\]"):
        sft.choose_demonstrations(rows, ALL.model_copy(update={"tasks": ["revise"]}), seed=0)


def taught(model, other, temperature=1.0, likelihood_coef=0.0, schedule=ONE_STEP, **settings):
    """Steps of distillation from another model."""
    loss = TeacherLoss(temperature=temperature, likelihood_coef=likelihood_coef)
    policy, frozen = (Policy(item, compute(**settings), PAD) for item in (model, other))
    teacher = Teacher(policy=frozen, loss=loss)
    return list(sft.train(policy, ROWS, schedule, config(), teacher=teacher))


def plain_kl(model, other, temperature):
    """KL(teacher || policy) at every completion token by the models' own logits, in float64."""
    values = []
    for row in ROWS:
        ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
        here = slice(len(row.prompt_ids) - 1, -1)
        with torch.no_grad():
            target = other(input_ids=ids).logits[0, here]
        logits = model(input_ids=ids).logits[0, here]
        p, q = ((z.double() / temperature).softmax(-1) for z in (target, logits))
        values.append((p * (p.log() - q.log())).sum(-1))
    return torch.cat(values)


@pytest.mark.parametrize("family", FAMILIES)
def test_with_a_teacher_loss_and_gradient_are_those_of_the_divergence(family, monkeypatch):
    seen, model, other = watch_gradients(monkeypatch), load(family), load(family, 1)
    (step,) = taught(load(family), other, 0.7, 0.5, row_tokens=64)
    divergence = plain_kl(model, other, 0.7).mean()
    likelihood = torch.cat([plain_logprobs(model, r.prompt_ids, r.completion_ids) for r in ROWS])
    assert step.metrics["loss/forward_kl"] == pytest.approx(divergence.item(), rel=1e-5)
    assert step.metrics["loss/nll"] == pytest.approx(-likelihood.mean().item(), rel=1e-5)
    (divergence - 0.5 * likelihood.mean()).backward()
    ordered = sorted(model.parameters(), key=lambda parameter: parameter.ndim < 2)
    assert_same_gradients(seen[0], gradients(torch.nn.ParameterList(ordered)))
    assert all(parameter.grad is None for parameter in other.parameters())


def test_a_policy_that_is_its_own_teacher_learns_nothing():
    # Weight decay aside, which is 0 here, AdamW moves by the gradient's sign, however small it is.
    model, start = load("llama"), load("llama")
    (step,) = taught(model, start)
    assert step.metrics["loss/forward_kl"] == pytest.approx(0, abs=1e-7)
    assert step.metrics["optim/grad_norm"] < 1e-6
    assert step.metrics["loss/nll"] > 2


def test_the_divergence_falls_and_the_teacher_stays_as_it_is():
    model, other = load("llama"), load("llama", 1)
    before = weights(other)
    steps = taught(model, other, schedule=epochs.batches(8, 60, 4, seed=0))
    assert steps[0].metrics["loss/forward_kl"] > 0.2
    assert steps[-1].metrics["loss/forward_kl"] < 0.05
    assert torch.equal(weights(other), before)
    last = steps[-1].metrics
    assert last["work/teacher/read/outputs"] == last["tokens/trained"]
