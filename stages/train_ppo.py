"""Proximal policy optimisation from the SFT policy against the reward model.

Schulman et al., "Proximal Policy Optimization Algorithms" (2017), applied as in Ouyang
et al., "Training language models to follow instructions" (2022), step 3. Reads prompts,
the SFT policy and the reward model; writes a policy and every rollout it learned from.
Departures: the value model starts as the reward model, no pretraining mix, and the
answer checker's verdict is logged but never learned from.
"""

import json
from pathlib import Path

from stages import params
from stages.engines import transformers as engine
from stages.loops import epochs, ppo
from stages.loops.ppo import Models, PpoConfig
from stages.models import lora, model_tokenizer, policy, scalar_head
from stages.models.device import ComputeConfig, setup
from stages.models.lora import LoraConfig
from stages.params import Params
from stages.records import lines
from stages.records.prompt import Prompt
from stages.rewards import rollout_rewards
from stages.runtime import outputs, progress, runs
from stages.seeding import derive

SFT = Path("data/train_sft/policy")
REWARD_MODEL = Path("data/train_reward_model/reward_model")
PROMPTS = Path("data/prepare_data/prompts/train.jsonl")
OUTPUT = Path("data/train_ppo")


class Config(Params):
    """What train_ppo reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    lora: LoraConfig
    train_ppo: PpoConfig


def main() -> None:
    """Write `policy/`, `rollouts.jsonl` and `metrics.json`."""
    with runs.start("train_ppo", OUTPUT, gpu=True) as run:
        config = params.load(Config)
        settings, compute = config.train_ppo, config.compute
        device = setup(compute)
        seed = derive(config.seed, "train_ppo")
        tokenizer = model_tokenizer.load(SFT)
        models = Models(
            policy=policy.load(SFT, compute, device),
            value=scalar_head.load(REWARD_MODEL, compute, device),
            reference=policy.load(SFT, compute, device),
            reward=scalar_head.load(REWARD_MODEL, compute, device),
        )
        merged = lora.attach(models.policy, config.lora, seed)
        lora.attach(models.value, config.lora, derive(seed, "value"))
        prompts = list(lines.read(PROMPTS, Prompt))
        schedule = epochs.draws(len(prompts), settings.num_steps, settings.prompts_per_step, seed)
        steps = ppo.train(
            models,
            engine.from_model(models.policy, tokenizer, max_batch=compute.max_batch),
            policy.decoder(tokenizer),
            rollout_rewards.correct,
            prompts,
            schedule,
            settings,
            compute,
            model_tokenizer.pad_id(tokenizer),
            seed,
        )
        rollouts, tokens = [], {"generated_tokens": 0, "trained_tokens": 0}
        for step in progress.track(steps, total=len(schedule), label="train_ppo"):
            run.log(step.index, step.metrics)
            rollouts += step.rows
            tokens["generated_tokens"] += int(step.metrics["tokens/generated"])
            tokens["trained_tokens"] += int(step.metrics["tokens/trained"])
        with outputs.replace(OUTPUT / "policy") as temporary:
            policy.save(merged(), tokenizer, temporary)
        with outputs.replace(OUTPUT / "rollouts.jsonl") as temporary:
            lines.write(temporary, rollouts)
        with outputs.replace(OUTPUT / "metrics.json") as temporary:
            temporary.write_text(json.dumps(tokens, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
