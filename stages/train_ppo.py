"""Proximal policy optimisation of a policy against a reward model.

    python -m stages.train_ppo <name> <preset> <start> <reward model>

Schulman et al., "Proximal Policy Optimization Algorithms" (2017), applied as in Ouyang
et al., "Training language models to follow instructions" (2022), step 3. Reads prompts,
the policy `start`, which is also the reference, and the reward model, both as folders under
data/; writes a policy and every rollout it learned from.
Departures: the value model starts as the reward model, no pretraining mix, and the
answer checker's verdict is logged but never learned from.
"""

import json
import sys
from pathlib import Path

from pydantic import model_validator

from stages import params
from stages.engines import transformers as engine
from stages.loops import epochs, ppo
from stages.loops.ppo import Models, PpoConfig, PpoPreset
from stages.models import lora, model_tokenizer, policy, scalar_head
from stages.models.device import ComputeConfig, setup
from stages.models.lora import LoraConfig
from stages.params import Params
from stages.records import lines
from stages.records.prompt import Prompt
from stages.rewards import rollout_rewards
from stages.runtime import outputs, progress, runs
from stages.seeding import derive

TABLES = ("ppo",)
DATA = Path("data")
PROMPTS = DATA / "prepare_data/prompts/train.jsonl"
OUTPUT = DATA / "train_ppo"


class Config(Params):
    """What train_ppo reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    lora: LoraConfig
    ppo: PpoPreset
    train_ppo: PpoConfig

    @model_validator(mode="after")
    def _prompts_fill_the_minibatches(self) -> "Config":
        if self.ppo.num_minibatches > self.train_ppo.prompts_per_step:
            raise ValueError(
                f"ppo: num_minibatches {self.ppo.num_minibatches} is more than "
                f"train_ppo.prompts_per_step {self.train_ppo.prompts_per_step}: some would be empty"
            )
        return self


def main(name: str, preset: str, start: str, reward: str) -> None:
    """Write `policy/`, `rollouts.jsonl` and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"train_ppo@{name}", output, gpu=True) as run:
        config = params.load(Config, pick={"ppo": preset})
        settings, compute = config.train_ppo, config.compute
        device = setup(compute)
        seed = derive(config.seed, "train_ppo")
        tokenizer = model_tokenizer.load(DATA / start)
        models = Models(
            policy=policy.load(DATA / start, compute, device),
            value=scalar_head.load(DATA / reward, compute, device),
            reference=policy.load(DATA / start, compute, device),
            reward=scalar_head.load(DATA / reward, compute, device),
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
            config.ppo,
            compute,
            model_tokenizer.pad_id(tokenizer),
            seed,
        )
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
