"""Losses of reward models (preference, outcome and process) and of value models."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from stages.algorithms.aggregation import Tokens

Pairs = Float[Tensor, " pair"]
Completions = Float[Tensor, " batch"]
Steps = Float[Tensor, " step"]


def bradley_terry_loss(
    chosen_rewards: Pairs, rejected_rewards: Pairs, probabilities: Pairs, *, margin: float = 0.0
) -> Pairs:
    """Cross-entropy of each pair's label p under P(chosen better) = sigmoid(r_c - r_r - m).

        loss = - p log sigmoid(r_c - r_r - m) - (1 - p) log sigmoid(m + r_r - r_c)
        m    = margin (2 p - 1)

    Bradley and Terry (1952); as a reward model's loss, Ouyang et al., "Training language models to
    follow instructions" (2022), eq. 1, where p is always 1 and m is 0. The margin follows Touvron
    et al., "Llama 2" (2023), https://arxiv.org/abs/2307.09288, eq. 2. Departure: theirs depends on
    four grades from annotators, ours on the label's confidence |2 p - 1|, and ours is negative if
    the label prefers the rejected completion. So the loss stays the same if the two completions are
    swapped and p becomes 1 - p. A model trained with a margin is overconfident if
    sigmoid(r_c - r_r) is taken as a probability.
    """
    gaps = chosen_rewards - rejected_rewards - margin * (2 * probabilities - 1)
    return outcome_label_loss(gaps, probabilities)


def outcome_label_loss(scores: Completions, labels: Completions) -> Completions:
    """Cross-entropy of each completion's label y under P(right) = sigmoid(score).

        loss = - y log sigmoid(s) - (1 - y) log sigmoid(-s),   y: 0, 1 or a probability

    After the verifiers of Cobbe et al., "Training Verifiers to Solve Math Word Problems" (2021),
    section 4, https://arxiv.org/abs/2110.14168. Departures: one prediction per completion, at its
    last token, instead of one per token (this is their solution-level variant, which they find to
    overfit sooner); no additional language-modelling loss. If right and wrong completions have the
    same total weight, sigmoid(score) is P(right) in a pool with one half right.
    """
    return -labels * logsigmoid(scores) - (1 - labels) * logsigmoid(-scores)


def step_label_loss(scores: Float[Tensor, "step 2"], probabilities: Steps) -> Steps:
    """Cross-entropy of each step's label p, hard (0 wrong, 1 right) or soft.

        loss = - p log softmax(scores)[1] - (1 - p) log softmax(scores)[0]

    The scores of a step, wrong and right, are read at its last token. Lightman et al., "Let's
    Verify Step by Step" (2023), section 2.6, https://arxiv.org/abs/2305.20050; Wang et al.,
    "Math-Shepherd" (2024), eq. 2, https://arxiv.org/abs/2312.08935, with soft labels its eq. 4:
    the share of the step's continuations that end in the right answer.
    Departures: two scores of a head, where the papers train the log-likelihood of a token of the
    vocabulary; every step has a label, while Lightman et al. also have a neutral one.
    """
    wrong, right = scores.log_softmax(-1).unbind(-1)
    probabilities = probabilities.detach()
    return -probabilities * right - (1 - probabilities) * wrong


def clipped_value_loss(
    values: Tokens, old_values: Tokens, returns: Tokens, *, clip: float
) -> Tokens:
    """PPO's clipped value loss at each token: the larger of two squared errors, halved.

        clipped = old + clip(V - old, -clip, clip)
        loss    = max((V - return)^2, (clipped - return)^2) / 2

    Not in the paper of Schulman et al. (2017) but in its implementation; Engstrom et al.,
    "Implementation matters in deep policy gradients" (2020), https://arxiv.org/abs/2005.12729,
    section 3, "value function clipping".
    """
    old_values, returns = old_values.detach(), returns.detach()
    clipped = old_values + torch.clamp(values - old_values, -clip, clip)
    return 0.5 * torch.maximum((values - returns) ** 2, (clipped - returns) ** 2)
