"""A few steps of a loop of `every_loop`, in one or several processes that train it together."""

import multiprocessing
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import every_loop
import torch
from tiny_checkpoints import EOS, PAD, checkpoint
from torch.optim.optimizer import register_optimizer_step_pre_hook
from transformers import PreTrainedTokenizerFast

from stages.engines import loading
from stages.loops.state import State
from stages.models import policy, sharding
from stages.models.device import ComputeConfig
from stages.runtime import ranks

SCHEDULE = [[0, 1, 2, 3], [4, 5, 0, 1], [3, 5, 0, 2], [2, 4, 1, 5]]
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "forward_kl": ("forward KL and likelihood", {}),
    "grpo": ("grpo_deepseekmath", {}),
    "grpo_twice": ("grpo_deepseekmath", {"num_epochs": 2, "num_minibatches": 2}),
    "grpo_steps": ("grpo_process", {}),
    "grpo_in_episodes": ("grpo in episodes", {}),
    "distillation": ("opd", {"reward_coef": 0.5}),
    "ppo": ("ppo_instructgpt", {"num_minibatches": 2}),
}
"""Loop -> its case and changes of the method; the other loops are cases by their names."""


def in_processes(number: int, work: Callable[[], Any], *, fresh: bool = False) -> Any:
    """What `work` returns in the first of `number` processes; they are children of this one.

    `fresh`: of a new interpreter. One that has compiled, as vLLM has it do, has threads that wait
    for work; in a fork nobody is left to do it.
    """
    context = multiprocessing.get_context("spawn" if fresh else "fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_first, args=(number, work, theirs))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        process.join()


def _first(number: int, work: Callable[[], Any], connection: Connection) -> None:
    def of_rank(_: int) -> Any:
        sharding.init_process_group()
        return work()

    torch.set_num_threads(1)
    with (
        tempfile.TemporaryDirectory() as folder,
        ranks.joined(of_rank, number, Path(folder)) as rank,
    ):
        connection.send(of_rank(rank))


class ShardedSetup(every_loop.Setup):
    """Models of which each process has a part, and the sampler that a stage makes."""

    engine: loading.EngineName

    def read(self, role: str, settings: ComputeConfig) -> Any:
        return sharding.shard_model(super().read(role, settings))

    def make_sampler(self, settings: ComputeConfig) -> Any:
        source = self.path or checkpoint(self.family, 0), None
        with mock.patch("stages.engines.transformers.end_ids", return_value=self.ends):
            return loading.make_policy_sampler(
                self.engine, 1, self.models["policy"], tokenizer(),
                source=source, compute=settings, max_length=60,
            )  # fmt: skip


class Trial:
    """The steps of one loop, and what they leave."""

    def __init__(
        self,
        loop: str,
        *,
        schedule: Any = SCHEDULE,
        engine: loading.EngineName = "transformers",
        folder: Path | None = None,
        stop: int | None = None,
        max_tokens: int = 4096,
        row_tokens: int = 64,
        **settings: Any,
    ) -> None:
        """`folder`: to go on from; after `stop` steps the state is saved there.

        `settings`: those of `every_loop.Setup`.
        """
        self.name, changes = CASES.get(loop, (loop, {}))
        self.schedule, self.engine, self.folder, self.stop = schedule, engine, folder, stop
        self.limits = {"max_tokens": max_tokens, "row_tokens": row_tokens}
        self.settings = changes | settings
        for seed in (0, 1):  # before there are processes
            checkpoint(settings.get("family", "llama"), seed)

    def __call__(self) -> dict[str, Any]:
        """Metrics of each step, gradients of the first and the weights after the last."""
        first: dict[str, list[float]] = {}

        def keep(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            result = [sharding.full_tensor(p.grad).flatten().tolist() for p in parameters]
            first.setdefault("gradients", result)

        setup = ShardedSetup(self.name, is_exact=False, **self.settings)
        setup.engine = self.engine
        self.model = setup.models.get("policy") or next(iter(setup.models.values()))
        hook, history = register_optimizer_step_pre_hook(keep), []
        state = State.load(self.folder) if self.folder else State()
        unclipped = {"max_grad_norm": 1e9}  # a norm is a sum, whose order the processes change
        try:
            with mock.patch.dict(every_loop.RATE, unclipped):
                for step in setup.steps(self.schedule, state=state, **self.limits):
                    history.append(step.metrics)
                    if len(history) == self.stop:
                        state.save(self.folder)
                        break
        finally:
            hook.remove()
        weights = {name: value.tolist() for name, value in policy.merged_weights(self.model)}
        held = sum(getattr(one, "to_local", lambda one=one: one)().numel()
                   for one in self.model.parameters())  # fmt: skip
        return first | {"history": history, "weights": weights, "held": held}


def tokenizer() -> PreTrainedTokenizerFast:
    """Enough of one to say which tokens end and pad."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    words = {"<pad>": PAD, "<eos>": EOS}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words)), pad_token="<pad>", eos_token="<eos>"
    )
