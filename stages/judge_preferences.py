"""Let a model say which of two completions of a problem is better (AI feedback).

    python -m stages.judge_preferences <name> <train pool> <heldout pool> <judge>

Reads a policy's pools and the prompts they answer; draws pairs without looking at the verifier;
writes preferences for training and held out, and every verdict. Lee et al. 2023, "RLAIF",
https://arxiv.org/abs/2309.00267; principles drawn from a constitution: Bai et al. 2022,
https://arxiv.org/abs/2212.08073. The verifier is asked afterwards, to measure the judge only.
"""

from collections import Counter
from pathlib import Path
from typing import Any, Literal

from stages import params
from stages.engines import choosers
from stages.loops import judge_work
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig
from stages.params import Params
from stages.records import lines, pools
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.reports import judge_quality, policy_metrics
from stages.rewards.feedback import injection_rate, judged_preferences, judging, verified
from stages.rewards.feedback.judge_prompt import OPTIONS
from stages.rewards.feedback.judging_config import JudgingConfig
from stages.runtime import outputs, process, progress, runs
from stages.runtime.identity import PIPE
from stages.seeding import derive

PROMPTS = Path("data/prepare_data/prompts")
POOLS = Path("data/sample_candidates")
OUTPUT = Path("data/judge_preferences")
SPLITS = {"train": "preference", "heldout": "dev"}
"""Output file -> the split of problems that its pool is of."""


class Config(Params):
    """What judge_preferences reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    model: ModelConfig
    engine: Literal["transformers", "vllm"]
    judge_preferences: JudgingConfig


def main(name: str, train: str, heldout: str, judge: str) -> None:
    """Write `train.jsonl`, `heldout.jsonl`, `verdicts.jsonl` and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"judge_preferences@{name}", output, gpu=True) as run:
        config = params.load(Config)
        settings = config.judge_preferences
        seed = derive(config.seed, "judge_preferences")
        prompts = judging.Prompts(style=settings.style, constitution=settings.constitution)
        chooser = choosers.load(
            settings.judge,
            judge,
            OPTIONS,
            settings.reasoning,
            engine=config.engine,
            model=config.model,
            compute=config.compute,
            cache=PIPE / "judge-cache",
        )
        metrics: dict[str, Any] = {"trained_tokens": 0}
        verdicts, cost, asked, said = [], Counter(), [], []
        for file, pool in {"train": train, "heldout": heldout}.items():
            asked = draw(settings, prompts, pool, SPLITS[file], seed)
            parts = progress.track(judging.chunks(asked), label=f"judge {pool}")
            said, spent = judging.judge(chooser, parts, prompts, settings.rule, file)
            metrics[file] = judge_quality.summarise(said, *verified.facts(asked), seed)
            rows = judged_preferences.preferences(asked, said, settings.rule)
            with outputs.replace(output / f"{file}.jsonl") as temporary:
                lines.write(temporary, rows)
            verdicts += said
            cost += spent
        flips, spent = injection_rate.flips(
            chooser, asked, said, prompts, settings.rule, num_pairs=settings.injection_pairs
        )
        metrics["injection"] = judge_quality.flip_rates(flips, seed)
        metrics |= judge_work.summary(judge, cost + spent, config.model)
        run.log(0, policy_metrics.flattened(metrics))
        metrics["judge"] = settings.judge.model_dump()
        with outputs.replace(output / "verdicts.jsonl") as temporary:
            lines.write(temporary, verdicts)
        outputs.write_json(output / "metrics.json", metrics)


def draw(
    settings: JudgingConfig, prompts: judging.Prompts, pool: str, split: str, seed: int
) -> list[judging.Pair]:
    """The pairs to be judged of a pool of the problems of `split`."""
    problems = pools.by_problem(
        lines.read(PROMPTS / f"{split}.jsonl", Prompt),
        lines.read(POOLS / pool / "pool.jsonl", Completion),
    )
    return judging.pairs(problems, prompts, max_pairs=settings.max_pairs_per_problem, seed=seed)


if __name__ == "__main__":
    process.run(main)
