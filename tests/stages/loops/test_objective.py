"""The loss of a policy's optimizer step and its gradient are those of the formulas, in any layout.

For every preset, every value of every choice and random combinations of them: `rl.policy_loss` on
grids against `rl_by_hand` on lists, with policies at a distance, in random micro-batches, order
and padding, whatever stands outside of the completions.
"""

import itertools
import math
import random
import zlib
from typing import Any, get_args

import presets
import pytest
import rl_by_hand
import torch
from tiny_rollouts import OPTIM

from stages.loops import rl
from stages.loops.method import HYPERPARAMETERS, GroupRlConfig, Method, Settings
from stages.loops.rl import Coefs, Minibatch, TokenGrids
from stages.models.policy import TokenLogprobs

LIMITS = {"clip_low": 0.2, "clip_high": 0.28}
CHOICES: dict[str, list[dict[str, Any]]] = {
    "surrogate": [
        {"surrogate": "clip", **LIMITS},
        {"surrogate": "dual_clip", **LIMITS, "dual_clip_cap": 2.0},
        {"surrogate": "sequence_ratio", **LIMITS, "normalise_ratio": True},
        {"surrogate": "sequence_ratio", **LIMITS, "normalise_ratio": False},
        {"surrogate": "cispo", "max_ratio": 1.5},
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
        {"correction": "token_masked", "correction_low": 0.8, "correction_high": 1.3},
        {"correction": "sequence_truncated", "correction_cap": 1.5},
        {"correction": "sequence_masked", "correction_low": 0.5, "correction_high": 2.0},
    ],
}
"""Choice of the objective -> each of its values, with numbers. A new value is a row."""
NAMES = ("logprobs", "old", "sampler", "ref", "advantages", "entropies")
FILLERS = (0.0, 1e30, math.nan, math.inf, -math.inf)
COEFS, LENGTH = Coefs(kl=0.3, old_kl=0.7), 9
SIZES = GroupRlConfig(
    num_steps=3, prompts_per_step=16, group_size=2, temperature=1.0, max_new_tokens=LENGTH,
    num_checkpoints=0, optim=OPTIM,
)  # fmt: skip


def choose(*rows: dict[str, Any], **changes: Any) -> Method:
    merged = {key: value for row in rows for key, value in row.items()}
    return Method(**{"correction": "none"} | merged | changes)


def test_every_value_of_every_choice_of_the_objective_is_a_row():
    for choice, rows in CHOICES.items():
        values = set(get_args(Method.model_fields[choice].annotation))
        assert {row[choice] for row in rows} == values - {"auto"}
    elsewhere = {"advantage", "truncation"}  # test_advantages, test_rl
    assert HYPERPARAMETERS.keys() <= CHOICES.keys() | elsewhere


class Step:
    """Completions of 0 to 7 tokens, and policies at `drift` from each other."""

    def __init__(self, seed: int, drift: float = 0.5, dtype: torch.dtype = torch.float64) -> None:
        chance, generator = random.Random(seed), torch.Generator().manual_seed(seed)
        self.lengths = [chance.randint(0, 7) for _ in range(chance.randint(1, 5))]
        self.right = [chance.random() < 0.5 for _ in self.lengths]

        def normal(length: int) -> torch.Tensor:
            return torch.randn(length, generator=generator, dtype=torch.float64)

        self.rows = []
        for length in self.lengths:
            logprobs = -normal(length).exp() - 0.01
            others = [logprobs + scale * drift * normal(length) for scale in (1.0, 0.3, 1.0)]
            numbers = [logprobs, *others, normal(length) * chance.randint(0, 1)]
            numbers.append(normal(length).abs())
            self.rows.append({name: x.to(dtype) for name, x in zip(NAMES, numbers, strict=True)})
        self.counts = Minibatch(
            batches=[],
            num_tokens=sum(self.lengths),
            num_sequences=len(self.lengths),
            num_right_tokens=sum(n for n, r in zip(self.lengths, self.right, strict=True) if r),
        )

    def leaves(self) -> list[dict[str, torch.Tensor]]:
        """Copies, of which log-probs and entropies take a gradient."""
        graded = ("logprobs", "entropies")
        return [
            {name: x.clone().requires_grad_(name in graded) for name, x in row.items()}
            for row in self.rows
        ]

    def in_grids(self, method: Method, seed: int | None = None):
        """Loss, gradients and clipped tokens by the loop's own function.

        With a seed: in random micro-batches, with random columns and numbers around completions.
        """
        chance, leaves = random.Random(seed), self.leaves()
        order = list(range(len(leaves)))
        parts = [order]
        if seed is not None:
            chance.shuffle(order)
            cuts = sorted({0, len(order), *(chance.randint(0, len(order)) for _ in range(2))})
            parts = [order[a:b] for a, b in itertools.pairwise(cuts)]
        losses, clipped = [], 0
        for part in parts:
            before, after, filler = (0, 0, 0.0)
            if seed is not None:
                before, after = chance.randint(0, 3), chance.randint(0, 3)
                filler = chance.choice(FILLERS)
            width = before + max(1, *(self.lengths[i] for i in part)) + after

            def pad(x, before=before, width=width, filler=filler):
                right = width - before - len(x)
                return torch.nn.functional.pad(x, (before, right), value=filler)

            grids = {name: torch.stack([pad(leaves[i][name]) for i in part]) for name in NAMES}
            ones = [torch.ones(self.lengths[i]) for i in part]
            mask = torch.stack([pad(x, filler=0.0) for x in ones]) > 0
            right = torch.tensor([self.right[i] for i in part])[:, None]
            loss, is_clipped = rl.policy_loss(
                TokenLogprobs(logprobs=grids["logprobs"], entropies=grids["entropies"]),
                grids["old"],
                TokenGrids(
                    ref_logprobs=grids["ref"], sampler_logprobs=grids["sampler"],
                    advantages=grids["advantages"], right=mask & right,
                ),
                mask,
                self.counts,
                Settings(config=SIZES, method=method, seed=0),
                COEFS,
            )  # fmt: skip
            assert not is_clipped[~mask].any()
            losses.append(loss)
            clipped += int(is_clipped.sum())
        return _differentiate(sum(losses), leaves), clipped

    def by_hand(self, method: Method):
        leaves = self.leaves()
        rows = [
            rl_by_hand.Completion(
                new=list(row["logprobs"]), old=row["old"], sampler=row["sampler"], ref=row["ref"],
                entropies=list(row["entropies"]), advantages=row["advantages"], right=right,
            )
            for row, right in zip(leaves, self.right, strict=True)
        ]  # fmt: skip
        loss, clipped = rl_by_hand.policy_loss(
            rows, method, kl=COEFS.kl, old_kl=COEFS.old_kl, length=LENGTH
        )
        return _differentiate(loss, leaves), sum(clipped)


