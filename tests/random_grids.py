"""Random micro-batches for property tests, as grids of numbers: no model, no tokens."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from tiny_rollouts import OPTIM

from stages.loops.method import GroupRlConfig, Method, Settings
from stages.loops.rl import Coefs, Minibatch, TokenGrids, policy_loss
from stages.models.policy import TokenLogprobs

GRADED = ("logprobs", "entropies")
FILLERS = (0.0, 1e30, math.nan, math.inf, -math.inf)
SIZES = GroupRlConfig(
    num_steps=3, prompts_per_step=16, group_size=2, temperature=1.0, max_new_tokens=9,
    num_checkpoints=0, optim=OPTIM,
)  # fmt: skip


def examples(number: int) -> settings:
    """The same examples at every run, as many as asked for, however slow the machine."""
    return settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=number,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


@dataclass(frozen=True)
class Grids:
    """All completions of an optimizer step; what the mask leaves out is not specified."""

    values: dict[str, torch.Tensor]
    mask: torch.Tensor
    correct: torch.Tensor

    def counts(self) -> Minibatch:
        """Of all completions, as those of one optimizer step."""
        return Minibatch(
            batches=[],
            num_tokens=int(self.mask.sum()),
            num_sequences=len(self.mask),
            num_right_tokens=int(self.mask[self.correct].sum()),
        )

    def filled(self, *fillers: float) -> "Grids":
        """With other numbers where the mask is False: one for all grids, or one for each."""
        filler = dict(zip(self.values, itertools.cycle(fillers), strict=False))
        values = {name: torch.where(self.mask, v, filler[name]) for name, v in self.values.items()}
        return Grids(values, self.mask, self.correct)

    def to(self, dtype: torch.dtype) -> "Grids":
        return Grids({k: v.to(dtype) for k, v in self.values.items()}, self.mask, self.correct)


@st.composite
def grids(draw, *, drifts=(0.0, 0.05, 0.5, 3.0), max_rows=5) -> Grids:
    """Completions of 0 to 7 tokens, padded on either side, policies a drawn distance apart."""
    lengths = torch.tensor(draw(st.lists(st.integers(0, 7), min_size=1, max_size=max_rows)))
    width = max(1, int(lengths.max()))
    mask = torch.arange(width) < lengths[:, None]
    if draw(st.booleans()):
        mask = mask.flip(1)
    drift = draw(st.sampled_from(drifts))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))

    def normal() -> torch.Tensor:
        return torch.randn(mask.shape, generator=generator, dtype=torch.float64)

    logprobs = -normal().exp() - 0.01
    values = {
        "logprobs": logprobs,
        "old": logprobs + drift * normal(),
        "ref": logprobs + drift * normal(),
        "sampler": logprobs + 0.3 * drift * normal(),
        "advantages": normal() * torch.randint(0, 2, (len(mask), 1), generator=generator),
        "entropies": normal().abs(),
    }
    return Grids(values, mask, torch.rand(len(mask), generator=generator) < 0.5)


def split(draw, num_rows: int) -> list[list[int]]:
    """The rows in random order, cut at random places."""
    order = draw(st.permutations(range(num_rows)), label="order")
    cuts = draw(st.sets(st.integers(1, num_rows)), label="cuts") | {num_rows}
    ends = [0, *sorted(cuts)]
    return [list(order[a:b]) for a, b in itertools.pairwise(ends)]


def step(
    grids: Grids,
    method: Method,
    parts: Sequence[Sequence[int]],
    *,
    left: int = 0,
    right: int = 0,
    filler: float = math.nan,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss of a step in these micro-batches, and its gradient by every grid that has one.

    Each micro-batch keeps only the columns it needs, and `left` and `right` more.
    """
    leaves = {name: grids.values[name].clone().requires_grad_() for name in GRADED}
    total = torch.zeros((), dtype=grids.values["logprobs"].dtype)
    settings = Settings(config=SIZES, method=method, seed=0)
    for part in parts:
        rows = list(part)
        mask = grids.mask[rows]
        needed = mask.any(0)

        def pad(grid: torch.Tensor, value: float, rows=rows, needed=needed) -> torch.Tensor:
            return torch.nn.functional.pad(grid[rows][:, needed], (left, right), value=value)

        padded = {name: pad(leaves.get(name, grids.values[name]), filler) for name in grids.values}
        counted = torch.nn.functional.pad(mask[:, needed], (left, right))
        loss, is_clipped = policy_loss(
            TokenLogprobs(logprobs=padded["logprobs"], entropies=padded["entropies"]),
            padded["old"],
            TokenGrids(
                ref_logprobs=padded["ref"],
                sampler_logprobs=padded["sampler"],
                advantages=padded["advantages"],
                right=counted & grids.correct[rows][:, None],
            ),
            counted,
            grids.counts(),
            settings,
            Coefs(kl=0.3, old_kl=0.7),
        )
        assert not is_clipped[~counted].any()
        if loss.requires_grad:
            loss.backward()
        total = total + loss.detach()
    gradients = {
        name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        for name, leaf in leaves.items()
    }
    return total, gradients


def assert_close(found, expected, tolerance: float) -> None:
    """Loss and gradients, each to `tolerance` of the largest number of its kind."""
    losses, gradients = zip(found, expected, strict=True)
    scale = max(1.0, abs(float(losses[1])))
    assert abs(float(losses[0]) - float(losses[1])) <= tolerance * scale
    largest = max(1e-6, *(float(g.abs().max()) for g in gradients[1].values()))
    for name, gradient in gradients[1].items():
        difference = (gradients[0][name] - gradient).abs().max()
        assert difference <= tolerance * largest, (name, gradients[0][name], gradient)
