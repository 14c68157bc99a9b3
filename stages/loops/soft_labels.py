"""Any loss of preference pairs, on labels that are probabilities."""

import torch
from jaxtyping import Float
from torch import Tensor

from stages.loops.choices.pair_logprobs import PairLogprobs
from stages.loops.choices.preference_loss import PairLoss, PairLosses


def expected_loss(
    loss: PairLoss, pairs: PairLogprobs, probabilities: Float[Tensor, " pair"]
) -> PairLosses:
    """The loss that the label leads one to expect, and the margins of the pairs as they stand.

        p loss(chosen, rejected) + (1 - p) loss(rejected, chosen)

    With DPO's loss this is conservative DPO with a label smoothing of its own, 1 - p, for each
    pair (Mitchell, "A note on DPO with noisy preferences", 2023). A sure pair, p = 1, costs
    and counts exactly what `loss` says.

    Args:
        loss: of sure pairs.
        pairs: log-probabilities; they get the gradient.
        probabilities: p, that `chosen` is the better one.
    """
    losses, margins = loss(pairs)
    if bool((probabilities == 1).all()):
        return losses, margins
    turned, _ = loss(
        PairLogprobs(
            chosen=pairs.rejected,
            rejected=pairs.chosen,
            chosen_ref=pairs.rejected_ref,
            rejected_ref=pairs.chosen_ref,
            chosen_lengths=pairs.rejected_lengths,
            rejected_lengths=pairs.chosen_lengths,
        )
    )
    # A loss that is infinite the wrong way round must not turn a sure pair's into NaN.
    mixed = probabilities * losses + (1 - probabilities) * turned
    return torch.where(probabilities == 1, losses, mixed), margins
