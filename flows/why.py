"""Explain why results differ, and how accuracy moved.

python -m flows.why                       the last commit, and this folder
python -m flows.why v1                    a commit, and this folder
python -m flows.why v1 v2                 two commits
python -m flows.why theirs/dvc.lock       another machine's file, and this folder

Reads two dvc.lock files and DVC's cache; runs and fetches nothing. A first cause is a difference in
what no stage wrote: a row's command, a parameter, a source file, an input file. Every one that a
result depends on is listed with it. If only the result differs, the processors are named. Studies
that were run are stages, too: `studies/checkpoints@grpo`.
"""

import ast
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np

from flows.command_line import make_parser, run
from flows.lock import Cache, FinishedRun, LockedStage, list_records, open_cache, open_run
from stages.algorithms.statistics import crossed_means

CODE = ("data/code/", "data/own/", "data/studies/trace_code/")
"""Folders with the source files that each entry point, and each study, reads."""
NO_RESULT = ("plan", "trace_code", "track", "studies/trace_code")
STUDIES = "studies/"
"""Prefix of the names of studies' stages."""
EVALUATIONS, PROMPTS = "data/evaluations/", "data/prompts"
RAW, INPUTS, RAW_FILES = "data/raw", "data/inputs.json", "data/raw.json"
"""The folder of the user's files, and plan's digests: of the source's files, and of all files."""
CONFIDENCE = 0.95


def main() -> None:
    """Run the command line."""
    parser = make_parser("flows.why", __doc__)
    parser.add_argument("runs", nargs="*", metavar="RUN", help="at most two: a commit or dvc.lock")
    runs = parser.parse_args().runs
    if len(runs) > 2:
        parser.error(f"expected at most two runs, found {' '.join(runs)}")
    print(describe(Path.cwd(), *runs))


def describe(root: Path, old: str = "HEAD", new: str | None = None) -> str:
    """Text on the differences of two runs: each a commit, a dvc.lock, or None for this folder.

    Raises:
        ValueError: there is no such commit or file, or it has no dvc.lock.
    """
    runs = RunComparison(open_run(root, old), open_run(root, new), open_cache(root))
    before, after = runs.before, runs.after
    results = [name for name, stage in after.stages.items() if stage.outs and name not in NO_RESULT]
    differing = [name for name in results if runs.differs(name)]
    lines = [
        f"{before.name} and {after.name}: {len(differing)} of {len(results)} stages have other "
        "results"
    ]
    causes = {name: list(runs.list_causes(name)) for name in after.stages}
    first_causes = runs.find_first_causes(causes)
    stages_by_cause: dict[str, list[str]] = {}
    for name in differing:
        for cause in sorted(first_causes[name]):
            stages_by_cause.setdefault(cause, []).append(name)
    causes_by_stages: dict[tuple[str, ...], list[str]] = {}
    for cause, names in stages_by_cause.items():
        causes_by_stages.setdefault(tuple(names), []).append(cause)
    for names, group in causes_by_stages.items():
        lines += ["", *group, f"  other results: {' '.join(names)}"]
    unchanged = {cause for name in results if name not in differing for cause in causes[name]}
    no_effect = [f"  {cause}" for cause in sorted(unchanged - stages_by_cause.keys())]
    lines += section("Without effect on any result:", no_effect)
    if gone := [name for name in before.stages if name not in after.stages]:
        lines += ["", f"Only in {before.name}: {' '.join(gone)}"]
    lines += section("Studies of earlier results, to run again:", list_outdated_studies(after))
    title = "Mean accuracy on the test problems, %, and the difference:"
    lines += section(title, runs.compare_accuracies())
    return "\n".join(lines)


def section(title: str, lines: Iterable[str]) -> list[str]:
    """An empty line, the title and the lines; nothing if there are no lines."""
    lines = list(lines)
    return ["", title, *lines] if lines else []


def list_outdated_studies(run: FinishedRun) -> Iterator[str]:
    """Studies of a run that read outdated outputs of its stages, with the paths of these."""
    outs = {path: md5 for stage in run.stages.values() for path, md5 in stage.outs.items()}
    for name, stage in run.stages.items():
        if name.startswith(STUDIES):
            paths = [path for path, md5 in stage.deps.items() if outs.get(path, md5) != md5]
            if paths:
                yield f"  {name.removeprefix(STUDIES)}: {', '.join(paths)}"


