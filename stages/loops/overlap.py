"""Rollout batches drawn in a sampler process, while the trainer's process learns from earlier ones.

With `staleness` k > 0, batch n + k needs the weights before step n and no later ones. So it can be
drawn during step n: `POSTTRAIN_SAMPLERS=1` forks a sampler process. Before each step it gets the
weights through shared memory, and a step ends when its batch has arrived. Each batch is drawn with
the same weights as without a sampler process, so a run has the same bits, whatever the timing.
With vLLM only the sampler process has the engine, which copies the weights once for each step, as
an engine in the trainer's process does.

On a CPU the process is forked with the models. CUDA cannot be used in a fork of a process that uses
it, so if a seed run has a second GPU, the stage forks the sampler process before anything is loaded
(`train_rl`); that process loads models and task itself, on that GPU. Weights pass through host
memory. This has been tested only on CPUs, with simulated GPUs.

The sampler process sends completions, with their log-probs under the frozen reference and teacher.
The trainer's process computes rewards; the sampler process does so too only if they decide whether
more is sampled (`max_rounds` above 1).
"""

import logging
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from stages.loops.method import Settings
from stages.loops.rollouts import RlModels, Rollouts
from stages.models import sharding
from stages.rewards.completion_rewards import CompletionRewards
from stages.runtime.forked_process import ForkedProcess
from stages.sampler import ColocatedSampler

if TYPE_CHECKING:
    from stages.loops.rl import Experience, Trainer

logger = logging.getLogger(__name__)

SAMPLERS = "POSTTRAIN_SAMPLERS"
ALIGNMENT = 64
Stored = dict[str, Any] | None
"""JSON content of a stored batch; None: it has to be sampled."""
Start = Callable[[int, Sequence[int], Stored], Callable[[], "Experience"]]
"""Function that begins to draw rollout batch `number` for the prompts with these numbers; it
returns a function that waits for the batch."""


def read_samplers() -> int:
    """Number of sampler processes, 0 or 1; a ValueError if the variable has another value."""
    text = os.environ.get(SAMPLERS, "0")
    if text not in ("0", "1"):
        raise ValueError(f"{SAMPLERS}: expected 0 or 1, found {text!r}. Set one of the two.")
    return int(text)


@contextmanager
def drawing(trainer: "Trainer", sampler_process: ForkedProcess | None) -> Iterator[Start]:
    """Context with a function that starts to draw the next batch, with the present weights.

    The caller waits for every draw before the weights change twice. `sampler_process`: from
    `fork_sampler`, before the models were loaded; None: it is forked here, if possible.
    """

    def draw_here(
        number: int, prompt_numbers: Sequence[int], stored: Stored
    ) -> Callable[[], "Experience"]:
        batch = trainer.draw(number, prompt_numbers, stored)
        return lambda: batch

    if sampler_process is not None:
        context = nullcontext(sampler_process)
    elif read_samplers() and _can_fork(trainer.models, trainer.settings):
        context = closing(fork_sampler(lambda: trainer))
    else:
        yield draw_here
        return
    with context as process:
        weights, num_pending = SharedWeights(trainer.models.policy, process.memory), 0

        def start(
            number: int, prompt_numbers: Sequence[int], stored: Stored
        ) -> Callable[[], "Experience"]:
            nonlocal num_pending
            if stored is not None:
                return draw_here(number, prompt_numbers, stored)
            # While a draw is pending, the process may be reading the weights, which have not
            # changed.
            if is_first := num_pending == 0:
                weights.write()
            process.request([number, [*prompt_numbers], is_first])
            num_pending += 1

            @cache
            def wait() -> "Experience":
                nonlocal num_pending
                content = process.receive()
                num_pending -= 1
                return trainer.draw(number, prompt_numbers, content)

            return wait

        yield start


def _can_fork(models: RlModels, settings: Settings) -> bool:
    """Whether a sampler process can be forked; if not, logs a warning with the requirements."""
    # A forked process has none of torch's threads, and cannot use its parent's CUDA context.
    can = (
        settings.method.staleness > 0
        and sharding.get_world_size() == 1
        and models.policy.device.type == "cpu"
        and torch.get_num_threads() == 1
    )
    if not can and sharding.get_rank() == 0:
        logger.warning(
            "%s=1 changes nothing here: it needs a preset with `staleness` above 0 and one "
            "process that trains, on a CPU with one thread, or with a second GPU",
            SAMPLERS,
        )
    return can


def zero_rewards(batch: Rollouts) -> CompletionRewards:
    """Rewards of 0, for a process whose rewards are not used."""
    return CompletionRewards(totals=[0.0] * len(batch.samples))


def fork_sampler(load: Callable[[], "Trainer"]) -> ForkedProcess:
    """Fork the sampler process. It calls `load`, and draws with the weights last shared."""

    def prepare(memory: int) -> Callable[[Any], dict[str, Any]]:
        trainer = load()
        sampler, weights = trainer.models.sampler, SharedWeights(trainer.models.policy, memory)
        if trainer.settings.method.max_rounds == 1:  # else rewards decide what is sampled
            trainer = replace(trainer, task=replace(trainer.task, reward=zero_rewards))

        def answer(request: Any) -> dict[str, Any]:
            number, prompt_numbers, is_first = request
            if is_first:
                if isinstance(sampler, ColocatedSampler):
                    sampler.sleep()
                weights.read()
            return trainer.draw(number, prompt_numbers).content

        return answer

    return ForkedProcess(prepare)


class SharedWeights:
    """Trained weights of a model, in memory shared by processes that each have the model."""

    def __init__(self, model: nn.Module, memory: int) -> None:
        """`memory`: descriptor of a memory file, which is resized to hold the weights."""
        self._weights = [weight for weight in model.parameters() if weight.requires_grad]
        sizes = [
            -(-weight.numel() * weight.element_size() // ALIGNMENT) * ALIGNMENT
            for weight in self._weights
        ]
        os.ftruncate(memory, sum(sizes))  # as the other process does: it has the same size
        content, offset = mmap.mmap(memory, sum(sizes)), 0
        self._shared: list[Tensor] = []
        for weight, size in zip(self._weights, sizes, strict=True):
            flat = torch.frombuffer(
                content, dtype=weight.dtype, count=weight.numel(), offset=offset
            )
            self._shared.append(flat.view(weight.shape))
            offset += size

    @torch.no_grad()
    def write(self) -> None:
        """Copy the weights into the shared memory."""
        for weight, shared in zip(self._weights, self._shared, strict=True):
            shared.copy_(weight)

    @torch.no_grad()
    def read(self) -> None:
        """Copy the shared memory into the weights."""
        for weight, shared in zip(self._weights, self._shared, strict=True):
            weight.copy_(shared)
