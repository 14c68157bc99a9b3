"""What the page is made from, read from the folders of other stages."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from stages import recipe
from stages.recipe import TABLES, Recipe
from stages.records import lines, pools
from stages.records.pools import Completion, Rollout, Score
from stages.records.problems import Prompt
from stages.reports import group_signal, learning_curve, policy_samples, training_series
from stages.reports.page import markdown_section
from stages.reports.page.section import Section
from stages.reports.policy_samples import PolicySamples
from stages.runtime import journal


def samples(data: Path, plan: Recipe, policy: str, prompts: list[Prompt]) -> PolicySamples:
    """What a policy did on the test problems."""
    folder = data / f"sample_candidates/{plan.evaluate_policy[policy].pool}"
    pool, greedy = (lines.read(folder / f"{name}.jsonl", Completion) for name in ("pool", "greedy"))
    return policy_samples.judge(prompts, pool, greedy)


def scores(
    data: Path, plan: Recipe, policies: dict[str, PolicySamples]
) -> dict[str, dict[str, Float[np.ndarray, "problem sample"]]]:
    """For each model that scored the baseline, the scores of each policy that it scored."""
    found: dict[str, dict[str, Float[np.ndarray, "problem sample"]]] = {}
    for policy, its_samples in policies.items():
        word = plan.evaluate_policy[policy].scores
        rows = list(lines.read(data / f"{word}.jsonl", Score))
        if not rows:
            continue
        entry = plan.score_candidates[recipe.maker(word).partition("/")[2]]
        of_problem = pools.scores(its_samples.problems, rows)
        for kind in rows[0].scores:
            matrix = np.array([[row.scores[kind] for row in pool] for pool in of_problem])
            found.setdefault(getattr(entry, kind), {})[policy] = matrix
    return {scorer: one for scorer, one in sorted(found.items()) if plan.baseline in one}


def training_runs(
    data: Path, plan: Recipe
) -> Iterator[tuple[str, dict[str, training_series.Series]]]:
    """Each entry that trained a policy by preferences or rewards, with its quantities."""
    for name in sorted(plan.train_dpo):
        yield f"train_dpo/{name}", training_series.of_journal(steps(data, f"train_dpo/{name}"))
    for _, entry in recipe.rollout_entries(plan):
        rollouts = list(lines.read(data / entry / "rollouts.jsonl", Rollout))
        curve, groups = learning_curve.points(rollouts), group_signal.points(rollouts)
        yield entry, training_series.of_rollouts(curve, groups, steps(data, entry))


def steps(data: Path, entry: str) -> list[tuple[int, dict[str, float]]]:
    """The journal of an entry, without times."""
    rows = journal.read(data / entry / "run/journal.jsonl")
    return [(row.index, dict(row.metrics)) for row in rows]


def reports(data: Path, plan: Recipe, stages: Sequence[str]) -> list[Section]:
    """The reports of the stages as sections, in their order; of a stage with entries, each."""
    entries: list[str] = []
    for stage in stages:
        names = sorted(getattr(plan, stage)) if stage in TABLES else []
        entries += [f"{stage}/{name}" for name in names] if stage in TABLES else [stage]
    return [report(data / entry, anchor=entry.replace("/", "-")) for entry in entries]


def report(folder: Path, *, anchor: str) -> Section:
    """A stage's report as a section."""
    text = (folder / "report.md").read_text(encoding="utf-8")
    return markdown_section.convert(text, folder=folder, anchor=anchor)
