"""An outcome reward model: how likely a completion's final answer is right, in even pools.

    python -m stages.train_outcome_reward <name> <start> <pool> <heldout>

Reads a policy's pools of completions, of the split `preference` to learn from and of `dev` to
test on, which the answer checker labels; writes an `AutoModelForSequenceClassification` with one
label, the logit, read at a completion's last token: the format of `train_reward_model`.
Cobbe et al., "Training Verifiers to Solve Math Word Problems" (2021), section 4,
https://arxiv.org/abs/2110.14168. Departures: one prediction a completion, not one a token; no
language-modelling loss beside it; right and wrong weigh the same within each problem, so what is
learned is P(right) had both been equally likely beforehand (`rewards/balanced_outcomes`).
"""

from pathlib import Path

from stages import params
from stages.loops import epochs, outcome, work
from stages.loops.outcome import OutcomeConfig
from stages.models import lora, model_tokenizer, policy, scalar_head, size
from stages.models.device import ComputeConfig, setup
from stages.models.lora import LoraConfig
from stages.params import Params
from stages.records import lines, pools
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.reports import outcome_model_plots, outcome_model_quality
from stages.reports.problem_interval import QualityConfig
from stages.rewards import balanced_outcomes
from stages.rewards.balanced_outcomes import JudgedPool
from stages.runtime import outputs, process, progress, runs
from stages.seeding import derive

DATA = Path("data")
PROMPTS = DATA / "prepare_data/prompts"
POOLS = DATA / "sample_candidates"
OUTPUT = DATA / "train_outcome_reward"


class Config(Params):
    """What train_outcome_reward reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    lora: LoraConfig
    reward_quality: QualityConfig
    train_outcome_reward: OutcomeConfig


def main(name: str, start: str, pool: str, heldout_pool: str) -> None:
    """Write `reward_model/`, `metrics.json` and `plots/`."""
    output = OUTPUT / name
    with runs.start(f"train_outcome_reward@{name}", output, gpu=True) as run:
        config = params.load(Config)
        settings = config.train_outcome_reward
        device = setup(config.compute)
        seed = derive(config.seed, "train_outcome_reward")
        problems = balanced_outcomes.learned(
            read(pool, "preference"),
            max_per_problem=settings.max_per_problem,
            one_class_weight=settings.one_class_weight,
            seed=derive(seed, "draw"),
        )
        heldout = balanced_outcomes.tested_on(read(heldout_pool, "dev"))
        tokenizer = model_tokenizer.load(DATA / start)
        pad_id = model_tokenizer.pad_id(tokenizer)
        model = scalar_head.from_policy(DATA / start, pad_id, config.compute, device)
        merged = lora.attach(model, config.lora, seed)
        schedule = epochs.batches(len(problems), settings.num_epochs, settings.batch_size, seed)
        steps = outcome.train(model, problems, schedule, settings, config.compute, pad_id)
        history: list[dict[str, int | float]] = []
        for step in progress.track(steps, total=len(schedule), label=f"outcome reward {name}"):
            run.log(step.index, step.metrics)
            history.append(step.metrics)
        scores = outcome.score(model, heldout, config.compute, pad_id)
        rows = [row for problem in heldout for row in problem]
        tested = rows, scores.numpy(), config.reward_quality
        metrics = {
            "generated_tokens": 0,
            "trained_tokens": sum(int(metrics["tokens/trained"]) for metrics in history),
            "work": work.summary(history, {"reward": size.measure(model)}),
            "problems": len(problems),
            "completions": sum(map(len, problems)),
            "heldout": outcome_model_quality.measure(*tested, derive(seed, "bootstrap")),
        }
        with outputs.replace(output / "reward_model") as temporary:
            policy.save(merged(), tokenizer, temporary)
        with outputs.replace(output / "plots") as temporary:
            outcome_model_plots.draw(temporary, outcome_model_quality.reliability(*tested))
        outputs.write_json(output / "metrics.json", metrics)


def read(pool: str, split: str) -> list[JudgedPool]:
    """Each problem of a pool with its completions and the answer checker's verdicts."""
    problems = pools.by_problem(
        lines.read(PROMPTS / f"{split}.jsonl", Prompt),
        lines.read(POOLS / pool / "pool.jsonl", Completion),
    )
    return [
        balanced_outcomes.judge(prompt, rows)
        for prompt, rows in progress.track(problems, total=len(problems), label=f"judge {pool}")
    ]


if __name__ == "__main__":
    process.run(main)
