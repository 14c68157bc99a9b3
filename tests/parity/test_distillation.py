"""Distillation against TRL's generalised Jensen-Shannon divergence, as GKD uses it.

On policy, TRL sums over the vocabulary; ours has the sampled token alone. Each token is drawn here
as often as the student does, so the mean over draws is the expectation, exactly. Off policy
(`lmbda` 0), both sum over the vocabulary.
"""

import pytest
import torch
from parity import ours
from parity.reference import Computed
from parity.rows import Row, relative
from tiny_checkpoints import PAD, compute, load
from tiny_rollouts import OPTIM, make_demonstrations
from torch.nn.utils.rnn import pad_sequence

from stages.algorithms.aggregation import token_mean
from stages.algorithms.losses.surrogates import reinforce
from stages.algorithms.token_advantages import teacher_log_ratio
from stages.loops import sft
from stages.loops.sft import SftConfig, Teacher, TeacherLoss
from stages.models.policy import Policy

NUM_DRAWS = 64
TEMPERATURE = 0.7


def test_mean_advantage_and_gradient_are_those_of_the_reverse_divergence(record):
    from trl.experimental.gkd import GKDTrainer

    generator = torch.Generator().manual_seed(0)
    # Five positions; the last one does not count.
    counts = torch.multinomial(torch.ones(5, 6), NUM_DRAWS - 6, replacement=True,
                               generator=generator)  # fmt: skip
    drawn = torch.cat([counts, torch.arange(6).expand(5, 6)], 1).T  # each token once at least
    shares = torch.nn.functional.one_hot(drawn, 6).float().mean(0)
    student = (TEMPERATURE * shares.log())[None].requires_grad_()
    teacher = torch.randn(1, 5, 6, generator=generator)
    labels = torch.tensor([[0, 0, 0, 0, -100]])
    loss = GKDTrainer.generalized_jsd_loss(
        student, teacher, labels=labels, beta=1.0, temperature=TEMPERATURE
    )
    (expected,) = torch.autograd.grad(loss, student)

    logprobs, teacher_logprobs = (
        (logits[0] / TEMPERATURE).log_softmax(-1)[torch.arange(5), drawn]
        for logits in (student, teacher)
    )
    mask = (labels != -100).expand(NUM_DRAWS, 5)
    advantages = teacher_log_ratio(logprobs, teacher_logprobs, mask)
    losses, _ = reinforce(logprobs, advantages, mask)
    num_tokens = int(mask.sum())
    (actual,) = torch.autograd.grad(token_mean(losses, mask, num_tokens=num_tokens), student)

    value = relative(-advantages.sum() / num_tokens, loss.detach())
    gradient = relative(actual, expected)
    compared = "`generalized_jsd_loss` with `beta` 1, draws in proportion"
    note = "TRL's `beta` 1 is KL(student, teacher), 0 is KL(teacher, student)"
    record(Row(method="OPD", compared=compared, value=value, gradient=gradient, note=note))
    assert max(value, gradient) <= 1e-5


@pytest.mark.parametrize("temperature", [1.0, TEMPERATURE])
def test_one_step_towards_a_teacher_is_that_of_the_forward_divergence(
    temperature, monkeypatch, agree
):
    from trl.experimental.gkd import GKDTrainer

    rows, model, other = make_demonstrations(4), load("llama"), load("llama", 1)
    texts = [torch.tensor([*row.prompt_ids, *row.completion_ids]) for row in rows]
    ids, labels = (pad_sequence(texts, batch_first=True, padding_value=v) for v in (PAD, -100))
    for row, of_row in zip(rows, labels, strict=True):
        of_row[: len(row.prompt_ids)] = -100

    def divergence(student):
        with torch.no_grad():
            target = other(input_ids=ids).logits
        return GKDTrainer.generalized_jsd_loss(
            student(input_ids=ids).logits[:, :-1], target[:, :-1], labels=labels[:, 1:], beta=0.0,
            temperature=temperature,
        )  # fmt: skip

    theirs = ours.computed(load("llama"), model.state_dict(), divergence)
    seen = ours.watch(monkeypatch, sft, model)
    loss = TeacherLoss(temperature=temperature, likelihood_coef=0.0)
    policy, frozen = (Policy(item, compute(max_tokens=40), PAD) for item in (model, other))
    config = SftConfig(num_epochs=1, batch_size=4, optim=OPTIM)
    teacher = Teacher(policy=frozen, loss=loss)
    (step,) = sft.train(policy, rows, [range(4)], config, teacher=teacher)
    result = Computed(loss=step.metrics["loss/forward_kl"], gradients=seen[0])
    compared = f"`loops/sft.train`, one step, `generalized_jsd_loss` with `beta` 0, T {temperature}"
    note = "TRL's GKD with `lmbda` 0; no factor T^2 in either"
    agree("forward KL", compared, result, theirs, note=note)
