"""Compare the policies: what each method gained over SFT, how surely, and at what cost.

Reads what evaluate_policy wrote for each policy, the metrics and run records of the
stages that made it, and the rollouts of the reinforcement-learning runs; writes
`metrics.json`, `report.md` and `plots/` (PNG and CSV). Differences are paired by problem
(Miller 2024, https://arxiv.org/abs/2411.00640).

This is a leaf: it is the one stage that reads others' `run/` folders, for the seconds,
and so the one stage outside `run/` whose output holds a time.
"""

import json
from pathlib import Path
from typing import Any

import pydantic

from stages import params, seeding
from stages.params import Params
from stages.records import lines
from stages.records.problem_result import ProblemResult
from stages.records.rollout import Rollout
from stages.reports import (
    comparison_plots,
    comparison_report,
    costs,
    learning_curve,
    policy_comparison,
)
from stages.runtime import outputs, runs

DATA = Path("data")
OUTPUT = DATA / "compare_policies"
PREFERENCES = "sample_candidates/sft-preference"
MADE_BY = {
    "sft": ("train_sft",),
    "dpo": (PREFERENCES, "compute_ref_logprobs", "train_dpo"),
    "ppo": (PREFERENCES, "train_reward_model", "train_ppo"),
    "grpo": ("train_grpo",),
}
"""Policy -> the stages that its cost is of; SFT, which all start from, is counted once."""
ROLLOUTS = ("ppo", "grpo")


class ComparePolicies(Params):
    """How the paired differences are bootstrapped."""

    num_bootstrap: int = pydantic.Field(ge=100)
    """Resamples of the problems for each interval."""
    confidence: float = pydantic.Field(gt=0, lt=1)
    """Coverage of the intervals of the differences; that of evaluate_policy, to be read alike."""


class Config(Params):
    """What compare_policies reads of params.yaml."""

    seed: int
    compare_policies: ComparePolicies


def main() -> None:
    """Write `metrics.json`, `report.md` and `plots/`."""
    with runs.start("compare_policies", OUTPUT) as run:
        config = params.load(Config)
        evaluations = {policy: read_json("evaluate_policy", policy) for policy in MADE_BY}
        comparison = policy_comparison.compare(
            evaluations,
            {policy: results(policy) for policy in MADE_BY},
            num_resamples=config.compare_policies.num_bootstrap,
            confidence=config.compare_policies.confidence,
            seed=seeding.derive(config.seed, "compare_policies"),
        )
        spent = {stage: cost(stage) for stages in MADE_BY.values() for stage in stages}
        comparison["costs"] = {
            policy: costs.entry(stages, spent) for policy, stages in MADE_BY.items()
        }
        curves = {policy: curve(policy) for policy in ROLLOUTS}
        with outputs.replace(OUTPUT / "plots") as temporary:
            images = comparison_plots.draw(temporary, evaluations, curves)
        report = comparison_report.render(
            comparison, evaluations, images=[f"plots/{image}" for image in images]
        )
        with outputs.replace(OUTPUT / "report.md") as temporary:
            temporary.write_text(report, encoding="utf-8")
        with outputs.replace(OUTPUT / "metrics.json") as temporary:
            temporary.write_text(json.dumps(comparison, indent=2) + "\n", encoding="utf-8")
        for name, policy in comparison["policies"].items():
            run.log(0, {f"{name}/mean_accuracy": policy["mean_accuracy"]})


def results(policy: str) -> list[ProblemResult]:
    """What the policy did on each test problem."""
    return list(lines.read(DATA / f"evaluate_policy/{policy}/per_problem.jsonl", ProblemResult))


def curve(policy: str) -> list[learning_curve.CurvePoint]:
    """What the policy's rollouts were like while it was trained."""
    return learning_curve.points(lines.read(DATA / f"train_{policy}/rollouts.jsonl", Rollout))


def cost(stage: str) -> costs.Cost:
    """What one stage spent."""
    metrics = read_json(stage)
    return costs.Cost(
        generated_tokens=metrics["generated_tokens"],
        trained_tokens=0 if stage == PREFERENCES else metrics["trained_tokens"],
        seconds=read_json(stage, name="run/run.json")["seconds"],
    )


def read_json(*folders: str, name: str = "metrics.json") -> dict[str, Any]:
    """A JSON file that another stage wrote."""
    return json.loads(DATA.joinpath(*folders, name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
