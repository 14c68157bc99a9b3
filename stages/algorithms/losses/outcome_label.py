"""The cross-entropy of outcome labels, for a model that says whether an answer is right."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid


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
