"""Rollout batches drawn in a process of their own, while the trainer's learns from earlier ones.

With `staleness` k > 0, batch n + k needs the weights before step n and no later ones. So it can be
drawn during step n: `POSTTRAIN_SAMPLERS=1` forks a process that does. Before each step it gets the
weights by shared memory; a step ends when its batch is there. Which batch is drawn with which
weights is as without that process, so every bit of the run is, whatever takes how long. Where vLLM
samples, its engine is in that process alone, and copies the weights once for each step, as one
beside the trainer does.

On a CPU the process is forked with the models. CUDA cannot be used in a fork of a process that uses
it, so where a seed run holds a second GPU, the stage forks the process before anything is loaded
(`train_rl`): it loads models and task itself, and has that GPU. Weights pass through the memory of
the host. This has run on CPUs alone, with GPUs that are only names.

The process sends what the sampler returned, with the log-probs of reference and teacher, which
training leaves as they are. Rewards are computed where they are learned from, and in both only
where they decide whether more is sampled (`max_rounds` above 1).
"""

import logging
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from stages.loops.method import Settings
from stages.loops.rollouts import RlModels, Rollouts, Task
from stages.models import sharding
from stages.rewards.completion_rewards import CompletionRewards
from stages.runtime.forked_process import ForkedProcess
from stages.sampler import ColocatedSampler

logger = logging.getLogger(__name__)

SAMPLERS = "POSTTRAIN_SAMPLERS"
ALIGNMENT = 64
Stored = dict[str, Any] | None
"""JSON content from which a batch is made again; None: it is to be drawn."""
DrawT = TypeVar("DrawT")
Draw = Callable[[RlModels, Task, Settings, int, Sequence[int], Stored], DrawT]
"""The batch of a task by its number and the numbers of its prompts."""
DrawContent = Callable[[RlModels, Task, Settings, int, Sequence[int]], dict[str, Any]]
"""The content of such a batch."""
Start = Callable[[int, Sequence[int], Stored], Callable[[], DrawT]]
"""Begins to draw batch `number`, of the prompts `prompt_numbers`; what it returns waits for it."""


def read_samplers() -> int:
    """Processes that sample, 0 or 1; a ValueError if the environment has another word."""
    text = os.environ.get(SAMPLERS, "0")
    if text not in ("0", "1"):
        raise ValueError(f"{SAMPLERS}: expected 0 or 1, found {text!r}. Set one of the two.")
    return int(text)


@contextmanager
def drawing(
    models: RlModels,
    task: Task,
    settings: Settings,
    draw: Draw[DrawT],
    draw_content: DrawContent,
    process_beside: ForkedProcess | None,
) -> Iterator[Start[DrawT]]:
    """Starts draws of batches, in the order of their numbers, with the weights of the start.

    Every draw has to be waited for before the weights change twice. `process_beside`: of
    `fork_sampler`, before the models were loaded; None: one is forked here, where it can be.
    """

    def draw_here(
        number: int, prompt_numbers: Sequence[int], stored: Stored
    ) -> Callable[[], DrawT]:
        batch = draw(models, task, settings, number, prompt_numbers, stored)
        return lambda: batch

    if process_beside is not None:
        context = nullcontext(process_beside)
    elif read_samplers() and _can_fork(models, settings):
        context = closing(fork_sampler(lambda: (models, task, settings), draw_content))
    else:
        yield draw_here
        return
    with context as process:
        weights, num_pending = SharedWeights(models.policy, process.memory), 0

        def start(
            number: int, prompt_numbers: Sequence[int], stored: Stored
        ) -> Callable[[], DrawT]:
            nonlocal num_pending
            if stored is not None:
                return draw_here(number, prompt_numbers, stored)
            # Else the process may be reading them, and they are the same.
            if is_first := num_pending == 0:
                weights.write()
            process.request([number, [*prompt_numbers], is_first])
            num_pending += 1

            @cache
            def wait() -> DrawT:
                nonlocal num_pending
                content = process.receive()
                num_pending -= 1
                return draw(models, task, settings, number, prompt_numbers, content)

            return wait

        yield start


def _can_fork(models: RlModels, settings: Settings) -> bool:
    """Whether another process can sample; a warning says why not."""
    reason = None
    if not settings.method.staleness:
        reason = "batches are drawn on policy; see `staleness` of a preset"
    elif sharding.get_world_size() > 1:
        reason = "several processes train the policy"
    elif models.policy.device.type != "cpu":
        reason = "the policy is on a GPU, and this seed run holds no second one"
    elif torch.get_num_threads() > 1:
        reason = "this process computes on several threads, which a forked one does not have"
    if reason is not None and sharding.get_rank() == 0:
        logger.warning("%s=1 changes nothing here: %s", SAMPLERS, reason)
    return reason is None


def pay_nothing(batch: Rollouts) -> CompletionRewards:
    """Rewards of 0, where nobody reads them."""
    return CompletionRewards(totals=[0.0] * len(batch.samples))


def fork_sampler(
    load: Callable[[], tuple[RlModels, Task, Settings]], draw_content: DrawContent
) -> ForkedProcess:
    """Fork the process; it draws from what `load` returns there, with the weights shared last."""

    def prepare(memory: int) -> Callable[[Any], dict[str, Any]]:
        models, task, settings = load()
        weights = SharedWeights(models.policy, memory)
        unpaid = replace(task, reward=pay_nothing) if settings.method.max_rounds == 1 else task

        def answer(request: Any) -> dict[str, Any]:
            number, prompt_numbers, is_first = request
            if is_first:
                if isinstance(models.sampler, ColocatedSampler):
                    models.sampler.sleep()
                weights.read()
            return draw_content(models, unpaid, settings, number, prompt_numbers)

        return answer

    return ForkedProcess(prepare)


class SharedWeights:
    """Weights of a model that are trained, in memory that processes with an equal model share."""

    def __init__(self, model: nn.Module, memory: int) -> None:
        """`memory`: descriptor of a file in memory, which gets the size of the weights."""
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
