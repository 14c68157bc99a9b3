"""Study: which method is best where all have cost the same number of tokens?

    python -m studies equal_tokens

Trains each policy with every seed again until it has spent a budget of generated and trained
tokens. The rows that a policy is made from (pairs, reward models, the policies that it starts from)
are paid first, in full for every policy that needs them; those that the baseline is made from are
free. Statistics: `token_verdict`. Each seed has copies of the run of its own, since what is left of
the budget differs between seeds.
"""

import itertools
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from stages.config import Params
from stages.loops.run import Run
from stages.params import load_preset
from stages.records import lines, pools
from stages.rewards import reward_file
from stages.rewards.answer_checker import solves_problem
from stages.rows import DATA, seed_folder
from stages.runtime import outputs, process
from studies import copies, token_report, token_verdict
from studies import study as studies
from studies.copies import Plan
from studies.token_verdict import SeedResult

BUDGETED = ("dpo", "ppo", "grpo")
"""Kinds of policies whose training ends with a budget."""


class EqualTokens(studies.Certainty):
    """Policies to compare, and the token budget."""

    policies: list[str]
    """Rows of `policies`, none made from another of them."""
    tokens: int = Field(ge=1)
    """Of each policy and seed, generated and trained on."""


class Config(Params):
    """Keys that the study reads."""

    seeds: list[int]
    baseline: str
    equal_tokens: EqualTokens


def main() -> None:
    """Write the rows of each seed, `metrics.json` and `report.md`."""
    with studies.start_study("equal_tokens", plots=False) as study:
        config = studies.load_study_config(Config, "equal_tokens")
        settings, plan = config.equal_tokens, outputs.read_json(DATA / "plan.json")
        check_policies(plan, settings.policies, config.baseline)
        spent = study.for_each_seed(config.seeds, partial(train_policies, config, plan), gpu=False)
        tables = {}
        for name in (config.baseline, *settings.policies):
            paths = [study.rows / f"{seed}/{name}.jsonl" for seed in config.seeds]
            results = [row for path in paths for row in lines.read_lines(path, SeedResult)]
            tables[name] = token_verdict.make_table(results)
        verdict = token_verdict.compare_policies(
            tables, config.baseline, confidence=settings.confidence
        )
        verdict |= {"tokens": settings.tokens, "budgets": settings.policies}
        verdict["spent"] = [*itertools.chain(*zip(*spent.values(), strict=True))]
        study.write(verdict, token_report.render_report(verdict))


def check_policies(plan: Plan, policies: list[str], baseline: str) -> None:
    """Raise a ValueError unless they are two or more, take a budget, and none is of another."""
    if len(set(policies)) < max(2, len(policies)):
        raise ValueError(f"equal_tokens.policies: expected two, each once, found {policies}")
    for name in policies:
        row = plan["policies"].get(name)
        if row is None or row["train"] not in BUDGETED or name == baseline:
            kinds = f"policies of the kinds {', '.join(BUDGETED)}"
            raise ValueError(f"equal_tokens.policies: expected {kinds}, found '{name}'")
    for name, second in itertools.permutations(policies, 2):
        if ("policies", second) in copies.list_needed_rows(plan, "policies", name):
            raise ValueError(f"'{name}' is made from '{second}': compare one of them")


def train_policies(config: Config, plan: Plan, run: Run, folder: Path) -> list[dict[str, Any]]:
    """Training of every policy of one seed within the rest of its budget; tokens spent by each."""
    settings, seed, spent = config.equal_tokens, run.seed, []
    write_results(folder / f"{config.baseline}.jsonl", DATA, config.baseline, seed)
    free = set(copies.list_needed_rows(plan, "policies", config.baseline))
    for name in run.track(settings.policies, label="policy"):
        row = plan["policies"][name]
        made_from = copies.list_needed_rows(plan, "policies", name)[:-1]
        before = sum(sum(count_tokens(DATA, *row, seed)) for row in made_from if row not in free)
        if before >= settings.tokens:
            raise ValueError(
                f"'{name}', seed {seed}, costs {before:,} tokens before its own training and the "
                f"budget is {settings.tokens:,}: raise equal_tokens.tokens"
            )
        preset = load_preset(row["preset"])
        copy = copies.make_copy(
            run.folder / name,
            share=["/".join(row) for row in made_from],
            changes={"seeds": [seed]},
            presets={"budgeted": preset | {"token_budget": settings.tokens - before}},
        )
        copy.run(copies.make_row_command("policies", name, {**row, "preset": "budgeted"}))
        copy.run(copies.make_sample_command(name))
        write_results(folder / f"{name}.jsonl", copy.data, name, seed)
        generated, trained = count_tokens(copy.data, "policies", name, seed)
        paid = {"before": before, "generated": generated, "trained": trained}
        total = sum(paid.values())
        overshoot = round(total / settings.tokens - 1.0, 6)
        spent.append({"policy": name, "seed": seed, **paid, "total": total, "overshoot": overshoot})
    return spent


def count_tokens(data: Path, table: str, name: str, seed: int) -> tuple[int, int]:
    """Tokens that a row generated and trained on, with one seed; a rule has spent none."""
    folder = data / table / name
    if table == "rewards" and reward_file.read_reward(folder).kind == "rule":
        return 0, 0
    source = folder / "training" if table == "policies" else folder
    metrics = outputs.read_json(seed_folder(source, seed) / "metrics.json")
    return metrics.get("generated_tokens", 0), metrics.get("trained_tokens", 0)


def write_results(path: Path, data: Path, policy: str, seed: int) -> None:
    """Accuracy of a policy's samples of one seed, a row a test problem."""
    samples = data / f"samples/{policy}/{seed}"
    sampled, greedy = (pools.read_split(samples, "test", name) for name in ("test", "test_greedy"))
    rows = (
        SeedResult(
            policy=policy,
            seed=seed,
            id=prompt.id,
            num_samples=len(samples),
            num_correct=sum(solves_problem(prompt, row.completion) for row in samples),
            greedy_correct=solves_problem(prompt, only.completion),
        )
        for (prompt, samples), (_, (only,)) in zip(sampled, greedy, strict=True)
    )
    lines.write_lines(path, rows)


if __name__ == "__main__":
    process.run(main)
