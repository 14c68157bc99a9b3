"""Random completions of random prompts, as a loop has sampled them."""

from dataclasses import dataclass

import torch
from collated import collate
from exact_models import language_model, near
from hypothesis import strategies as st
from tiny_checkpoints import CPU, EOS, PAD, random_ids
from torch import Tensor

from stages.loops.rl import frozen_logprobs
from stages.loops.rollouts import Rollouts, make_groups
from stages.models.policy import Policy
from stages.records.problems import Prompt
from stages.sampler import Sample

NEW = language_model()
OLD, REFERENCE = near(NEW, 1), near(NEW, 2)
TEMPERATURE = 0.9


@dataclass(frozen=True)
class Drawn:
    rollouts: Rollouts
    advantages: Tensor
    old_values: Tensor
    correct: list[bool]

    def ref_logprobs(self) -> Tensor:
        """In float64, which `rl.measure_kl` does not keep."""
        every = self.rollouts.mask().any(1)
        batch = collate(make_groups(self.rollouts, every, 0), 0, PAD, CPU)
        (found,) = frozen_logprobs(Policy(REFERENCE), [batch], TEMPERATURE)
        grid = torch.zeros_like(found)
        grid[batch.indices] = found
        return grid

    def rows(self, order: list[int]) -> "Drawn":
        """The same completions in another order."""
        old = self.rollouts
        return Drawn(
            Rollouts(
                prompts=old.prompts,
                groups=[old.groups[i] for i in order],
                numbers=[old.numbers[i] for i in order],
                samples=[old.samples[i] for i in order],
                texts=[old.texts[i] for i in order],
            ),
            self.advantages[order],
            self.old_values[order],
            [self.correct[i] for i in order],
        )


@st.composite
def rollouts(draw) -> Drawn:
    """1 to 3 prompts with 1 to 4 completions each, the shortest of one token."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    prompts = [
        Prompt(
            id=f"p{i}",
            task="solve",
            question="",
            prompt="",
            prompt_ids=random_ids(generator, number(1, 6)),
            answer="",
        )
        for i in range(len(sizes))
    ]
    groups = [i for i, size in enumerate(sizes) for _ in range(size)]
    lengths = [number(0, 6) for _ in groups]
    samples = [
        Sample(
            token_ids=[*random_ids(generator, length), EOS],
            logprobs=(-3 * torch.rand(length + 1, generator=generator)).tolist(),
            finish_reason="stop",
        )
        for length in lengths
    ]
    made = Rollouts(
        prompts=prompts,
        groups=groups,
        numbers=[j for size in sizes for j in range(size)],
        samples=samples,
        texts=["" for _ in groups],
    )
    mask = made.mask()
    return Drawn(
        made,
        torch.randn(mask.shape, generator=generator, dtype=torch.float64) * mask,
        torch.randn(mask.shape, generator=generator, dtype=torch.float64) * mask,
        [number(0, 1) == 1 for _ in groups],
    )
