"""Proximal policy optimisation of a policy.

    python -m stages.train_ppo <name> <preset> <start> <reward> <scorer> <own>

Schulman et al., "Proximal Policy Optimization Algorithms" (2017), applied as in Ouyang
et al., "Training language models to follow instructions" (2022), step 3, is the preset
`ppo_instructgpt`; others are entries of the table `ppo` in presets.yaml. Reads prompts, the
policy `start`, which is also the reference, and a model `scorer`, both as folders under data/;
writes a policy and every rollout it learned from. What is maximised is `reward`, an entry of the
table `rewards`; `scorer` is the model that it asks and that the value model starts from, or
`no_model`, and `own` the user's file in stages/rewards/own/, or `none`.
Departure: no pretraining mix. The answer checker's verdict is logged.
"""

from pathlib import Path

from pydantic import model_validator

from stages import params
from stages.engines import transformers as engine
from stages.loops import checkpoints, critic, entry_reward, pace, ppo, rl_summary
from stages.loops.actor import Actor, Task
from stages.loops.ppo import PpoConfig, PpoPreset
from stages.loops.step import Step
from stages.models import lora, model_tokenizer, policy
from stages.models.aggregate import Aggregate
from stages.models.device import ComputeConfig, setup
from stages.models.lora import LoraConfig
from stages.params import Params
from stages.records import lines
from stages.records.problems import Prompt
from stages.rewards import rollout_rewards
from stages.rewards.composition_config import Composition
from stages.runtime import outputs, process, progress, runs
from stages.seeding import derive

TABLES = ("ppo", "rewards")
DATA = Path("data")
PROMPTS = DATA / "prepare_data/prompts/train.jsonl"
OUTPUT = DATA / "train_ppo"


class TrainPpo(pace.Paced):
    """Section of params.yaml."""

    loop: PpoConfig


class Config(Params):
    """What train_ppo reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    lora: LoraConfig
    ppo: PpoPreset
    ensemble: Aggregate
    rewards: Composition
    train_ppo: TrainPpo

    @model_validator(mode="after")
    def _the_preset_fits_sizes_and_reward(self) -> "Config":
        ppo.check(self.train_ppo.loop, self.ppo, self.rewards)
        return self


def main(name: str, preset: str, start: str, reward: str, scorer: str, own: str) -> None:
    """Write `policy/`, `checkpoints/`, `rollouts.jsonl` and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"train_ppo@{name}", output, gpu=True) as run:
        config = params.load(Config, pick={"ppo": preset, "rewards": reward})
        loop, algorithm, compute = config.train_ppo.loop, config.ppo, config.compute
        device, seed = setup(compute), derive(config.seed, "train_ppo")
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
        paths = (DATA / start, DATA / scorer)
        value = critic.load(algorithm.value, model, paths, pad_id, compute, config.lora, seed)
        merged = lora.attach(model, config.lora, seed)
        prompts = list(lines.read(PROMPTS, Prompt))
        judge = entry_reward.load(
            config.rewards, scorer, own, config.ensemble, actor, compute, loop.max_new_tokens
        )
        task = Task(prompts=prompts, reward=judge, correct=rollout_rewards.correct)
        budget = config.train_ppo.token_budgets.get(name)
        schedule = pace.draw(len(prompts), loop.num_steps, loop.prompts_per_step, seed, budget)
        steps = ppo.train(actor, value, task, schedule, loop, algorithm, compute, seed)
        history: list[Step] = []
        total, number = pace.length(schedule), config.train_ppo.num_checkpoints
        with outputs.replace(output / "checkpoints") as temporary:
            steps = checkpoints.along(steps, total, number, merged, tokenizer, temporary)
            for step in progress.track(steps, total=total, label=f"train_ppo {name}"):
                run.log(step.index, step.metrics)
                history.append(step)
        metrics = rl_summary.summarise(history, actor, config.rewards, scorer, value)
        with outputs.replace(output / "policy") as temporary:
            policy.save(merged(), tokenizer, temporary)
        with outputs.replace(output / "rollouts.jsonl") as temporary:
            lines.write(temporary, (row for step in history for row in step.rows))
        outputs.write_json(output / "metrics.json", metrics)


if __name__ == "__main__":
    process.run(main)
