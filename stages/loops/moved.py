"""How far a rollout batch's updates moved the policy."""

from collections.abc import Sequence

from transformers import PreTrainedModel

from stages.algorithms import kl
from stages.algorithms.aggregation import masked_sum
from stages.loops.objective import Part
from stages.loops.old_logprobs import frozen_logprobs


def old_kl(
    policy: PreTrainedModel, minibatches: Sequence[Sequence[Part]], *, temperature: float
) -> float:
    """KL(old || policy) a token, after the last update, on the tokens learned from.

    Estimated without bias under the old policy, which drew them: exp(d) - 1 - d with
    d = log policy - log old. What the coefficient `old_kl` follows (Schulman et al. 2017,
    section 4, measure it after the updates too). One forward pass more.
    """
    parts = [part for minibatch in minibatches for part in minibatch]
    news = frozen_logprobs(policy, [part.batch for part in parts], temperature=temperature)
    total, num_tokens = 0.0, 0
    for part, new in zip(parts, news, strict=True):
        assert part.old_logprobs is not None, "the old log-probs were not kept"
        total += masked_sum(kl.k3(part.old_logprobs, new), part.batch.mask).item()
        num_tokens += int(part.batch.mask.sum())
    return total / max(1, num_tokens)
