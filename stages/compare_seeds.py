"""The verdict on policies trained with several seeds at equal tokens.

    python -m stages.compare_seeds <name> <policies> <seeds> <tokens> <workspaces>

No stage of the pipeline: `flows.compare` calls it when `<workspaces>/seed-<seed>` hold the test
pools of every policy. Writes `data/compare/<name>/`: verdict.md in words, metrics.json,
per_problem.jsonl. The unit is a problem under a seed; statistics: `algorithms/statistics/
crossed_means`. Its output holds the seconds that training took.
"""

import json
import sys
from pathlib import Path

from stages import params
from stages.params import Params
from stages.recipe import Recipe, evaluated
from stages.records import lines, pools
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.records.results import SeedResult
from stages.reports import costs, seed_costs, seed_verdict, stage_costs, verdict_words
from stages.reports.stage_costs import StageCost
from stages.rewards.answer_checker import is_correct
from stages.runtime import outputs, process

OUTPUT = Path("data/compare")
CONFIDENCE = 0.95
POWER = 0.8


class Planned(Params):
    """What it reads of each copy's recipes.yaml."""

    plan: Recipe


def main(name: str, policies: str, seeds: str, tokens: str, workspaces: str) -> None:
    """Write `verdict.md`, `metrics.json` and `per_problem.jsonl`."""
    copies = {int(seed): Path(workspaces) / f"seed-{seed}" for seed in seeds.split(",")}
    chosen, output = policies.split(","), OUTPUT / name
    plans = {
        seed: params.load(Planned, path=copy / params.PARAMS_PATH).plan
        for seed, copy in copies.items()
    }
    baseline = next(iter(plans.values())).baseline
    results = {
        policy: [row for seed in copies for row in judge(copies[seed], plans[seed], policy, seed)]
        for policy in (baseline, *chosen)
    }
    try:
        tables = {policy: seed_verdict.table(rows) for policy, rows in results.items()}
    except ValueError as error:
        sys.exit(str(error))
    verdict = seed_verdict.compare(tables, baseline, confidence=CONFIDENCE, power=POWER)
    verdict |= {"tokens": int(tokens), "budgets": chosen, "spent": []}
    for policy in chosen:
        for seed, copy in copies.items():
            made_by, entries = evaluated(plans[seed])[policy], costs.paid(plans[seed])[policy]
            paid = {entry: cost(copy / "data" / entry) for entry in entries}
            verdict["spent"].append(seed_costs.row(policy, seed, paid, made_by, int(tokens)))
    with outputs.replace(output / "per_problem.jsonl") as temporary:
        lines.write(temporary, (row for rows in results.values() for row in rows))
    outputs.write_json(output / "metrics.json", verdict)
    with outputs.replace(output / "verdict.md") as temporary:
        temporary.write_text(verdict_words.render(verdict), encoding="utf-8")


def judge(copy: Path, plan: Recipe, policy: str, seed: int) -> list[SeedResult]:
    """What the policy of one seed did on each test problem."""
    folder = copy / "data/sample_candidates" / plan.evaluate_policy[policy].pool
    prompts = list(lines.read(copy / "data/prepare_data/prompts/test.jsonl", Prompt))
    sampled = pools.by_problem(prompts, lines.read(folder / "pool.jsonl", Completion))
    greedy = pools.by_problem(prompts, lines.read(folder / "greedy.jsonl", Completion))
    return [
        SeedResult(
            policy=policy,
            seed=seed,
            id=prompt.id,
            num_samples=len(rows),
            num_correct=sum(is_correct(row.completion, prompt.answer) for row in rows),
            greedy_correct=is_correct(only.completion, prompt.answer),
        )
        for (prompt, rows), (_, (only,)) in zip(sampled, greedy, strict=True)
    ]


def cost(folder: Path) -> StageCost:
    """What one entry spent."""
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    record = json.loads((folder / "run/run.json").read_text(encoding="utf-8"))
    return stage_costs.read(metrics, record)


if __name__ == "__main__":
    process.run(main)