@dataclass(frozen=True, eq=False)
class RunComparison:
    """Two finished runs, and the cache with their outputs."""

    before: FinishedRun
    after: FinishedRun
    cache: Cache

    def differs(self, name: str) -> bool:
        """Whether a stage's outputs in the later run differ from those in the earlier one."""
        old = self.before.stages.get(name)
        return old is None or old.outs != self.after.stages[name].outs

    def changed_deps(self, name: str) -> dict[str, tuple[str, str]]:
        """Path -> MD5 before and after, of the dependencies of a stage that differ."""
        old, new = (run.stages[name].deps for run in (self.before, self.after))
        pairs = {path: (old.get(path, ""), new.get(path, "")) for path in sorted({*old, *new})}
        return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}

    def list_causes(self, name: str) -> Iterator[str]:
        """Differences in inputs of a stage that no stage wrote."""
        old, new = self.before.stages.get(name), self.after.stages[name]
        if old is None:
            _, at, row = name.partition("@")  # all stages of a new row have one cause
            is_new = at and all(each.partition("@")[2] != row for each in self.before.stages)
            yield f"the row {row} is new" if is_new else f"{name} is new"
            return
        if old.command != new.command:
            yield f"the row of {name}: {old.command} -> {new.command}"
        for key in sorted({*old.parameters, *new.parameters}):
            values = [json.dumps(run.parameters.get(key, "not there")) for run in (old, new)]
            if values[0] != values[1]:
                yield f"{key}: {values[0]} -> {values[1]}"
        stages = [*self.before.stages.values(), *self.after.stages.values()]
        outputs = {out for stage in stages for out in stage.outs}
        for path, md5 in self.changed_deps(name).items():
            is_output = any(overlaps(path, out) for out in outputs)
            if path.startswith(CODE):
                yield from self.list_source_changes(path, md5)
            elif not is_output and not name.endswith("trace_code"):
                yield from self.list_raw_changes(path) or [f"{path}: other content"]

    def list_raw_changes(self, path: str) -> list[str]:
        """The user's files at a path that are edited, new or gone; empty if that is unknown.

        For data/raw as a whole: the files that prepare_data reads, if any of these differs.
        """
        plans = [run.stages.get("plan") for run in (self.before, self.after)]
        for digests in (INPUTS, RAW_FILES) if path == RAW else (RAW_FILES,):
            contents = [plan and self.cache.read(plan.outs.get(digests, "")) for plan in plans]
            old, new = (json.loads(content or "{}") for content in contents)
            changes = [
                f"{file}: {'new' if file not in old else 'gone' if file not in new else 'edited'}"
                for file in sorted({*old, *new})
                if overlaps(file, path) and old.get(file) != new.get(file)
            ]
            if None not in contents and changes:
                return changes
        return []

    def list_source_changes(self, path: str, md5: Sequence[str]) -> Iterator[str]:
        """Source files that differ between two traces, with the functions that differ."""
        traces: list[dict[str, str]] = [json.loads(self.cache.read(key) or "{}") for key in md5]
        if not any(traces):
            yield f"{path}: other source files; which ones is not in the cache"
            return
        runs = (self.before, self.after)
        # A commit has its files even if the trace of its run is not in the cache.
        old, new = (
            trace or {file: digest_source(run, file) for file in opposite_run}
            for trace, run, opposite_run in zip(traces, runs, reversed(traces), strict=True)
        )
        for file in sorted({*old, *new}):
            if file not in old or file not in new:
                yield f"{file}: {'no longer read' if file in old else 'read now'}"
            elif old[file] != new[file]:
                # Sources may have been edited since the run.
                is_current = [digest_source(run, file) for run in runs] == [old[file], new[file]]
                names = ""
                if is_current and file.endswith(".py"):
                    sources = [run.source(file).decode() for run in runs]
                    names = ": " + (", ".join(changed_functions(*sources)) or "comments alone")
                yield f"{file}{names}"

    def find_first_causes(self, causes: Mapping[str, list[str]]) -> dict[str, set[str]]:
        """Stage -> its causes, and those of differing results that it reads.

        If there are none and its result differs, its processors.
        """
        first: dict[str, set[str]] = {}
        upstream = {
            name: self.changed_upstream(name) if name in self.before.stages else set[str]()
            for name in self.after.stages
        }
        for name in TopologicalSorter(upstream).static_order():
            first[name] = set(causes[name]).union(*(first[each] for each in upstream[name]))
            if not first[name] and self.differs(name):
                first[name] = {self.describe_processors(name)}
        return first

    def changed_upstream(self, name: str) -> set[str]:
        """Stages with differing results that a stage reads and did not read before."""
        new = self.after.stages[name].deps
        paths = [
            path for path in self.changed_deps(name) if path in new and not path.startswith(CODE)
        ]
        return {
            upstream
            for upstream, stage in self.after.stages.items()
            if upstream != name
            and any(overlaps(path, out) for path in paths for out in stage.outs)
            and self.differs(upstream)
        }

    def describe_processors(self, name: str) -> str:
        """Sentence with the processors of a stage's two runs, from their run records."""
        inputs = self.after.stages[name].inputs
        records = list_records(self.after.root, name, inputs)
        models = [record.get("cpu", {}).get("model", "?") for record in records]
        old, new = ["an unknown processor"] * max(0, 2 - len(models)) + models[-2:]
        return f"nothing that {name} reads: it ran on {old}, then on {new}"

    def compare_accuracies(self) -> Iterator[str]:
        """Accuracy before and after, with the difference, of policies with differing evaluations.

        A new policy has only its accuracy.
        """
        for name, stage in self.after.stages.items():
            policy, old_stage = name.partition("@")[2], self.before.stages.get(name)
            path = f"{EVALUATIONS}{policy}"
            md5 = ["" if run is None else run.outs.get(path, "") for run in (old_stage, stage)]
            if not md5[1] or md5[0] == md5[1]:
                continue
            files = [self.cache.read_files(key, "per_problem.jsonl") for key in md5]
            if old_stage is None:
                files[0] = files[1]
            seeds = sorted(files[0].keys() & files[1].keys())
            old, new = ([read_accuracies(side[seed]) for seed in seeds] for side in files)
            ids = sorted(set[str].intersection(*map(set, [*old, *new]))) if seeds else []
            if not all([*old, *new]):
                reason = "its completions were cut with a seed, so it was not evaluated"
                # prompts without gold answers have rows, but no accuracies
                if not all(side[seed] for side in files for seed in seeds):
                    yield f"  {policy}: {reason}"
                continue
            if len(ids) < 2:
                yield f"  {policy}: no problem and seed of both is in the cache"
                continue
            cells = [np.array([[[row[key]] for key in ids] for row in side]) for side in (old, new)]
            if old_stage is None:
                yield f"  {policy}: {format_percent(cells[1])} of {len(ids)} problems, new"
                continue
            # ids may be numbers of lines, which other problems have, too
            if self.read_test_prompts(old_stage) != self.read_test_prompts(stage):
                yield f"  {policy}: the test prompts of the two runs differ, so it is not compared"
                continue
            shown = [*map(format_percent, cells), format_percent(cells[1] - cells[0], lowest=-1.0)]
            difference = f"{shown[2]} of the same {len(ids)} problems"
            yield f"  {policy}: {shown[0]} -> {shown[1]}, {difference}"

    def read_test_prompts(self, stage: LockedStage) -> Any:
        """Test prompts of an evaluation; the digest of all prompts if the cache lacks them."""
        digest = stage.deps.get(PROMPTS, "")
        return self.cache.read_files(digest, "test.jsonl") or digest


