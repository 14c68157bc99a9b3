"""The formulas of reinforcement learning in plain numbers: a completion at a time, no grid.

Numbers are scalars of torch in float64, so that what has a gradient is differentiated by torch.
Every choice of `Method` has its formula here, so a new preset needs none, and a new choice one.
"""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from stages.loops.method import Method

LIMITS = {"clip_low": 0.02, "clip_high": 0.03}
CHOICES: dict[str, list[dict[str, Any]]] = {
    "surrogate": [
        {"surrogate": "clip", **LIMITS},
        {"surrogate": "dual_clip", **LIMITS, "dual_clip_cap": 1.01},
        {"surrogate": "sequence_ratio", **LIMITS, "normalise_ratio": True},
        {"surrogate": "sequence_ratio", **LIMITS, "normalise_ratio": False},
        {"surrogate": "cispo", "max_ratio": 1.01},
        {"surrogate": "reinforce"},
        {"surrogate": "kl_penalty"},
    ],
    "aggregation": [
        {"aggregation": kind}
        for kind in ("sequence_mean", "token_mean", "fixed_length", "sequence_sum")
    ],
    "kl": [
        {"kl": "none"},
        {"kl": "reward", "kl_estimator": "k1"},
        *(
            {"kl": "loss", "kl_estimator": kind, "kl_level": level, "kl_corrected": corrected}
            for kind in ("k1", "k2", "k3")
            for level in ("token", "sequence")
            for corrected in (False, True)
        ),
    ],
    "correction": [
        {"correction": "none"},
        {"correction": "token_truncated", "correction_cap": 1.1},
        {"correction": "token_masked", "correction_low": 0.9, "correction_high": 1.2},
        {"correction": "sequence_truncated", "correction_cap": 1.2},
        {"correction": "sequence_masked", "correction_low": 0.7, "correction_high": 1.5},
    ],
}
"""Choice of the objective -> each of its values, with numbers. A new value is a row."""
Numbers = Any
"""A number for each token: floats, or scalars with a gradient."""


@dataclass
class Completion:
    """What an optimizer step needs of a completion; a list has a number for each token."""

    new: Numbers
    old: Numbers
    sampler: Numbers
    ref: Numbers
    entropies: Numbers
    advantages: Numbers
    right: bool = False
    counts: bool = True
    """Whether its tokens are in the loss; it is a completion of the mini-batch in any case."""


