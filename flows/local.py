"""Run independent stages side by side, without Prefect.

    python -m flows.local -j 3                 everything
    python -m flows.local -j 2 train@grpo      one stage and what it needs
    python -m flows.local --remote             restore what other clones computed, share the rest
    python -m flows.local -n                   only list what would run, and why; unlike `dvc repro
                                               --dry` also where an input is still to be made.
                                               First plan and trace_code run, if out of date: plan
                                               deletes the outputs of rows that are gone
    python -m flows.local -q                   print nothing but the table where a stage failed

-j is short for --max-parallel, -n for --dry-run, -q for --quiet. --timeout-hours 12 bounds each
stage.

The result is that of `dvc repro`. Stages lock the GPUs they use by themselves, so `-j` may exceed
the number of GPUs.
"""

import argparse
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from flows import command_line
from flows.display import STYLES, StageLines
from flows.execute import Result, StageOutcome, run_stage
from flows.plan import StageNode, make_plan
from flows.process import Runner, exit_when_terminated
from flows.share import push_current, run_shared

logger = logging.getLogger(__name__)
REPORT = Path("data/report")
WAKE_SECONDS = 1.0
"""Longest time until an interrupt is noticed."""


def count(text: str) -> int:
    """A number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, found {number}")
    return number


def make_parser(program: str, description: str | None) -> argparse.ArgumentParser:
    """Parser of the options of both command lines."""
    parser = command_line.make_parser(program, description)
    parser.add_argument("stages", nargs="*", help="stages or tables; none: all")
    parser.add_argument("-j", "--max-parallel", type=count, default=2, metavar="N")
    parser.add_argument("--timeout-hours", type=float, help="for each stage")
    parser.add_argument("--remote", action="store_true", help="share results by the DVC remote")
    return parser


def main() -> int:
    """Run the command line; returns its exit status."""
    parser = make_parser("flows.local", __doc__)
    parser.add_argument("-n", "--dry-run", action="store_true", help="only list what would run")
    text = "print nothing but the table where a stage failed"
    parser.add_argument("-q", "--quiet", action="store_true", help=text)
    options = parser.parse_args()
    exit_when_terminated()
    runner = Runner(root=Path.cwd(), timeout_hours=options.timeout_hours)
    run = run_shared if options.remote else run_stage

    console = Console()
    display = StageLines(console, is_quiet=options.quiet)

    def run_node(node: StageNode) -> Result:
        if not node.changes:
            return Result(outcome=StageOutcome.SKIPPED)
        log, show = partial(display.log, node.name), partial(display.show, node.name)
        display.begin(node.name)
        of_stage = replace(runner, log=log, show=show if display.is_live else None)
        result = run(node.name, of_stage)
        display.end(node.name, result)
        return result

    plan = make_plan(runner.root, options.stages)
    stale = [node for node in plan.values() if node.changes]
    if options.dry_run:
        lines = [f"{node.name}: {'; '.join(node.changes)}" for node in stale]
        print("\n".join(lines or ["Every stage is up to date."]))
        return 0
    if options.remote:
        push_current(plan, runner)
    with display:
        results = run_plan(plan, run_node, runner, options.max_parallel)
    is_good = all(result.outcome.good for result in results.values())
    with suppress(BrokenPipeError):  # the reader has ended
        if is_good and display.is_live:
            console.print(summary(results))
        elif not (is_good and options.quiet):
            print_report(plan, results)
        if is_good and not options.quiet:
            print_verdict(runner.root, results)
    return 0 if is_good else 1


def run_plan(
    plan: dict[str, StageNode],
    run: Callable[[StageNode], Result],
    runner: Runner,
    max_parallel: int,
) -> dict[str, Result]:
    """Bring every stage of the plan up to date; a failure blocks only the stages that need it.

    Args:
        plan: from `make_plan`.
        run: runs one stage, in a thread.
        runner: cancelled if this function is interrupted, so that the threads end.
        max_parallel: largest number of stages at a time.

    Returns:
        One result for each stage, in the plan's order.
    """
    results: dict[str, Result] = {}
    names: dict[Future[Result], str] = {}
    sorter = TopologicalSorter({name: node.upstream for name, node in plan.items()})
    sorter.prepare()
    with ThreadPoolExecutor(max_parallel) as pool:
        try:
            while sorter.is_active():
                for name in sorter.get_ready():
                    failed = [key for key in plan[name].upstream if not results[key].outcome.good]
                    if failed:
                        reason = f"needs {', '.join(failed)}"
                        results[name] = Result(outcome=StageOutcome.BLOCKED, reason=reason)
                        sorter.done(name)
                    else:
                        # In a copy of this context, which has Prefect's flow run.
                        names[pool.submit(copy_context().run, run, plan[name])] = name
                # A signal just before this thread sleeps is handled only when it wakes.
                finished = wait(names, timeout=WAKE_SECONDS, return_when=FIRST_COMPLETED).done
                for future in finished:
                    name = names.pop(future)
                    results[name] = read_result(future, name)
                    sorter.done(name)
        except BaseException:
            # Cancel the waiting stages first, or a freed thread would begin one.
            pool.shutdown(wait=False, cancel_futures=True)
            runner.cancel.set()
            raise
    return {name: results[name] for name in plan}


def read_result(future: "Future[Result]", name: str) -> Result:
    """Result of a finished thread; an error in the flow itself is a failure of the stage."""
    error = future.exception()
    if error is None:
        return future.result()
    logger.error("%s: error in the flow itself", name, exc_info=error)
    return Result(outcome=StageOutcome.FAILED, reason=f"in the flow: {error!r}")


def table_rows(plan: dict[str, StageNode], results: dict[str, Result]) -> list[dict[str, Any]]:
    """Rows of the report, in the plan's order."""
    return [
        {
            "stage": name,
            "outcome": result.outcome.value,
            "seconds": round(result.seconds, 1),
            "attempts": result.attempts,
            "gpu": plan[name].gpu,
            "why": result.reason
            or "; ".join(
                [*plan[name].changes[:2], *(["..."] if len(plan[name].changes) > 2 else [])]
            ),
        }
        for name, result in results.items()
    ]


def summary(results: dict[str, Result]) -> str:
    """`3 executed, 1 restored`."""
    counts = Counter(result.outcome for result in results.values())
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in StageOutcome if counts[outcome])


def print_report(plan: dict[str, StageNode], results: dict[str, Result]) -> None:
    """Print the table and the summary."""
    table = Table()
    for column in ("stage", "outcome", "seconds", "why"):
        justify = "right" if column == "seconds" else "left"
        table.add_column(column, justify=justify, overflow="fold")
    for row in table_rows(plan, results):
        outcome = f"[{STYLES[StageOutcome(row['outcome'])]}]{row['outcome']}[/]"
        table.add_row(row["stage"], outcome, str(row["seconds"]), row["why"].replace("[", r"\["))
    console = Console()
    console.print(table)
    console.print(summary(results))


def print_verdict(root: Path, results: dict[str, Result]) -> None:
    """Print the verdict and the report's path, unless the stage `track` has just done so."""
    report = root / REPORT
    verdict = report / "verdict.txt"
    track = results.get("track")
    if track is None or track.outcome is StageOutcome.EXECUTED or not verdict.is_file():
        return
    print(f"\n{verdict.read_text(encoding='utf-8').strip()}")
    if (report / "report.html").is_file():
        print(f"\nThe report: {REPORT}/report.html")


if __name__ == "__main__":
    command_line.run(main)