def read_accuracies(content: bytes) -> dict[str, float]:
    """Mean accuracy of each problem by id, from a per_problem.jsonl; a prompt alone has none."""
    rows = map(json.loads, content.splitlines())
    return {row["id"]: row["mean_accuracy"] for row in rows if "mean_accuracy" in row}


def overlaps(path: str, out: str) -> bool:
    """Whether two paths are equal, or one is inside the other."""
    return f"{path}/".startswith(f"{out}/") or out.startswith(f"{path}/")


def digest_source(run: FinishedRun, path: str) -> str:
    """SHA-256 of a source file of a run."""
    return hashlib.sha256(run.source(path)).hexdigest()


def format_percent(cells: Any, *, lowest: float = 0.0) -> str:
    """Mean and interval of accuracies or gains `[seed, problem, 1]`, as `61.0 [36.2, 85.8]`."""
    means = crossed_means.estimate_means(cells, confidence=CONFIDENCE, largest=1.0)
    value, low, high = (100.0 * min(1.0, max(lowest, float(numbers[0]))) for numbers in means[:3])
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"


@functools.cache  # many stages read the same file
def changed_functions(old: str, new: str) -> list[str]:
    """Names of functions, methods and variables that differ, without comments and docstrings."""
    before, after = (dump_statements(ast.parse(text).body) for text in (old, new))
    return [name for name in before | after if before.get(name) != after.get(name)]


def dump_statements(body: list[ast.stmt], prefix: str = "") -> dict[str, str]:
    """Name -> syntax tree as text, of functions, classes without their bodies, and methods.

    All imports are under `imports`, and statements that bind no name under `statements`.
    """
    dumps: dict[str, str] = {}
    for node in body:
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        name = prefix + names[0] if names else "imports" if is_import else "statements"
        methods: dict[str, str] = {}
        if isinstance(node, ast.ClassDef):
            name = prefix + node.name
            methods = dump_statements(node.body, f"{name}.")
            node.body = []
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = prefix + node.name
            node.body = node.body[ast.get_docstring(node) is not None :]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring
        dumps[name] = dumps.get(name, "") + ast.dump(node)
        dumps |= methods
    return dumps


if __name__ == "__main__":
    run(main)