def _differentiate(loss, leaves):
    inputs = [row[name] for row in leaves for name in ("logprobs", "entropies")]
    gradients = [torch.zeros_like(x) for x in inputs]
    if loss.requires_grad:
        parts = torch.autograd.grad(loss, inputs, allow_unused=True)
        gradients = [zero if g is None else g for g, zero in zip(parts, gradients, strict=True)]
    return torch.cat([loss.detach().reshape(1), *gradients])


def assert_same(actual, expected, tolerance=1e-11):
    """Loss and gradients, to a share of the largest."""
    assert actual.isfinite().all()
    assert (actual - expected).abs().max() <= tolerance * max(1.0, float(expected.abs().max()))


RL = (*presets.GROUP_RL, *presets.DISTILLATION, *presets.PPO)
ONE_CHOICE = [
    (f"{choice}: {' '.join(map(str, row.values()))}", choose(row))
    for choice, rows in CHOICES.items()
    for row in rows
]
TERMS = [("entropy", choose(entropy_coef=0.1)), ("likelihood", choose(positive_nll_coef=0.2))]
METHODS = dict([*((name, presets.method(name)) for name in RL), *ONE_CHOICE, *TERMS])


def check(method, seed, drift):
    step = Step(seed, drift)
    expected, num_clipped = step.by_hand(method)
    for layout in (None, seed):
        actual, clipped = step.in_grids(method, layout)
        assert_same(actual, expected)
        assert clipped == num_clipped
    return num_clipped


@pytest.mark.parametrize("name", METHODS)
def test_loss_gradient_and_clipped_tokens_are_those_of_the_formulas(name):
    first = zlib.crc32(name.encode()) % 1000
    for seed, drift in ((first, 0.05), (first + 1, 0.5), (first + 2, 3.0)):
        check(METHODS[name], seed, drift)


def test_so_are_those_of_random_combinations_of_choices():
    chance, clipped = random.Random(0), 0
    for seed in range(60):
        rows = [chance.choice(rows) for rows in CHOICES.values()]
        terms = {"entropy_coef": chance.choice([0.0, 0.1])}
        terms["positive_nll_coef"] = chance.choice([0.0, 0.2])
        clipped += check(choose(*rows, **terms), seed, chance.choice([0.0, 0.2, 1.0]))
    assert clipped > 20


@pytest.mark.parametrize(
    ("names", "jump"),
    [
        (("logprobs", "old", "ref", "sampler"), -1e4),
        (("old",), -math.inf),
        (("sampler",), -math.inf),
    ],
    ids=["log-ratios of 10,000", "excluded by the old policy", "excluded by the sampler"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_log_prob_that_can_occur_gives_nan(names, jump, dtype):
    chance = random.Random(1)
    for seed in range(25):
        step = Step(seed, dtype=dtype)
        for row in step.rows:
            for name in names:
                jumps = [chance.choice([0.0, jump]) for _ in row[name]]
                row[name] = row[name] + torch.tensor(jumps, dtype=dtype)
        method = choose(*(chance.choice(rows) for rows in CHOICES.values()), entropy_coef=0.1)
        assert step.in_grids(method, seed)[0].isfinite().all()


@pytest.mark.parametrize("row", CHOICES["kl"][2:], ids=str)
def test_a_divergence_of_a_long_completion_in_float32_is_that_in_float64(row):
    generator = torch.Generator().manual_seed(0)
    logprobs = -torch.rand(1, 2000, generator=generator, dtype=torch.float64)
    noise = 1e-3 * torch.randn(2, 1, 2000, generator=generator, dtype=torch.float64)
    narrow = [values.float() for values in (logprobs, *(logprobs + noise))]
    mask, method = torch.ones(1, 2000, dtype=torch.bool), choose(row)
    expected = rl.kl_losses(*(values.double() for values in narrow), mask, method)
    actual = rl.kl_losses(*narrow, mask, method).double()
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-7)
