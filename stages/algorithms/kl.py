"""The divergence KL(policy || reference): estimators from sampled tokens, and a penalty's weight.

A token x is drawn from the policy, and log_ratio = log policy(x) - log reference(x).
Schulman, "Approximating KL Divergence" (2020), http://joschu.net/blog/kl-approx.html

An estimator in the loss is differentiated at fixed tokens x. The derivative of the probability of
drawing x is missing, so the estimator's expected gradient need not be the gradient of the
divergence that it estimates. Each docstring says what that expected gradient is, on policy.
The gradient of KL(policy || reference) comes from `k1` as a cost in the *reward*, from `k2` in the
loss, or from `k1` or `k3` with `importance_corrected`. Tang and Munos, "On a few pitfalls in KL
divergence gradient estimation for RL" (2025), https://arxiv.org/abs/2506.09477

The weight of a penalty is adjusted so that the measured divergence meets a target:
`adaptive_coef`, `doubling_coef`.
"""

import torch

from stages.algorithms.aggregation import Tokens

# exp(20) is 5e8: beyond it a single token's estimate would dominate a step, or overflow.
MAX_LOG_RATIO = 20.0


def k1(logprobs: Tokens, ref_logprobs: Tokens) -> Tokens:
    """log_ratio: unbiased, can be negative, high variance.

    In the loss its mean gradient is 0, as E[grad log policy(x)] is: noise, but no penalty. As a
    cost in the reward it gives the gradient of KL(policy || reference).
    """
    return logprobs - ref_logprobs.detach()


def k2(logprobs: Tokens, ref_logprobs: Tokens) -> Tokens:
    """log_ratio^2 / 2: biased, never negative.

    In the loss its mean gradient is that of KL(policy || reference).
    """
    return 0.5 * (logprobs - ref_logprobs.detach()) ** 2


def k3(logprobs: Tokens, ref_logprobs: Tokens) -> Tokens:
    """exp(-log_ratio) - 1 + log_ratio: unbiased, never negative.

    In the loss (Shao et al., "DeepSeekMath" (2024), eq. 4, https://arxiv.org/abs/2402.03300)
    its mean gradient is not that of KL(policy || reference) but of KL(reference || policy).
    Departure: -log_ratio is capped at 20 so that one token cannot overflow.
    """
    negative = torch.clamp(ref_logprobs.detach() - logprobs, max=MAX_LOG_RATIO)
    return torch.exp(negative) - 1 - negative


def importance_corrected(estimate: Tokens, logprobs: Tokens, sampler_logprobs: Tokens) -> Tokens:
    """exp(logprobs - sampler_logprobs) x estimate, with gradient through the first two.

    Its mean over tokens drawn from the sampling policy is the mean of `estimate` under the policy
    being trained, for any such policy, so its mean gradient is the gradient of that mean: with `k1`
    or `k3`, exactly that of KL(policy || reference), on policy and off. With `k2` it is that of E
    log_ratio^2 / 2, which is not a divergence. DeepSeek-AI, "DeepSeek-V3.2" (2025), section 3.1,
    https://arxiv.org/abs/2512.02556; TRL's `use_bias_correction_kl`. Departure: the log-ratio is
    capped at 20, beyond which it has no gradient.
    """
    log_ratio = torch.clamp(logprobs - sampler_logprobs.detach(), max=MAX_LOG_RATIO)
    return torch.exp(log_ratio) * estimate


MAX_ERROR = 0.2
"""Limit of the relative error in `adaptive_coef`."""


def adaptive_coef(
    coef: float, measured: float, *, target: float, num_samples: int, horizon: int
) -> float:
    """KL coefficient of the next step, by a proportional controller in log space.

        error = clip((measured - target) / target, -0.2, 0.2)
        coef' = coef (1 + error num_samples / horizon)

    Ziegler et al., "Fine-Tuning Language Models from Human Preferences" (2019), section
    2.2, https://arxiv.org/abs/1909.08593, with K_beta = num_samples / horizon as in its
    code (target 6, horizon 10,000). `measured` is KL(policy || reference) per completion, in nats,
    averaged over the step, and `num_samples` counts completions since the last adjustment. An error
    of 0.2 that lasts for `horizon` completions multiplies the coefficient by about exp(0.2).
    """
    if not 0 <= num_samples * MAX_ERROR < horizon:
        raise ValueError(
            f"expected a horizon above {MAX_ERROR} x {num_samples} samples, found {horizon}: "
            "one step could make the coefficient 0 or negative; raise kl_horizon, or set "
            "kl_target to null"
        )
    error = min(max(measured / target - 1, -MAX_ERROR), MAX_ERROR)
    return coef * (1 + error * num_samples / horizon)


def doubling_coef(coef: float, measured: float, *, target: float) -> float:
    """KL coefficient of the next step: halved below target / 1.5, doubled above 1.5 target.

    Schulman et al., "Proximal Policy Optimization Algorithms" (2017), section 4,
    https://arxiv.org/abs/1707.06347. `measured` is KL(old || new) per token, averaged over the
    step.
    """
    if measured < target / 1.5:
        return coef / 2
    return coef * 2 if measured > target * 1.5 else coef
