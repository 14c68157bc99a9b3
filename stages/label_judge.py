"""Pairs of completions of a problem, of which a model says which is better (AI feedback).

    python -m stages.label_judge <pairs> --by judge --preset .. --from <judge> --on pools/<pool>

Reads a pool of each seed and the problems that it answers; draws pairs without looking at the
verifier; writes preferences (`train.jsonl`, `heldout.jsonl`) and every verdict. Lee et al. 2023,
"RLAIF", https://arxiv.org/abs/2309.00267; principles drawn from a constitution: Bai et al. 2022,
https://arxiv.org/abs/2212.08073. The verifier is asked afterwards, to measure the judge only.
"""

from collections import Counter
from functools import partial
from typing import Any, Literal

from pydantic import Field

from stages import stage
from stages.config import Params
from stages.engines import loading
from stages.engines.loading import SamplingConfig
from stages.loops import work
from stages.loops.run import Run
from stages.models import size
from stages.records import pools
from stages.records.preferences import Verdict
from stages.report import judge_quality
from stages.rewards.feedback import injections, judging
from stages.rewards.feedback.judging import LabelRule
from stages.rewards.feedback.prompts import Prompts, Style
from stages.runtime import process
from stages.seeding import derive_seed


class JudgePreset(Params):
    """Who judges, and how."""

    judge: loading.JudgeConfig
    style: Style
    """Of the message: `short` for the embedded model, which has learned it."""
    constitution: Literal["correct", "harmless", "none"]
    """A principle is drawn from it for each pair."""
    reasoning: loading.ReasoningConfig | None
    """What the judge writes before it chooses; null: nothing."""
    max_pairs_per_problem: int = Field(ge=1)
    rule: LabelRule
    injection_pairs: int = Field(ge=0)
    """Held-out pairs on which each attack on the judge is tried."""


class Config(SamplingConfig):
    """What label_judge reads of params.yaml, and its preset."""

    preset: JudgePreset


def main(*words: str) -> None:
    """Write `train.jsonl`, `heldout.jsonl`, `verdicts.jsonl` and `metrics.json` of each seed."""
    stage.run(label, "label", words, Config, gpu=True)


def label(run: Run) -> dict[str, Any]:
    """The pairs of one seed, judged by the judge of that seed."""
    config, row = run.config, run.row
    preset, seed = config.preset, derive_seed(run.seed, "label_judge")
    prompts = Prompts(style=preset.style, constitution=preset.constitution)
    chooser = config.load_judge(preset.judge, row.policy, run.seed, preset.reasoning)
    metrics: dict[str, Any] = {"trained_tokens": 0}
    cost: Counter[str] = Counter()
    verdicts, asked, said = [], [], []
    for side in pools.SIDES:
        problems = pools.read_pools(row.source, run.seed, side)
        asked = judging.pairs(problems, prompts, max_pairs=preset.max_pairs_per_problem, seed=seed)
        parts = judging.chunks(asked)
        judge = partial(judging.judge_parts, chooser, parts, prompts, preset.rule, side)
        kept, said = run.keep_parts(side, judge), []
        for part in run.track(kept, total=len(parts), label=side):
            said += [Verdict(**verdict) for verdict in part["verdicts"]]
            cost.update(part["tokens"])
        found = judging.preferences(asked, said, preset.rule)
        run.write(f"{side}.jsonl", found)
        metrics[side] = judge_quality.summarise_verdicts(said, *judging.facts(asked), seed)
        judge_quality.warn_of_low_mass(metrics[side], side)
        headline = judge_quality.select_headline(metrics[side])
        run.log(0, {f"{side}/{name}": value for name, value in headline.items()})
        verdicts += said
    flips, spent = injections.flips(
        chooser, asked, said, prompts, preset.rule, num_pairs=preset.injection_pairs
    )
    metrics["injection"] = judge_quality.estimate_flip_rates(flips, seed)
    is_ours = preset.judge.kind == "policy"
    judge_size = size.measure_policy(row.policy, run.seed, config.model) if is_ours else None
    metrics |= work.judged(cost + spent, judge_size)
    metrics["judge"] = preset.judge.model_dump()
    run.write("verdicts.jsonl", verdicts)
    return metrics


if __name__ == "__main__":
    process.run(main)
