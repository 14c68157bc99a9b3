"""Proximal policy optimisation of a policy, against a reward model or the rule reward.

    python -m stages.train_ppo <name> <preset> <start> <reward model>

Schulman et al., "Proximal Policy Optimization Algorithms" (2017), applied as in Ouyang
et al., "Training language models to follow instructions" (2022), step 3, is the preset
`ppo_instructgpt`; others are entries of the table `ppo` in params.yaml. Reads prompts, the
policy `start`, which is also the reference, and the reward model, both as folders under data/;
writes a policy and every rollout it learned from.
Departure: no pretraining mix. The answer checker's verdict is logged.
"""

import json
import sys
from functools import partial
from pathlib import Path

from pydantic import model_validator

from stages import params
from stages.engines import transformers as engine
from stages.loops import critic, epochs, model_reward, ppo
from stages.loops.actor import Actor, Task
from stages.loops.ppo import PpoConfig, PpoPreset
from stages.loops.step import Step, token_totals
from stages.models import lora, model_tokenizer, policy
from stages.models.aggregate import Aggregate
from stages.models.device import ComputeConfig, setup
from stages.models.lora import LoraConfig
from stages.params import Params
from stages.records import lines
from stages.records.prompt import Prompt
from stages.rewards import rollout_rewards
from stages.rewards.rollout_rewards import RuleRewardConfig
from stages.runtime import outputs, progress, runs
from stages.seeding import derive

TABLES = ("ppo",)
DATA = Path("data")
PROMPTS = DATA / "prepare_data/prompts/train.jsonl"
OUTPUT = DATA / "train_ppo"


class TrainPpo(Params):
    """Section of params.yaml."""

    reward: RuleRewardConfig
    """For presets whose reward is `rule`."""
    loop: PpoConfig


class Config(Params):
    """What train_ppo reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    lora: LoraConfig
    ppo: PpoPreset
    ensemble: Aggregate
    train_ppo: TrainPpo

    @model_validator(mode="after")
    def _the_preset_fits_sizes_and_reward(self) -> "Config":
        normalised = self.train_ppo.reward.combine.kind == "normalise"
        ppo.check(self.train_ppo.loop, self.ppo, normalised=normalised)
        return self


def main(name: str, preset: str, start: str, reward: str) -> None:
    """Write `policy/`, `rollouts.jsonl` and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"train_ppo@{name}", output, gpu=True) as run:
        config = params.load(Config, pick={"ppo": preset})
        loop, algorithm, compute = config.train_ppo.loop, config.ppo, config.compute
        device = setup(compute)
        seed = derive(config.seed, "train_ppo")
        tokenizer = model_tokenizer.load(DATA / start)
        pad_id = model_tokenizer.pad_id(tokenizer)
        model = policy.load(DATA / start, compute, device)
        actor = Actor(
            policy=model,
            reference=policy.load(DATA / start, compute, device),
            sampler=engine.from_model(model, tokenizer, max_batch=compute.max_batch),
            decode=policy.decoder(tokenizer),
            pad_id=pad_id,
        )
        paths = (DATA / start, DATA / reward)
        value = critic.load(algorithm.value, model, paths, pad_id, compute, config.lora, seed)
        merged = lora.attach(model, config.lora, seed)
        prompts = list(lines.read(PROMPTS, Prompt))
        judge = partial(rollout_rewards.rule, config=config.train_ppo.reward)
        if algorithm.reward == "model":
            judge = model_reward.load(DATA / reward, config.ensemble, compute, device, pad_id)
        task = Task(prompts=prompts, reward=judge, correct=rollout_rewards.correct)
        schedule = epochs.draws(len(prompts), loop.num_steps, loop.prompts_per_step, seed)
        steps = ppo.train(actor, value, task, schedule, loop, algorithm, compute, seed)
        history: list[Step] = []
        for step in progress.track(steps, total=len(schedule), label=f"train_ppo {name}"):
            run.log(step.index, step.metrics)
            history.append(step)
        with outputs.replace(output / "policy") as temporary:
            policy.save(merged(), tokenizer, temporary)
        with outputs.replace(output / "rollouts.jsonl") as temporary:
            lines.write(temporary, (row for step in history for row in step.rows))
        with outputs.replace(output / "metrics.json") as temporary:
            temporary.write_text(json.dumps(token_totals(history), indent=2) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
