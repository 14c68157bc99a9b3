"""Study that retrains rows of the pipeline with other settings.

    python -m studies retrain@staleness

An experiment of params.yaml names rows and variants of them. Each variant is trained with every
seed in a copy of the run (`copies`), where all else is the same. The parents of the rows are shared
with the run, or also made again if the variant changes params.yaml. So differences from the run are
paired by seed and by problem. The report also compares the standard deviation of accuracy between
variants with that between seeds: a smaller difference would change with the seed.

An experiment with `tokens` in place of variants trains its rows until each has spent the same
number of generated and trained tokens. The parents of a row (pairs, reward models, the policies
that it starts from) count first, in full for every row that needs them; the baseline and its
parents do not count. These rows are compared with each other and with the baseline.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints, model_validator

from stages import plan_checks
from stages.config import PARAMS_PATH, PRESET, Params, merge, read_yaml
from stages.loops.run import Run
from stages.params import load_preset
from stages.records import lines, pools
from stages.rewards import reward_file
from stages.rewards.answer_checker import solves_problem
from stages.rows import DATA, seed_folder
from stages.runtime import outputs, process
from stages.tables import TableRow
from studies import copies, retrain_metrics
from studies import study as studies
from studies.copies import Plan
from studies.retrain_metrics import RUN, Cell, SeedResult

BUDGETED = ("dpo", "ppo", "grpo")
"""Kinds of policies whose training ends with a budget."""
KEPT = ("seeds", "data_seed", "data", "model", "temperatures")
"""Sections that no variant may change: copies share problems, base model and seeds with the run,
and all comparisons have one temperature."""
BUDGET = "budget"
"""Variant of an experiment with `tokens`."""
POLICIES, REWARDS = "policies", "rewards"
Name = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$")]
"""Name of a folder."""


class Variant(Params):
    """Settings of a row that differ from the run's."""

    preset: dict[str, Any] = Field(default_factory=dict)
    """Keys of the row's preset."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Changes of sections of params.yaml that the row reads. The parents of the row are made again
    with them, too."""


class Experiment(Params):
    """Rows, and their variants or token budget."""

    rows: list[str] = Field(min_length=1)
    """`policies/<row>` or `rewards/<row>`."""
    variants: dict[Name, Variant] = Field(default_factory=dict)
    tokens: int | None = Field(default=None, ge=1)
    """Budget, in place of variants: tokens that each row and seed may generate and train on."""

    @model_validator(mode="after")
    def _check_kind(self) -> "Experiment":
        if bool(self.variants) == (self.tokens is not None):
            raise ValueError("expected either variants or tokens: name one of them")
        if RUN in self.variants:
            raise ValueError(f"expected no variant called {RUN}, which is the run: rename it")
        return self


class Experiments(studies.Certainty):
    """The study's table."""

    experiments: dict[Name, Experiment]


class Config(Params):
    """Keys that the study reads."""

    seeds: list[int]
    baseline: str
    retrain: Experiments


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """An experiment, with the parts of the run that its training in copies needs."""

    experiment: Experiment
    plan: Plan
    baseline: str

    def list_cells(self) -> list[Cell]:
        """(row, variant) of all measured policies and rewards, those of the run first."""
        rows = self.experiment.rows
        if self.experiment.tokens is not None:
            return [(f"{POLICIES}/{self.baseline}", RUN), *((row, BUDGET) for row in rows)]
        return [(row, variant) for row in rows for variant in (RUN, *self.experiment.variants)]


def main(name: str) -> None:
    """Write the rows of each seed, `metrics.json` and `report.md` of an experiment."""
    with studies.start_study(f"retrain@{name}", plots=False) as study:
        config = studies.load_study_config(Config, "retrain")
        experiment, plan = config.retrain.experiments[name], outputs.read_json(DATA / "plan.json")
        task = Task(experiment=experiment, plan=plan, baseline=config.baseline)
        check_rows(f"retrain.experiments.{name}", task)
        spent_by_seed = study.for_each_seed(config.seeds, partial(train_seed, task), gpu=False)
        cells = task.list_cells()
        results = {
            (row, variant): [
                list(lines.read_lines(locate_results(folder, row, variant), SeedResult))
                for folder in (study.rows / str(seed) for seed in config.seeds)
            ]
            for row, variant in cells
        }
        metrics = retrain_metrics.compare_cells(
            results, config.seeds,
            confidence=config.retrain.confidence, are_rivals=experiment.tokens is not None,
        )  # fmt: skip
        metrics["tokens"] = experiment.tokens
        metrics["spent"] = [*itertools.chain(*spent_by_seed.values())]
        report = studies.render(
            "retrain", name=name, rows=experiment.rows, baseline=config.baseline,
            measures=retrain_metrics.MEASURES,
            no_verdict=studies.explain_no_verdict(len(config.seeds)), **metrics,
        )  # fmt: skip
        study.write(metrics, report)