def cap(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(max=20)


def log_ratios(a: Numbers, b: Numbers) -> list[Tensor]:
    return [cap(x - y) for x, y in zip(a, b, strict=True)]


def surrogate(row: Completion, method: Method, beta: float) -> list[tuple[Tensor, bool]]:
    """Loss of each token, and whether it is clipped."""
    logs = log_ratios(row.new, row.old)
    if method.surrogate == "sequence_ratio":
        total = sum(logs) / (len(logs) if method.normalise_ratio else 1)
        logs = [cap(total)] * len(logs)
    result = []
    for log, new, a in zip(logs, row.new, row.advantages, strict=True):
        ratio = log.exp()
        bounded = ratio.clamp(1 - method.clip_low, 1 + method.clip_high)
        clipped = (torch.maximum(-ratio * a, -bounded * a), bool(bounded * a < ratio * a))
        match method.surrogate:
            case "clip" | "sequence_ratio":
                result.append(clipped)
            case "dual_clip" if a < 0 and clipped[0] > -method.dual_clip_cap * a:
                result.append((0 * ratio - method.dual_clip_cap * a, True))
            case "dual_clip":
                result.append(clipped)
            case "cispo":
                weight = ratio.detach().clamp(max=method.max_ratio)
                result.append((-weight * a * new, bool(ratio > method.max_ratio)))
            case "reinforce":
                result.append((-a * new, False))
            case "kl_penalty":
                result.append((-ratio * a + beta * (ratio - 1 - log), False))
    return result


def corrections(row: Completion, method: Method) -> list[Tensor]:
    """Weights old / sampler of the tokens: the probability that should have drawn them over that
    which did."""
    weights = [w.exp() for w in log_ratios(row.old, row.sampler)]
    if method.correction == "none":
        return [torch.ones_like(weight) for weight in weights]
    if method.correction.startswith("sequence"):
        weights = [cap(sum(log_ratios(row.old, row.sampler))).exp()] * len(weights)
    if method.correction.endswith("truncated"):
        return [weight.clamp(max=method.correction_cap) for weight in weights]
    low, high = method.correction_low, method.correction_high
    return [weight if low <= weight <= high else 0 * weight for weight in weights]


def k(kind: str, log_ratio: Tensor) -> Tensor:
    """Estimates of KL(p || q) at a token drawn from p, by log p - log q."""
    return {
        "k1": log_ratio, "k2": log_ratio**2 / 2, "k3": (-log_ratio).exp() - 1 + log_ratio
    }[kind]  # fmt: skip


def kl_terms(row: Completion, method: Method) -> list[Tensor]:
    to_ref = [n - r for n, r in zip(row.new, row.ref, strict=True)]
    to_sampler = [n - s for n, s in zip(row.new, row.sampler, strict=True)]
    if method.kl_level == "sequence":
        to_ref, to_sampler = ([sum(logs)] * len(logs) for logs in (to_ref, to_sampler))
    terms = [k(method.kl_estimator, log) for log in to_ref]
    if method.kl_corrected:
        terms = [cap(s).exp() * term for s, term in zip(to_sampler, terms, strict=True)]
    return terms


def policy_loss(
    rows: list[Completion], method: Method, *, kl: float, old_kl: float, length: int
) -> tuple[Tensor, list[bool]]:
    """Loss of an optimizer step on these completions; of each counted token, if it is clipped."""
    means, clipped, likelihoods = [], [], []
    counted = [row for row in rows if row.counts and len(row.new)]
    num_tokens = max(1, sum(len(row.new) for row in counted))
    for row in counted:
        terms = surrogate(row, method, old_kl)
        clipped += [is_clipped for _, is_clipped in terms]
        losses = [w * loss for w, (loss, _) in zip(corrections(row, method), terms, strict=True)]
        if method.kl == "loss":
            losses = [x + kl * y for x, y in zip(losses, kl_terms(row, method), strict=True)]
        if method.entropy_coef:
            pairs = zip(losses, row.entropies, strict=True)
            losses = [x - method.entropy_coef * entropy for x, entropy in pairs]
        divisor = {
            "sequence_mean": len(rows) * max(1, len(losses)), "token_mean": num_tokens,
            "fixed_length": len(rows) * length, "sequence_sum": len(rows),
        }[method.aggregation]  # fmt: skip
        means += [x / divisor for x in losses]
        likelihoods += row.new if row.right else []
    loss = sum(means, torch.zeros((), dtype=torch.float64))
    if method.positive_nll_coef and likelihoods:
        loss = loss - method.positive_nll_coef * sum(likelihoods) / len(likelihoods)
    return loss, clipped


@dataclass
class Rewarded:
    """A completion with its reward; a list has a number for each token."""

    group: Any
    total: float
    penalties: list[float]
    steps: dict[int, float] = field(default_factory=dict)
    """Token at which a step ends -> the reward of the step."""
    counted: bool = True
    greedy: float = 0.0
    values: list[float] = field(default_factory=list)
    teacher: list[float] = field(default_factory=list)
    """log teacher - log policy."""

    @property
    def reward(self) -> float:
        return self.total + sum(self.steps.values()) - sum(self.penalties)

    def paid(self) -> list[float]:
        """What each token is paid: its step's reward, the completion's at the end, its penalty."""
        paid = [-penalty for penalty in self.penalties]
        for place, reward in self.steps.items():
            paid[place] += reward
        paid[-1] += self.total
        return paid


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def variance(numbers: list[float], ddof: int = 0) -> float:
    if len(numbers) <= ddof:
        return 0.0
    return sum((x - mean(numbers)) ** 2 for x in numbers) / (len(numbers) - ddof)


def discounted(numbers: list[float], decay: float) -> list[float]:
    """Of each place the sum of all that follows, each times decay for each step between."""
    return [
        sum(decay**later * x for later, x in enumerate(numbers[place:]))
        for place in range(len(numbers))
    ]


def gae(row: Rewarded, gamma: float, lam: float) -> list[float]:
    after = [*row.values[1:], 0.0]
    residuals = [
        paid + gamma * v - before
        for paid, v, before in zip(row.paid(), after, row.values, strict=True)
    ]
    return discounted(residuals, gamma * lam)


def value_targets(row: Rewarded, method: Method) -> list[float]:
    advantages = gae(row, method.gamma, method.value_lam)
    return [a + v for a, v in zip(advantages, row.values, strict=True)]


def whitened(rows: list[list[float]], eps: float) -> list[list[float]]:
    every = [x for row in rows for x in row]
    if not every or max(every) == min(every):
        return [[0.0] * len(row) for row in rows]
    return [[(x - mean(every)) / (variance(every) + eps) ** 0.5 for x in row] for row in rows]


def zscores(numbers: list[float], method: Method) -> list[float]:
    if len(set(numbers)) < 2:
        return [0.0] * len(numbers)
    scale = variance(numbers, method.ddof) ** 0.5 + method.eps
    return [(x - mean(numbers)) / scale for x in numbers]


def group_advantages(members: list[Rewarded], method: Method, batch: list[float]) -> list[float]:
    """One advantage of each completion of a prompt; `batch`: rewards of all prompts."""
    rewards = [row.reward for row in members]
    if method.advantage == "greedy_baseline":
        return [row.reward - row.greedy for row in members]
    if len(set(rewards)) < 2:
        return [0.0] * len(rewards)
    match method.advantage:
        case "group_zscore":
            return zscores(rewards, method)
        case "group_centred":
            return [r - mean(rewards) for r in rewards]
        case "mean_normalised":
            return [(r - mean(rewards)) / (mean(rewards) + method.eps) for r in rewards]
        case "batch_std":
            scale = variance(batch, method.ddof) ** 0.5 + method.eps
            return [(r - mean(rewards)) / scale for r in rewards]
        case "leave_one_out":
            return [r - (sum(rewards) - r) / (len(rewards) - 1) for r in rewards]
        case other:
            raise AssertionError(f"no formula of {other}")


def step_advantages(members: list[Rewarded], method: Method) -> list[list[float]]:
    """Of each token the normalised rewards of the steps that end there or later, and the outcome's.

    The penalties belong to the outcome.
    """
    each = [reward for row in members for _, reward in sorted(row.steps.items())]
    scores = iter(zscores(each, method))
    outcomes = zscores([row.total - sum(row.penalties) for row in members], method)
    result = []
    for row, outcome in zip(members, outcomes, strict=True):
        at = dict(zip(sorted(row.steps), scores, strict=False))
        steps = discounted([at.get(t, 0.0) for t in range(len(row.penalties))], 1.0)
        result.append([method.step_weight * step + outcome for step in steps])
    return result


def advantages(rows: list[Rewarded], method: Method) -> list[list[float]]:
    """Of each token. What is not counted is in no baseline and has advantage 0."""
    used = [row for row in rows if row.counted]
    match method.advantage:
        case "gae":
            lams = [
                method.lam
                if method.lam_alpha is None
                else min(1.0, max(0.0, 1 - 1 / (method.lam_alpha * len(row.values))))
                for row in used
            ]
            each = [gae(row, method.gamma, lam) for row, lam in zip(used, lams, strict=True)]
            each = each if method.whiten_eps is None else whitened(each, method.whiten_eps)
        case "batch_whitened":
            to_go = [discounted(row.paid(), method.gamma) for row in used]
            each = whitened(to_go, method.whiten_eps)
        case _:
            members = defaultdict(list)
            for place, row in enumerate(used):
                members[row.group].append(place)
            each = [[]] * len(used)
            batch = [row.reward for row in used]
            for places in members.values():
                group = [used[place] for place in places]
                for place, values in zip(places, _of_group(group, method, batch), strict=True):
                    each[place] = values
    remaining = iter(each)
    return [next(remaining) if row.counted else [0.0] * len(row.penalties) for row in rows]


def _of_group(members: list[Rewarded], method: Method, batch: list[float]) -> list[list[float]]:
    if method.advantage == "step_zscore":
        return step_advantages(members, method)
    if method.advantage == "teacher":
        unpunished = [replace(row, penalties=[0.0]) for row in members]
        centred = [row.reward - mean([other.reward for other in unpunished]) for row in unpunished]
        return [
            [x - p + method.reward_coef * c for x, p in zip(r.teacher, r.penalties, strict=True)]
            for r, c in zip(members, centred, strict=True)
        ]
    single = group_advantages(members, method, batch)
    return [[a] * len(row.penalties) for a, row in zip(single, members, strict=True)]


def value_loss(values: Numbers, old: Numbers, targets: Numbers, clip: float | None) -> Tensor:
    """Sum over the tokens of a completion."""
    bounded = [
        v if clip is None else o + (v - o).clamp(-clip, clip)
        for v, o in zip(values, old, strict=True)
    ]
    pairs = zip(values, bounded, targets, strict=True)
    return sum(torch.maximum((v - r) ** 2, (b - r) ** 2) / 2 for v, b, r in pairs)


def explained_variance(targets: list[float], values: list[float]) -> float:
    rest = [r - v for r, v in zip(targets, values, strict=True)]
    return 1 - variance(rest) / variance(targets)
