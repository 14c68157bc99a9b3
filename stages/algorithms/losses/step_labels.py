"""The cross-entropy of step labels, for a model that judges each step of a solution."""

from jaxtyping import Float, Int
from torch import Tensor


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
        weights: w, of the labels wrong and right; see `class_weights.balanced_weights`.

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