def check_rows(place: str, task: Task) -> None:
    """Raise a ValueError unless the rows exist, fit together, and their variants change them."""
    experiment, plan = task.experiment, task.plan
    for row in experiment.rows:
        table, _, name = row.partition("/")
        words = plan.get(table, {}).get(name)
        if words is None or table not in (POLICIES, REWARDS):
            raise ValueError(
                f"{place}.rows: expected `policies/<row>` or `rewards/<row>` of {PARAMS_PATH}, "
                f"found {row}"
            )
        if experiment.tokens is not None and (
            words.get("train") not in BUDGETED or name == task.baseline or len(experiment.rows) < 2
        ):
            raise ValueError(
                f"{place}.rows: expected two or more policies of the kinds {', '.join(BUDGETED)} "
                f"beside the baseline, found {', '.join(experiment.rows)}"
            )
        preset, params = load_preset(words["preset"]), read_yaml()
        for variant, changes in experiment.variants.items():
            check_params(f"{place}.variants.{variant}.params", plan, row, changes.params)
            if merge(preset, changes.preset) == preset and merge(params, changes.params) == params:
                raise ValueError(
                    f"{place}.variants.{variant}: expected other values than {words['preset']} and "
                    f"{PARAMS_PATH} have, found the same: change one of them"
                )
    are_shared = experiment.tokens is not None or any(
        variant.preset for variant in experiment.variants.values()
    )
    for row, parent in itertools.permutations(experiment.rows, 2):
        if are_shared and parent in list_parents(plan, row):
            raise ValueError(f"{place}.rows: {row} is made from {parent}: take one of them")
    if len({*experiment.rows}) < len(experiment.rows):
        raise ValueError(f"{place}.rows: expected each row once, found {experiment.rows}")


def check_params(place: str, plan: Plan, row: str, params: Mapping[str, Any]) -> None:
    """Raise a ValueError for keys of params.yaml that do not affect a retrained row."""
    if not params:
        return
    table, name = row.split("/", 1)
    commands = [
        copies.make_row_command(above, other, plan[above][other])
        for above, other in copies.list_needed_rows(plan, table, name)
    ]
    commands += [copies.make_sample_command(name)] if table == POLICIES else []
    entry_points = plan_checks.load_entry_points()
    fields = {key for command in commands for key in entry_points[command.entry_point].model_fields}
    readable = fields - {*KEPT, PRESET}
    if unread := params.keys() - readable:
        raise ValueError(
            f"{place}: expected sections of {PARAMS_PATH} that {row} reads when it is retrained "
            f"({', '.join(sorted(readable))}), found {', '.join(sorted(unread))}: remove them"
        )
    words = TableRow(table=table, name=name, words=dict(plan[table][name]))
    section = params.get(words.kind, {})
    if fixed := words.overrides.keys() & (section if isinstance(section, Mapping) else ()):
        raise ValueError(
            f"{place}.{words.kind}: expected keys that the row {row} does not set itself, found "
            f"{', '.join(sorted(fixed))}: remove them here or in the row"
        )


def list_parents(plan: Plan, row: str) -> list[str]:
    """`<table>/<row>` of all rows that a row is made from, in the order in which they are made."""
    needed = copies.list_needed_rows(plan, *row.split("/", 1))
    return ["/".join(parent) for parent in needed[:-1]]


