"""Twenty steps of every loop on a tiny random model, one thread, to standard output as JSON.

The numbers are written with all their bits. Write curves.json anew only where a change of the
numbers is meant, and say in the commit why they changed:

    GOLDEN_WRITE=1 python -m pytest -n 0 tests/golden
"""

import json
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import every_loop
import torch
from tiny_rollouts import draws

import stages
from stages.loops import rollouts
from stages.loops.work import Step
from stages.models import device

NUM_STEPS = 20
ENVIRONMENT = stages.INSTRUCTIONS | {"POSTTRAIN_ROUNDING": "pinned"}
"""Set before this process starts: it imports torch before `stages`."""


def case(name: str, **changes: Any) -> Iterator[Step]:
    """Steps of a case of `every_loop`, the preset as it is but for the changes."""
    setup = every_loop.Setup(name, is_exact=False)
    if name in every_loop.RL:
        method = every_loop.several_optimizer_steps(name)
        setup.method = method.model_copy(update=changes)
    yield from setup.steps(draws(every_loop.NUM_ROWS, NUM_STEPS, 4, seed=0))


def curve(steps: Iterable[Step]) -> list[dict[str, str]]:
    """Every metric of every step, in hexadecimal: no bit is lost."""
    return [
        # Counts of work are no part of a curve.
        {
            name: float(value).hex()
            for name, value in sorted(step.metrics.items())
            if not name.startswith("work/")
        }
        for step in steps
    ]


LOOPS = {
    "sft": partial(case, "sft"), "reward": partial(case, "reward"),
    "outcome": partial(case, "outcome"), "process": partial(case, "process"),
    "preference": partial(case, "dpo"), "kto": partial(case, "kto"),
    "group_rl": partial(case, "grpo_deepseekmath", num_epochs=2),
    "ppo": partial(case, "ppo_instructgpt"),
    "forward_kl": partial(case, "forward KL and likelihood"),
    "distillation": partial(case, "opd", reward_coef=0.5),
    "steps": partial(case, "grpo_process"), "ppo_steps": partial(case, "vapo", value_init="policy"),
    "episodes": partial(case, "grpo in episodes"),
    "stale": partial(case, "grpo_verl", staleness=2, correction="token_truncated"),
}  # fmt: skip


def main() -> None:
    device.pin_instructions()
    torch.use_deterministic_algorithms(True)
    rollouts.MAX_TRUNCATED_STEPS = NUM_STEPS + 1  # nothing in the game rewards ending an answer
    result = {name: curve(loop()) for name, loop in LOOPS.items()}
    assert {name: len(steps) for name, steps in result.items()} == dict.fromkeys(LOOPS, NUM_STEPS)
    json.dump(result, sys.stdout, indent=0)


if __name__ == "__main__":
    main()
