"""Twenty steps of every loop on a tiny random model, one thread, to standard output as JSON."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import every_loop
import torch
from tiny_rollouts import draws

from stages.loops import rollouts
from stages.loops.work import Step
from stages.models import device

NUM_STEPS = 20
LOOPS: dict[str, tuple[str, dict[str, Any]]] = {
    "sft": ("sft", {}), "reward": ("reward", {}), "outcome": ("outcome", {}),
    "process": ("process", {}), "preference": ("dpo", {}), "kto": ("kto", {}),
    "group_rl": ("grpo_deepseekmath", {"num_epochs": 2}), "ppo": ("ppo_instructgpt", {}),
    "forward_kl": ("forward KL and likelihood", {}), "distillation": ("opd", {"reward_coef": 0.5}),
    "steps": ("grpo_process", {}), "ppo_steps": ("vapo", {"value_init": "policy"}),
    "episodes": ("grpo in episodes", {}),
    "stale": ("grpo_verl", {"staleness": 2, "correction": "token_truncated"}),
}  # fmt: skip
"""Name -> case of `every_loop`, and what it changes of its preset."""


def take_steps(name: str, changes: dict[str, Any]) -> Iterator[Step]:
    """Steps of a case of `every_loop`, the preset as it is but for the changes."""
    setup = every_loop.Setup(name, is_exact=False)
    if name in every_loop.RL:
        method = every_loop.several_optimizer_steps(name)
        setup.method = method.model_copy(update=changes)
    yield from setup.steps(draws(every_loop.NUM_ROWS, NUM_STEPS, 4, seed=0))


def write_hex(step: Step) -> dict[str, str]:
    """Every metric of a step but for counts of work, in hexadecimal: no bit is lost."""
    metrics = {name: x for name, x in sorted(step.metrics.items()) if not name.startswith("work/")}
    return {name: float(value).hex() for name, value in metrics.items()}


if __name__ == "__main__":
    device.pin_instructions()
    torch.use_deterministic_algorithms(True)
    rollouts.MAX_TRUNCATED_STEPS = NUM_STEPS + 1  # nothing in the game rewards ending an answer
    curves = {name: [write_hex(step) for step in take_steps(*LOOPS[name])] for name in LOOPS}
    json.dump(curves, sys.stdout, indent=0)
