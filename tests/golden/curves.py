"""Twenty steps of every loop on a tiny random model, one thread, to standard output as JSON.

The numbers are written with all their bits. Write curves.json anew only where a change of the
numbers is meant, and say in the commit why they changed:

    python -m pytest tests/golden --golden-write
"""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import every_loop
import presets
import torch
from several_processes import judged
from tiny_checkpoints import CPU, PAD, checkpoint, compute, load
from tiny_rollouts import OPTIM, draws, make_demonstrations, make_models, make_pairs, make_task
from transformers import PreTrainedModel

import stages
from stages.loops import (
    epochs,
    kto,
    preference,
    process_reward,
    ref_logprobs,
    reward,
    rl,
    rollouts,
    sft,
)
from stages.loops.method import GroupRlConfig, PpoConfig, Settings
from stages.loops.preference import PreferenceConfig
from stages.loops.process_reward import ProcessRewardConfig
from stages.loops.reward import OutcomeConfig, RewardConfig
from stages.loops.rollouts import RlModels, Task
from stages.loops.sft import SftConfig
from stages.loops.work import Step
from stages.models import device, process_head, scalar_head
from stages.models.policy import Policy
from stages.models.process_head import ProcessHead
from stages.models.scalar_head import ScalarHead
from stages.records.steps import StepLabels

NUM_STEPS = 20
ENVIRONMENT = stages.INSTRUCTIONS | {"POSTTRAIN_ROUNDING": "pinned"}
"""Set before this process starts: it imports torch before `stages`."""
RATE = OPTIM | {"learning_rate": 3e-3}
PAIRS, COMPUTE, STEP_ID = make_pairs(8), compute(), 2
SIZES = {"num_steps": NUM_STEPS, "prompts_per_step": 4, "temperature": 1.0, "max_new_tokens": 6,
         "num_checkpoints": 0, "optim": RATE}  # fmt: skip
EPOCH = {"num_epochs": 1, "batch_size": 4, "optim": RATE}
SCHEDULE = epochs.batches(8, NUM_STEPS // 2, 4, seed=0)


def game() -> tuple[RlModels, Task]:
    model = load("llama")
    reference = Policy(load("llama", seed=1))
    return make_models(model, reference=reference), make_task()


def scalar(seed: int = 0) -> PreTrainedModel:
    return scalar_head.init_scalar_model(checkpoint("llama", seed), PAD, COMPUTE, CPU)


def supervised() -> Iterator[Step]:
    policy = Policy(load("llama"), COMPUTE, PAD)
    return sft.train(policy, make_demonstrations(8), SCHEDULE, SftConfig(**EPOCH))


def rewards() -> Iterator[Step]:
    config = RewardConfig(**EPOCH, centring=0.01, margin=0.0)
    return reward.train(ScalarHead(scalar(), COMPUTE, PAD), PAIRS, SCHEDULE, config)


def outcomes() -> Iterator[Step]:
    config = OutcomeConfig(**EPOCH, max_per_problem=2, one_class_weight=0.0)
    problems = [judged(pair) for pair in PAIRS]
    return reward.train_outcomes(ScalarHead(scalar(), COMPUTE, PAD), problems, SCHEDULE, config)


def process_labels() -> Iterator[Step]:
    config = ProcessRewardConfig(**EPOCH, targets={"kind": "soft"}, up_to_first_error=False)
    rows = [
        StepLabels(id=pair.id, index=0, prompt="", prompt_ids=pair.prompt_ids, steps=["", ""],
                   step_ids=[pair.chosen_ids[:1], pair.chosen_ids[1:]], labels=[1.0, number / 8],
                   num_completions=[8, 8], true_labels=None, correct=None, source="truth")
        for number, pair in enumerate(PAIRS)
    ]  # fmt: skip
    model = process_head.init_process_model(checkpoint("llama"), STEP_ID, COMPUTE, CPU)
    return process_reward.train(ProcessHead(model, COMPUTE, PAD), rows, SCHEDULE, config)


def preferences() -> Iterator[Step]:
    config, model = PreferenceConfig(**EPOCH, num_checkpoints=0), load("llama")
    completions = ref_logprobs.list_pair_completions(PAIRS)
    policy = Policy(model, COMPUTE, PAD)
    ref = ref_logprobs.compute(policy, completions).view(-1, 2)
    return preference.train(policy, PAIRS, ref, SCHEDULE, presets.loss("dpo"), config)


def unpaired() -> Iterator[Step]:
    config = PreferenceConfig(**EPOCH | {"batch_size": 8}, num_checkpoints=0)
    rows = kto.make_unpaired_examples(PAIRS)
    schedule = epochs.batches(len(rows), NUM_STEPS // 2, 8, seed=0)
    policy = Policy(load("llama"), COMPUTE, PAD)
    ref = kto.compute_reference(policy, rows, schedule)
    return kto.train(policy, rows, ref, schedule, presets.loss("kto"), config)


def groups() -> Iterator[Step]:
    config = GroupRlConfig(**SIZES, group_size=4)
    settings = Settings(config=config, method=presets.method(num_epochs=2), seed=0)
    return rl.train(*game(), draws(8, NUM_STEPS, 4, seed=0), settings)


def actor_critic() -> Iterator[Step]:
    config = PpoConfig(**SIZES, samples_per_prompt=4, value_optim=RATE)
    models, task = game()
    models = replace(models, value=ScalarHead(scalar(1)))
    method = presets.method("ppo_instructgpt", num_minibatches=2)
    settings = Settings(config=config, method=method, seed=0)
    return rl.train(models, task, draws(8, NUM_STEPS, 4, seed=0), settings)


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
    "sft": supervised, "reward": rewards, "outcome": outcomes, "process": process_labels,
    "preference": preferences, "kto": unpaired, "group_rl": groups, "ppo": actor_critic,
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
