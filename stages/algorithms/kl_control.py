"""The weight of a KL penalty, adjusted so that the measured divergence meets a target."""

import math

MAX_ERROR = 0.2


def adaptive_coef(
    coef: float, measured: float, *, target: float, num_samples: int, horizon: int
) -> float:
    """A proportional controller in log space.

        error = (measured - target) / target, within [-0.2, 0.2]
        coef' = coef (1 + error num_samples / horizon)

    Ziegler et al., "Fine-Tuning Language Models from Human Preferences" (2019), section
    2.2, https://arxiv.org/abs/1909.08593, with K_beta = num_samples / horizon as in its
    code (target 6, horizon 10,000).

    Args:
        coef: the weight so far.
        measured: KL(policy || reference) a completion, in nats, averaged over the step.
        target: the divergence wanted.
        num_samples: completions since the last adjustment.
        horizon: completions over which an error is made good.

    Raises:
        ValueError: a target or horizon that is not positive, a step so long that the
            weight could change sign, a `measured` that is NaN.
    """
    _check(measured, target)
    if not 0 <= num_samples * MAX_ERROR < horizon:
        raise ValueError(
            f"expected a horizon above {MAX_ERROR} x {num_samples} samples, found {horizon}: "
            "one step could make the coefficient 0 or negative; raise the horizon"
        )
    error = min(max(measured / target - 1, -MAX_ERROR), MAX_ERROR)
    return coef * (1 + error * num_samples / horizon)


def doubling_coef(coef: float, measured: float, *, target: float) -> float:
    """Half of `coef` if measured < target / 1.5, double if measured > 1.5 target.

    Schulman et al., "Proximal Policy Optimization Algorithms" (2017), section 4,
    https://arxiv.org/abs/1707.06347

    Args:
        coef: the weight so far.
        measured: KL(old || new) a token, averaged over the step.
        target: the divergence wanted.

    Raises:
        ValueError: a target that is not positive, a `measured` that is NaN.
    """
    _check(measured, target)
    if measured < target / 1.5:
        return coef / 2
    return coef * 2 if measured > target * 1.5 else coef


def _check(measured: float, target: float) -> None:
    if not target > 0:
        raise ValueError(
            f"expected a KL target above 0, found {target}: for no penalty, set its weight to 0"
        )
    if math.isnan(measured):
        raise ValueError(
            "expected a measured KL, found NaN: the log-probabilities of this step are "
            "not finite; look there first"
        )
