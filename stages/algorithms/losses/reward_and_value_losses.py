"""Losses of models that give scores: of pairs, of outcomes, of steps, and of values."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid


def bradley_terry_loss(
    chosen_rewards: Float[Tensor, " pair"],
    rejected_rewards: Float[Tensor, " pair"],
    probabilities: Float[Tensor, " pair"],
    *,
    margin: float = 0.0,
) -> Float[Tensor, " pair"]:
    """Cross-entropy of each pair's label under P(chosen better) = sigmoid(r_c - r_r - m).

        loss = - p log sigmoid(r_c - r_r - m) - (1 - p) log sigmoid(m + r_r - r_c)
        m    = margin (2 p - 1)

    Bradley and Terry (1952); as a reward model's loss, Ouyang et al., "Training language
    models to follow instructions" (2022), eq. 1, where p is always 1 and m is 0. The margin is that
    of Touvron et al., "Llama 2" (2023), https://arxiv.org/abs/2307.09288, eq. 2. Departure: theirs
    goes by four grades that annotators gave, ours by the label's confidence |2 p - 1| on the side
    that the label is on, so that exchanging the two and writing 1 - p is the same loss. With a
    margin the scores are farther apart than P says: sigmoid(r_c - r_r) overstates.

    Args:
        chosen_rewards, rejected_rewards: the model's scalars.
        probabilities: p, the label: 1.0 when the choice is certain, below 0.5 when the rejected
            one is likelier the better.
        margin: how far apart the rewards of a certain pair are asked to be; 0: no further than
            the likelihood asks.
    """
    gaps = chosen_rewards - rejected_rewards - margin * (2 * probabilities - 1)
    return -probabilities * logsigmoid(gaps) - (1 - probabilities) * logsigmoid(-gaps)


def outcome_label_loss(
    scores: Float[Tensor, " batch"], labels: Float[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """Cross-entropy of each completion's label under P(right) = sigmoid(score).

        loss = - y log sigmoid(s) - (1 - y) log sigmoid(-s)

    After the verifiers of Cobbe et al., "Training Verifiers to Solve Math Word Problems" (2021),
    section 4, https://arxiv.org/abs/2110.14168. Departures: one prediction a completion, at its
    last token, where theirs is made at every token (their solution-level variant, which they
    find to overfit sooner); no language-modelling loss beside it. Under weights that make right and
    wrong count the same, P(right) is that of an even pool.

    Args:
        scores: logits; they get the gradient.
        labels: y, whether the final answer is right: 0, 1, or a probability.
    """
    return -labels * logsigmoid(scores) - (1 - labels) * logsigmoid(-scores)


def step_label_loss(
    scores: Float[Tensor, "step label"], labels: Int[Tensor, " step"]
) -> Float[Tensor, " step"]:
    """Cross-entropy of each step's label.

        loss = - log softmax(scores)[label]

    The scores of a step are read at its last token. Lightman et al., "Let's Verify Step by
    Step" (2023), section 2.6, https://arxiv.org/abs/2305.20050; Wang et al., "Math-Shepherd"
    (2024), eq. 2, https://arxiv.org/abs/2312.08935
    Departure: two scores of a head, where the papers train the log-likelihood of a token of
    the vocabulary; and no neutral label, which Lightman et al. have.

    Args:
        scores: of each step that has a label; they get the gradient.
        labels: 0 wrong, 1 right. Any other is an error, -100 included: leave out the tokens
            that have no label.

    Raises:
        ValueError: no step at all, whose mean would be NaN and whose sum a loss of 0.
    """
    _require_steps(scores)
    return -scores.log_softmax(-1).gather(-1, labels[:, None]).squeeze(-1)


def soft_step_label_loss(
    scores: Float[Tensor, "step 2"],
    probabilities: Float[Tensor, " step"],
    *,
    weights: tuple[float, float] = (1.0, 1.0),
) -> Float[Tensor, " step"]:
    """Cross-entropy of each step's soft label.

        loss = - w_1 p log softmax(scores)[1] - w_0 (1 - p) log softmax(scores)[0]

    `step_label_loss` where p is 0 or 1 and the weights are 1. Wang et al., "Math-Shepherd"
    (2024), eq. 2 with the labels of eq. 4, https://arxiv.org/abs/2312.08935

    Args:
        scores: of each step that has a label, wrong and right; they get the gradient.
        probabilities: p, that the step is right: in the paper, the share of its
            continuations that end in the right answer.
        weights: w, of the labels wrong and right; see `balanced_weights`.

    Raises:
        ValueError: as `step_label_loss`.
    """
    _require_steps(scores)
    wrong, right = scores.log_softmax(-1).unbind(-1)
    probabilities = probabilities.detach()
    return -weights[1] * probabilities * right - weights[0] * (1 - probabilities) * wrong


def _require_steps(scores: Float[Tensor, "step label"]) -> None:
    if not len(scores):
        raise ValueError(
            "expected at least one labelled step, found none: leave such solutions out, and "
            "look for step ends that truncation cut off"
        )


def balanced_weights(probabilities: Float[Tensor, " step"]) -> tuple[float, float]:
    """Weights (w_0, w_1) under which both labels have the same total, their mean weight 1.

        w_1 = n / (2 sum p),   w_0 = n / (2 sum (1 - p))

    The inverse frequencies of King and Zeng, "Logistic Regression in Rare Events Data" (2001),
    section 3.2, with a soft label counted as p of the one and 1 - p of the other. What a model
    learns under them is not P(right) but w_1 p / (w_1 p + w_0 (1 - p)): its scores rank steps
    as before, and 1/2 is where both labels are as likely as they are overall.

    Args:
        probabilities: p of every labelled step of the training set.

    Raises:
        ValueError: a label that never occurs, which no weight can balance.
    """
    total, right = float(len(probabilities)), float(probabilities.double().sum())
    if not 0 < right < total:
        raise ValueError(
            f"expected steps of both labels, found {right:g} right of {total:g}: set "
            f"class_balance: none, or label steps of harder problems or of another policy"
        )
    return total / (2 * (total - right)), total / (2 * right)


def clipped_value_loss(
    values: Float[Tensor, "batch token"],
    old_values: Float[Tensor, "batch token"],
    returns: Float[Tensor, "batch token"],
    *,
    clip: float,
) -> Float[Tensor, "batch token"]:
    """Half the squared error at each token, pessimistic about moves beyond `clip`.

        clipped = old + clip(V - old, -clip, clip)
        loss    = max((V - return)^2, (clipped - return)^2) / 2

    As in the implementation of Schulman et al. (2017) and Ouyang et al., "Training
    language models to follow instructions" (2022), appendix C.4.
    """
    old_values, returns = old_values.detach(), returns.detach()
    clipped = old_values + torch.clamp(values - old_values, -clip, clip)
    return 0.5 * torch.maximum((values - returns) ** 2, (clipped - returns) ** 2)
