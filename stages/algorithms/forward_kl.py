"""Forward KL divergence of a policy from a teacher, over the whole vocabulary, token by token.

    KL(p || q) = sum_v p_v (log p_v - log q_v),   p = softmax(z' / T),   q = softmax(z / T)

z' are the teacher's logits of the next token and z the policy's, both after the same tokens; T is
the temperature. Only the policy has a gradient:

    d KL / d z_v = (q_v - p_v) / T

Soft targets at a temperature: Hinton et al., "Distilling the Knowledge in a Neural Network" (2015),
https://arxiv.org/abs/1503.02531, section 2; at each token of a sequence: word-level distillation of
Kim and Rush, "Sequence-Level Knowledge Distillation" (2016), https://arxiv.org/abs/1606.07947;
supervised distillation (lambda 0, forward KL) of Agarwal et al., "On-Policy Distillation of
Language Models" (GKD, 2024), https://arxiv.org/abs/2306.13649. Summed over the tokens of a
completion that the teacher sampled at T = 1, its expectation is the divergence of whole
completions, by the chain rule.

Departure from Hinton et al., shared by GKD and TRL: no factor T^2. If there are too many logits,
the policy's and the teacher's are computed together in chunks of tokens (`logprobs`), and again in
the backward pass; so the largest tensor is chunk x vocabulary.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from stages.algorithms.logprobs import (
    LIMITS,
    ChunkLimits,
    Hidden,
    OutputLayer,
    Term,
    Tokens,
    cast_layer,
    evaluate_term,
    vocabulary_logprobs,
)


def forward_kl(
    hidden: Hidden,
    output: OutputLayer,
    teacher_hidden: Float[Tensor, "token teacher_hidden"],
    teacher_output: OutputLayer,
    *,
    temperature: float,
    limits: ChunkLimits = LIMITS,
) -> Tokens:
    """KL(teacher || policy) of the next token at each position, without a gradient of the teacher.

    `hidden` and `teacher_hidden` are final hidden states at the position before each token; their
    widths may differ. A ValueError if the two have different numbers of logits.
    """
    if len(output.weight) != len(teacher_output.weight):
        raise ValueError(
            f"expected as many logits of policy and teacher, found {len(output.weight)} and "
            f"{len(teacher_output.weight)}. Take a teacher that starts from the same base model."
        )
    layer = cast_layer(teacher_output, teacher_hidden)

    def teacher_logprobs(states: Tensor) -> Tensor:
        with torch.no_grad(), torch.autocast(states.device.type, enabled=False):
            return vocabulary_logprobs(states.to(layer.weight.dtype), layer, temperature)

    def value(logprobs: Tensor, states: Tensor) -> tuple[Tensor, ...]:
        target = teacher_logprobs(states)
        p = target.exp()
        gap = target - logprobs if logprobs.requires_grad else target.sub_(logprobs)
        return ((p * gap if gap.requires_grad else p.mul_(gap)).sum(-1),)

    def backward(logprobs: Tensor, states: Tensor, grad_divergence: Tensor) -> Tensor:
        gap = logprobs.exp_().sub_(teacher_logprobs(states).exp_())  # q - p
        return gap.mul_(grad_divergence[:, None])

    term = Term(value, backward, temperature, 1)
    return evaluate_term(term, hidden, output, teacher_hidden.detach(), limits)[0]
