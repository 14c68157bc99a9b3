"""The Bradley-Terry likelihood of preferences."""

from jaxtyping import Float
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
