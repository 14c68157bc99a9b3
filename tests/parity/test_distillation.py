"""On-policy distillation against TRL's generalised Jensen-Shannon divergence, as GKD uses it.

TRL sums over the vocabulary; ours has the sampled token alone. Each token is drawn here as often as
the student does, so the mean over draws is the expectation, exactly.
"""

import torch
from parity.rows import Row, relative

from stages.algorithms.aggregation import token_mean
from stages.algorithms.losses.surrogates import reinforce
from stages.algorithms.token_advantages import negative_log_ratio

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
    advantages = negative_log_ratio(logprobs, teacher_logprobs, mask)
    losses, _ = reinforce(logprobs, advantages, mask)
    num_tokens = int(mask.sum())
    (found,) = torch.autograd.grad(token_mean(losses, mask, num_tokens=num_tokens), student)

    value = relative(-advantages.sum() / num_tokens, loss.detach())
    gradient = relative(found, expected)
    compared = "`generalized_jsd_loss` with `beta` 1, draws in proportion"
    note = "TRL's `beta` 1 is KL(student, teacher), 0 is KL(teacher, student)"
    record(Row(method="OPD", compared=compared, value=value, gradient=gradient, note=note))
    assert max(value, gradient) <= 1e-5
