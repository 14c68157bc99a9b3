"""Why results differ: the first causes for every stage, and how accuracy moved.

python -m flows.why                       the last commit, and this folder
python -m flows.why v1                    a commit, and this folder
python -m flows.why v1 v2                 two commits
python -m flows.why theirs/dvc.lock       another machine's file, and this folder

Reads two dvc.lock files and DVC's cache; runs and fetches nothing. A first cause is what differs
and no stage made: a row's words, a parameter, a source file, an input. Every one that precedes a
result is named with it. Where nothing differs but the result, its processors are named.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flows import lock
from flows.lock import Cache, LockedStage, Side
from stages.algorithms.statistics import crossed_means

CODE = ("data/code/", "data/own/")
"""Where trace_code writes which source files an entry point reads."""
EVALUATIONS = "data/evaluations/"
CONFIDENCE = 0.95
HEADLINES = {
    "data/rewards/": {
        "accuracy": ("heldout/accuracy", "heldout/labels/balanced_accuracy"),
        "AUC": ("heldout/auc", "heldout/labels/auroc_within_problem"),
    },
    "data/pairs/": {"agreement with the answer checker": ("heldout/agreement/averaged",)},
}
"""Folder -> what its metrics.json may tell, and where: the first that is there."""


def main() -> int:
    """Run the command line; the result is the exit status."""
    if len(sys.argv) > 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(describe(Path.cwd(), *sys.argv[1:]))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def describe(root: Path, old: str = "HEAD", new: str | None = None) -> str:
    """The text that tells two runs apart; each is a commit, a dvc.lock, or None: this folder.

    Raises:
        ValueError: there is no such commit or file, or it has no dvc.lock.
    """
    before, after = lock.side(root, old), lock.side(root, new)
    cache = lock.local_cache(root)
    made = [name for name, one in after.stages.items() if _results(one, name)]
    other = [name for name in made if name not in before.stages or _differs(name, before, after)]
    gone = [name for name in before.stages if name not in after.stages]
    told = f"{len(other)} of {len(made)} stages have other results"
    lines = [f"{before.name} and {after.name}: {told}"]
    own = {name: list(causes(name, before, after, cache)) for name in after.stages}
    first = first_causes(own, before, after, cache)
    reached: dict[str, list[str]] = {}
    for name in after.stages:
        if name in other:
            for cause in sorted(first[name]):
                reached.setdefault(cause, []).append(name)
    for names in dict.fromkeys(map(tuple, reached.values())):
        alike = [cause for cause, changed in reached.items() if tuple(changed) == names]
        lines += ["", *alike, f"  other results: {' '.join(names)}"]
    without = {cause: name for name in made if name not in other for cause in own[name]}
    idle = sorted(without.keys() - reached.keys())
    if idle:
        lines += ["", "Without effect on any result:", *(f"  {cause}" for cause in idle)]
    if gone:
        lines += ["", f"Only in {before.name}: {' '.join(gone)}"]
    moved = list(accuracies(before, after, cache))
    if moved:
        lines += ["", "Mean accuracy on the test problems, %, and the difference:", *moved]
    kept = [name for name in other if name in before.stages]
    if told := [line for name in kept for line in headlines(name, before, after, cache)]:
        lines += ["", "Of what else was learned or labelled, held out; means over seeds:", *told]
    return "\n".join(lines)


def causes(name: str, before: Side, after: Side, cache: Cache) -> Iterator[str]:
    """What differs in what a stage reads, and was made by no stage."""
    new = after.stages[name]
    if (old := before.stages.get(name)) is None:
        yield f"{name} is new"
        return
    if old.command != new.command:
        yield f"the row of {name}: {old.command} -> {new.command}"
    for key in sorted(old.parameters.keys() | new.parameters.keys()):
        values = [json.dumps(one.parameters.get(key, "not there")) for one in (old, new)]
        if values[0] != values[1]:
            yield f"{key}: {values[0]} -> {values[1]}"
    made = _makers(before) | _makers(after)
    for path in sorted(old.deps.keys() | new.deps.keys()):
        md5 = [one.deps.get(path, "") for one in (old, new)]
        if md5[0] == md5[1]:
            continue
        if path.startswith(CODE):
            yield from _sources(path, md5, before, after, cache)
        elif not _of(path, made) and name != "trace_code":
            yield f"{path}: other content"


def _sources(path: str, md5: list[str], before: Side, after: Side, cache: Cache) -> Iterator[str]:
    """The source files that differ, with what differs in them."""
    known = [json.loads(cache.bytes(one) or "{}") for one in md5]
    if not any(known):
        yield f"{path}: other source files; which ones is not in the cache"
        return
    # Of a commit whose run is not in the cache the files are there all the same.
    old, new = (
        one or {file: side.digest(file) for file in known[1 - number]}
        for number, (one, side) in enumerate(zip(known, (before, after), strict=True))
    )
    for file in sorted(old.keys() | new.keys()):
        if file not in old or file not in new:
            yield f"{file}: {'no longer read' if file in old else 'read now'}"
        elif old[file] != new[file]:
            is_same = before.digest(file) == old[file] and after.digest(file) == new[file]
            told = ""
            if is_same and file.endswith(".py"):
                changed = lock.functions(before.source(file).decode(), after.source(file).decode())
                told = ": " + (", ".join(changed) or "comments alone")
            yield f"{file}{told}"


def first_causes(
    own: Mapping[str, list[str]], before: Side, after: Side, cache: Cache
) -> dict[str, set[str]]:
    """For every stage: its own causes, those of other results that it reads, or its processors."""
    made = _makers(after)
    found: dict[str, set[str]] = {}

    def visit(name: str) -> set[str]:
        if name in found:
            return found[name]
        found[name] = set(own[name])
        old, new = before.stages.get(name), after.stages[name]
        if old is not None:
            read = [path for path, md5 in new.deps.items()
                    if md5 != old.deps.get(path) and not path.startswith(CODE)]  # fmt: skip
            for maker in {one for path in read for one in _of(path, made)} - {name}:
                if maker not in before.stages or _differs(maker, before, after):
                    found[name] |= visit(maker)
            if not found[name] and _differs(name, before, after):
                found[name] = {_processors(name, before, after, cache)}
        return found[name]

    for name in after.stages:
        visit(name)
    return found


def _processors(name: str, before: Side, after: Side, cache: Cache) -> str:
    found = []
    for one in (before, after):
        models = {
            json.loads(content).get("cpu", {}).get("model", "?")
            for md5 in one.stages[name].records.values()
            for path, own in (cache.files(md5) or {}).items()
            if path == "run.json" and (content := cache.bytes(own)) is not None
        }
        found.append(", ".join(models) or "an unknown processor")
    return f"nothing that {name} reads: it ran on {found[0]}, then on {found[1]}"


def accuracies(before: Side, after: Side, cache: Cache) -> Iterator[str]:
    """For each policy whose evaluation differs: accuracy before and after, and the difference."""
    for stage in after.stages:
        path = f"{EVALUATIONS}{stage.partition('@')[2]}"
        md5 = [one.stages[stage].outs.get(path, "") for one in (before, after)
               if stage in one.stages]  # fmt: skip
        if len(md5) < 2 or md5[0] == md5[1]:
            continue
        tables = [dict(cache.rows(one, "per_problem.jsonl")) for one in md5]
        seeds = sorted(tables[0].keys() & tables[1].keys())
        grids = [
            [{row["id"]: row["mean_accuracy"] for row in one[s]} for s in seeds] for one in tables
        ]
        ids = sorted(
            set.intersection(*(set(one) for grid in grids for one in grid)) if seeds else []
        )
        name = path.removeprefix(EVALUATIONS)
        if len(ids) < 2:
            yield f"  {name}: no problem and seed of both is in the cache"
            continue
        old, new = (np.array([[[one[i]] for i in ids] for one in grid]) for grid in grids)
        shown = [_percent(one) for one in (old, new, new - old)]
        yield f"  {name}: {shown[0]} -> {shown[1]}, {shown[2]} of the same {len(ids)} problems"


def headlines(name: str, before: Side, after: Side, cache: Cache) -> Iterator[str]:
    """How the headline metrics of a stage's outputs moved, in those seeds that both sides have."""
    for path, md5 in after.stages[name].outs.items():
        labels = next((one for folder, one in HEADLINES.items() if path.startswith(folder)), None)
        if labels is None:
            continue
        pair = [cache.metrics(one) for one in (before.stages[name].outs.get(path, ""), md5)]
        seeds = sorted({*pair[0]} & {*pair[1]})
        for label, places in labels.items():
            found = ([lock.number(one[seed], places) for seed in seeds] for one in pair)
            old, new = ([one for one in side if one is not None] for side in found)
            if not len(old) == len(new) == len(seeds) > 0:
                continue
            gains = [b - a for a, b in zip(old, new, strict=True)]
            means = [sum(one) / len(seeds) for one in (old, new, gains)]
            spread = f"{min(gains):+.3f} to {max(gains):+.3f} in {len(seeds)} seeds"
            told = f"{means[0]:.3f} -> {means[1]:.3f}, {means[2]:+.3f} ({spread})"
            yield f"  {path.removeprefix('data/')}, {label}: {told}"


def _percent(cells: Any) -> str:
    found = crossed_means.estimate_means(cells, confidence=CONFIDENCE)
    value, low, high = (100 * float(one[0]) for one in found[:3])
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"


def _results(stage: LockedStage, name: str) -> bool:
    return bool(stage.outs) and name not in ("plan", "trace_code", "track")


def _differs(name: str, before: Side, after: Side) -> bool:
    return before.stages[name].outs != after.stages[name].outs


def _makers(one: Side) -> dict[str, str]:
    return {path: name for name, stage in one.stages.items() for path in stage.outs}


def _of(path: str, made: Mapping[str, str]) -> set[str]:
    """The stages that made a file or folder, all of it or a part."""
    return {
        name
        for out, name in made.items()
        if f"{path}/".startswith(f"{out}/") or out.startswith(f"{path}/")
    }


if __name__ == "__main__":
    sys.exit(main())
