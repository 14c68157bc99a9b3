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
from pathlib import Path

from transformers import PreTrainedModel

from stages import params
from stages.engines import transformers as engine
from stages.loops import critic, epochs, model_reward, ppo
from stages.loops.actor import Actor, Task
from stages.loops.ppo import PpoConfig, PpoPreset
from stages.models import lora, model_tokenizer, policy
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
    train_ppo: TrainPpo


def main(name: str, preset: str, start: str, reward: str) -> None:
    """Write `policy/`, `rollouts.jsonl` and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"train_ppo@{name}", output, gpu=True) as run:
        config = params.load(Config, pick={"ppo": preset})
        settings, algorithm, compute = config.train_ppo.loop, config.ppo, config.compute
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
        value = critic.load(algorithm.value, model, DATA / start, DATA / reward, pad_id, compute)
        merged = lora.attach(model, config.lora, seed)
        if isinstance(value, PreTrainedModel):
            lora.attach(value, config.lora, derive(seed, "value"))
        task = Task(
            prompts=list(lines.read(PROMPTS, Prompt)),
            reward=(
                model_reward.load(DATA / reward, compute, device, pad_id)
                if algorithm.reward == "model"
                else lambda drawn: rollout_rewards.rule(drawn, config.train_ppo.reward)
            ),
            correct=rollout_rewards.correct,
        )
        num_prompts = settings.prompts_per_step
        schedule = epochs.draws(len(task.prompts), settings.num_steps, num_prompts, seed)
        steps = ppo.train(actor, value, task, schedule, settings, algorithm, compute, seed)
        rollouts, tokens = [], {"generated_tokens": 0, "trained_tokens": 0}
        for step in progress.track(steps, total=len(schedule), label=f"train_ppo {name}"):
            run.log(step.index, step.metrics)
            rollouts += step.rows
            tokens["generated_tokens"] += int(step.metrics["tokens/generated"])
            tokens["trained_tokens"] += int(step.metrics["tokens/trained"])
        with outputs.replace(output / "policy") as temporary:
            policy.save(merged(), tokenizer, temporary)
        with outputs.replace(output / "rollouts.jsonl") as temporary:
            lines.write(temporary, rollouts)
        with outputs.replace(output / "metrics.json") as temporary:
            temporary.write_text(json.dumps(tokens, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
