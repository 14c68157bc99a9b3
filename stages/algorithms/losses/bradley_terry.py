"""The Bradley-Terry likelihood of preferences."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid


def bradley_terry_loss(
    chosen_rewards: Float[Tensor, " pair"],
    rejected_rewards: Float[Tensor, " pair"],
    probabilities: Float[Tensor, " pair"],
) -> Float[Tensor, " pair"]:
    """Cross-entropy of each pair's label under P(chosen better) = sigmoid(r_c - r_r).

        loss = - p log sigmoid(r_c - r_r) - (1 - p) log sigmoid(r_r - r_c)

    Bradley and Terry (1952); as a reward model's loss, Ouyang et al., "Training language
    models to follow instructions" (2022), eq. 1, where p is always 1.

    Args:
        chosen_rewards, rejected_rewards: the model's scalars.
        probabilities: p, the label: 1.0 when the choice is certain.
    """
    margins = chosen_rewards - rejected_rewards
    return -probabilities * logsigmoid(margins) - (1 - probabilities) * logsigmoid(-margins)
