"""Reinforcement learning with groups of completions: GRPO and its relatives.

    python -m stages.train_grpo <name> <preset> <start> <reward> <scorer> <own>

Which of them is the preset, an entry of the table `group_rl` in presets.yaml: Shao et al.,
"DeepSeekMath" (2024), https://arxiv.org/abs/2402.03300, is `grpo_deepseekmath`. Reads prompts
and the model `start`, which is also the reference; writes a policy and every rollout it
learned from. What is maximised is `reward`, an entry of the table `rewards`; `scorer` is the
model that it asks, or `no_model`, and `own` the user's file in stages/rewards/own/, or `none`. From
the base model with the rule reward this is R1-Zero's recipe (Guo et al. 2025,
https://arxiv.org/abs/2501.12948).
Sources and departures of the presets: stages/README.md.
"""

from pathlib import Path

from pydantic import model_validator

from stages import params
from stages.engines import transformers as engine
from stages.loops import checkpoints, entry_reward, group_preset, group_rl, pace, rl_summary
from stages.loops.actor import Actor, Task
from stages.loops.group_preset import GroupRlConfig, GroupRlPreset
from stages.loops.step import Step
from stages.models import lora, model_tokenizer, policy
from stages.models import start as models_start
from stages.models.aggregate import Aggregate
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig, setup
from stages.models.lora import LoraConfig
from stages.params import Params
from stages.records import lines
from stages.records.problems import Prompt
from stages.rewards import rollout_rewards
from stages.rewards.composition_config import Composition
from stages.runtime import outputs, process, progress, runs
from stages.seeding import derive

TABLES = ("group_rl", "rewards")
PROMPTS = Path("data/prepare_data/prompts/train.jsonl")
OUTPUT = Path("data/train_grpo")


class TrainGrpo(pace.Paced):
    """Section of params.yaml."""

    loop: GroupRlConfig


class Config(Params):
    """What train_grpo reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    model: ModelConfig
    lora: LoraConfig
    group_rl: GroupRlPreset
    ensemble: Aggregate
    rewards: Composition
    train_grpo: TrainGrpo

    @model_validator(mode="after")
    def _the_preset_fits_sizes_and_reward(self) -> "Config":
        group_preset.check(self.train_grpo.loop, self.group_rl, self.rewards)
        return self


def main(name: str, preset: str, start: str, reward: str, scorer: str, own: str) -> None:
    """Write `policy/`, `checkpoints/`, `rollouts.jsonl` and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"train_grpo@{name}", output, gpu=True) as run:
        config = params.load(Config, pick={"group_rl": preset, "rewards": reward})
        settings, algorithm = config.train_grpo.loop, config.group_rl
        device, seed = setup(config.compute), derive(config.seed, "train_grpo")
        tokenizer = models_start.tokenizer(start)
        model = models_start.load(start, config.model, config.compute, device)
        actor = Actor(
            policy=model,
            reference=models_start.load(start, config.model, config.compute, device),
            sampler=engine.from_model(model, tokenizer, max_batch=config.compute.max_batch),
            decode=policy.decoder(tokenizer),
            pad_id=model_tokenizer.pad_id(tokenizer),
        )
        merged = lora.attach(model, config.lora, seed)
        prompts, longest = list(lines.read(PROMPTS, Prompt)), settings.max_new_tokens
        judge = entry_reward.load(
            config.rewards, scorer, own, config.ensemble, actor, config.compute, longest
        )
        task = Task(prompts=prompts, reward=judge, correct=rollout_rewards.correct)
        needed = algorithm.sampling.num_prompts(settings.prompts_per_step)
        budget = config.train_grpo.token_budgets.get(name)
        schedule = pace.draw(len(prompts), settings.num_steps, needed, seed, budget)
        steps = group_rl.train(actor, task, schedule, settings, algorithm, config.compute, seed)
        history: list[Step] = []
        total, number = pace.length(schedule), config.train_grpo.num_checkpoints
        with outputs.replace(output / "checkpoints") as temporary:
            steps = checkpoints.along(steps, total, number, merged, tokenizer, temporary)
            for step in progress.track(steps, total=total, label=f"train_grpo {name}"):
                run.log(step.index, step.metrics)
                history.append(step)
        metrics = rl_summary.summarise(history, actor, config.rewards, scorer)
        with outputs.replace(output / "policy") as temporary:
            policy.save(merged(), tokenizer, temporary)
        with outputs.replace(output / "rollouts.jsonl") as temporary:
            lines.write(temporary, (row for step in history for row in step.rows))
        outputs.write_json(output / "metrics.json", metrics)


if __name__ == "__main__":
    process.run(main)
