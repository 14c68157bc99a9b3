"""Methods trained with several seeds at the same budget of tokens, and the verdict.

Plain Python: how the stages of a seed are run is the caller's business, as in `schedule`. The
statistics are those of `stages.compare_seeds`, a process of its own.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flows import workspace
from flows.execute import Result

WORKSPACES = Path(".pipe/compare")
RunStages = Callable[[Path, list[str]], dict[str, Result]]
"""Bring stages of the repository in a folder, and what they need, up to date."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What is compared."""

    policies: tuple[str, ...]
    """Entries of `evaluate_policy` of the recipe."""
    seeds: tuple[int, ...]
    tokens: int
    """Generated and trained on for a policy, with what its pairs and reward models cost."""
    recipe: str | None
    """None: the one that is planned."""
    name: str
    """Of the folder under `data/compare`."""


def parser(program: str, description: str | None) -> argparse.ArgumentParser:
    """The command line, the same with Prefect and without."""
    made = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.add_argument("--policies", required=True, help="two or more, separated by commas")
    made.add_argument("--seeds", default="0,1,2", help="separated by commas (default: 0,1,2)")
    made.add_argument("--tokens", required=True, type=int, help="the budget of each policy")
    made.add_argument("--recipe", help="of recipes.yaml; none: the plan")
    made.add_argument("--name", help="folder under data/compare; none: made of the policies")
    made.add_argument("-j", "--max-parallel", type=int, default=1, metavar="N")
    made.add_argument("--timeout-hours", type=float, help="for each stage")
    return made


def of(
    policies: list[str], seeds: list[int], tokens: int, recipe: str | None, name: str | None
) -> Comparison:
    """What these words ask for.

    Raises:
        ValueError: fewer than two policies, no seed, one of them twice, or no tokens.
    """
    for kind, words, least in (("policies", policies, 2), ("seeds", seeds, 1)):
        if len(words) < least or len(set(words)) < len(words):
            raise ValueError(f"{kind}: expected {least} or more, each once, found {words}")
    if tokens < 1:
        raise ValueError(f"tokens: expected a budget of at least 1, found {tokens}")
    return Comparison(
        policies=tuple(policies),
        seeds=tuple(seeds),
        tokens=tokens,
        recipe=recipe,
        name=name or "-".join([*policies, str(tokens)]),
    )


def words(arguments: argparse.Namespace) -> Comparison:
    """What a command line of `parser` asks for.

    Raises:
        ValueError: see `of`.
    """
    return of(
        arguments.policies.split(","),
        [int(seed) for seed in arguments.seeds.split(",")],
        arguments.tokens,
        arguments.recipe,
        arguments.name,
    )


def run(root: Path, wanted: Comparison, run_stages: RunStages) -> Path:
    """Train every policy with every seed, and write the verdict; the folder that holds it.

    For each seed first what the policies are made from: what that cost is the part of the budget
    that is gone before a policy's own training begins. What was computed before, by a run that was
    killed too, is not computed again.

    Raises:
        ValueError: a word names nothing, or the budget is too small.
        RuntimeError: a stage failed.
    """
    folder = WORKSPACES / wanted.name
    policies = ",".join(wanted.policies)
    for seed in wanted.seeds:
        copy = root / folder / f"seed-{seed}"
        workspace.prepare(root, copy, seed=seed, recipe=wanted.recipe)
        for command in (["needed", policies], ["budget", policies, str(wanted.tokens)]):
            found = json.loads(stage("stages.share_tokens", command, copy))
            results = run_stages(copy, found)
            failed = [name for name, result in results.items() if not result.outcome.good]
            if failed:
                raise RuntimeError(f"seed {seed}: {', '.join(failed)} failed; see above")
    seeds = ",".join(map(str, wanted.seeds))
    stage(
        "stages.compare_seeds",
        [wanted.name, policies, seeds, str(wanted.tokens), folder.as_posix()],
        root,
    )
    try:
        print(stage("stages.track_comparison", [wanted.name], root))
    except ValueError as error:
        # the verdict is written, and a view of it must not cost it
        print(error, file=sys.stderr)
    return root / "data/compare" / wanted.name


def stage(module: str, arguments: list[str], root: Path) -> str:
    """What a module of stages prints, run in `root`.

    Raises:
        ValueError: it failed.
    """
    return "\n".join(workspace.listed([sys.executable, "-m", module, *arguments], root))