def train_seed(task: Task, run: Run, folder: Path) -> list[dict[str, Any]]:
    """Train all variants with one seed and write their results; returns tokens spent by each."""
    free = {*list_parents(task.plan, f"{POLICIES}/{task.baseline}"), f"{POLICIES}/{task.baseline}"}
    spent = []
    for row, variant in run.track(task.list_cells(), label="row"):
        data, before = DATA, 0
        if variant != RUN:
            if task.experiment.tokens is None:
                changes = task.experiment.variants[variant]
            else:
                parents = [parent for parent in list_parents(task.plan, row) if parent not in free]
                before = sum(sum(count_tokens(DATA, parent, run.seed)) for parent in parents)
                left = task.experiment.tokens - before
                if left <= 0:
                    raise ValueError(
                        f"{row}, seed {run.seed}, costs {before:,} tokens before its training, "
                        f"and the budget is {task.experiment.tokens:,}: raise `tokens` of the "
                        f"experiment"
                    )
                changes = Variant(preset={"token_budget": left})
            data = train_in_copy(run.folder / variant, task.plan, row, changes, run.seed)
        path = locate_results(folder, row, variant)
        path.parent.mkdir(exist_ok=True)
        lines.write_lines(path, read_results(data, row, run.seed))
        generated, trained = count_tokens(data, row, run.seed)
        if variant != RUN or task.experiment.tokens is None:
            spent.append({
                "row": row, "variant": variant, "seed": run.seed, "before": before,
                "generated": generated, "trained": trained,
            })  # fmt: skip
    return spent


def train_in_copy(path: Path, plan: Plan, row: str, changes: Variant, seed: int) -> Path:
    """Make a row in the copy at `path`, with one seed; returns the copy's data folder.

    If a variant changes params.yaml, all its rows share one copy, so that their parents are made
    once. Else each row has its own copy, with its preset.
    """
    table, name = row.split("/", 1)
    words, parents = plan[table][name], list_parents(plan, row)
    presets: dict[str, Any] = {}
    if changes.preset:
        path = path / table / name
        presets = {"again": merge(load_preset(words["preset"]), changes.preset)}
        words = {**words, "preset": "again"}
    params = merge(read_yaml(), changes.params) | {"seeds": [seed]}
    copy = copies.make_copy(
        path, share=() if changes.params else parents, changes=params, presets=presets
    )
    for parent in parents if changes.params else ():
        above, name_above = parent.split("/", 1)
        copy.run(copies.make_row_command(above, name_above, plan[above][name_above]))
    copy.run(copies.make_row_command(table, name, words))
    if table == POLICIES:
        copy.run(copies.make_sample_command(name))
    return copy.data


def locate_results(folder: Path, row: str, variant: str) -> Path:
    """The file with the results of a row; `folder`: of the seed's rows."""
    return folder / variant / f"{row.replace('/', '-')}.jsonl"


def read_results(data: Path, row: str, seed: int) -> Iterator[SeedResult]:
    """Results of a row: correctness of samples, or, for a reward, on held-out pairs."""
    table, name = row.split("/", 1)
    if table == REWARDS:
        metrics = outputs.read_json(seed_folder(data / row, seed) / "metrics.json")["heldout"]
        yield SeedResult(id="heldout", accuracy=metrics["accuracy"]["value"], greedy=None)
        return
    samples = data / f"samples/{name}/{seed}"
    sampled, greedy = (pools.read_split(samples, "test", file) for file in ("test", "test_greedy"))
    for (prompt, completions), (_, (only,)) in zip(sampled, greedy, strict=True):
        right = sum(solves_problem(prompt, row.completion) for row in completions)
        yield SeedResult(
            id=prompt.id,
            accuracy=right / len(completions),
            greedy=float(solves_problem(prompt, only.completion)),
        )


def count_tokens(data: Path, row: str, seed: int) -> tuple[int, int]:
    """Tokens that a row generated and trained on, with one seed; none for a rule."""
    folder = data / row
    table = row.partition("/")[0]
    if table == REWARDS and reward_file.read_reward(folder).kind == "rule":
        return 0, 0
    source = folder / "training" if table == POLICIES else folder
    metrics = outputs.read_json(seed_folder(source, seed) / "metrics.json")
    return metrics.get("generated_tokens", 0), metrics.get("trained_tokens", 0)


if __name__ == "__main__":
    process.run(main)
