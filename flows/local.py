"""Run the pipeline with independent stages side by side, in this process and without Prefect.

    python -m flows.local -j 3                 everything
    python -m flows.local -j 2 train@grpo      one stage and what it needs
    python -m flows.local --remote             what other clones made is restored, the rest shared

The result is that of `dvc repro`. GPU slots are file locks that the stages take
themselves, so `-j` may exceed the number of GPUs.
"""

import argparse
import logging
import queue
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

from flows.execute import Limits, Outcome, Result, run_stage
from flows.plan import PlannedStage, make_plan
from flows.process import StoppedError, exit_when_terminated
from flows.share import run_shared, share_current

logger = logging.getLogger(__name__)
Report = Callable[[Result], None]
STYLES = {
    Outcome.EXECUTED: "green",
    Outcome.RESTORED: "cyan",
    Outcome.SKIPPED: "dim",
    Outcome.FAILED: "bold red",
    Outcome.BLOCKED: "yellow",
}


def main() -> int:
    """Run the command line; the result is the exit status."""
    parser = argparse.ArgumentParser(prog="python -m flows.local", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("stages", nargs="*", help="stages or groups; none: all")
    parser.add_argument("-j", "--max-parallel", type=int, default=2, metavar="N")
    parser.add_argument("--timeout-hours", type=float, help="for each stage")
    parser.add_argument("--remote", action="store_true", help="share results by the DVC remote")
    arguments = parser.parse_args()
    exit_when_terminated()
    root = Path.cwd()
    hours = arguments.timeout_hours
    limits = Limits(timeout_seconds=None if hours is None else hours * 3600)
    try:
        plan = make_plan(root, arguments.stages)
        run = run_stage
        if arguments.remote:
            run = run_shared
            share_current(plan, root, on_line=print, cancel=threading.Event())
        results = run_local(plan, root, limits=limits, max_parallel=arguments.max_parallel, run=run)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print_report(plan, results)
    return 0 if all(result.outcome.good for result in results.values()) else 1


def run_local(
    plan: dict[str, PlannedStage],
    root: Path,
    *,
    limits: Limits,
    max_parallel: int,
    run: Callable[..., Result],
) -> dict[str, Result]:
    """Run the plan in a pool of threads; each watches one child process of `run`."""
    cancel = threading.Event()

    def work(stage: PlannedStage, report: Report) -> None:
        name = stage.node.name

        def on_line(line: str) -> None:
            print(f"{name} | {line}", flush=True)

        try:
            report(run(name, root, on_line=on_line, cancel=cancel, limits=limits))
        except StoppedError as error:
            report(Result(name=name, outcome=Outcome.FAILED, reason=str(error)))
        except Exception as error:
            # The scheduler waits for a report: without one it would wait for ever.
            logger.exception("%s: error in the flow itself", name)
            report(Result(name=name, outcome=Outcome.FAILED, reason=f"in the flow: {error!r}"))

    def start(stage: PlannedStage, report: Report) -> None:
        if stage.stale:
            pool.submit(work, stage, report)
        else:
            report(Result(name=stage.node.name, outcome=Outcome.SKIPPED))

    with ThreadPoolExecutor(max_workers=max_parallel) as pool:
        try:
            return run_plan(plan, start, max_parallel)
        except BaseException:
            cancel.set()  # else leaving the pool would wait for the stages to end
            raise


def run_plan(
    plan: dict[str, PlannedStage],
    start: Callable[[PlannedStage, Report], None],
    max_parallel: int,
) -> dict[str, Result]:
    """Bring every stage of the plan up to date; a failure blocks only what needs it.

    Args:
        plan: from `make_plan`, sources first.
        start: begins a stage and returns at once; later it calls its second argument,
            from any thread, exactly once.
        max_parallel: the most stages at one time.

    Returns:
        One result a stage, in the plan's order.
    """
    if max_parallel < 1:
        raise ValueError(f"max_parallel must be at least 1, found {max_parallel}")
    results: dict[str, Result] = {}
    waiting = dict(plan)
    running = 0
    finished: queue.SimpleQueue[Result] = queue.SimpleQueue()
    while waiting or running:
        for name, stage in list(waiting.items()):
            failed = [
                other
                for other in stage.node.upstream
                if other in results and not results[other].outcome.good
            ]
            if failed:
                del waiting[name]
                results[name] = Result(
                    name=name, outcome=Outcome.BLOCKED, reason=f"needs {', '.join(failed)}"
                )
            elif running < max_parallel and all(other in results for other in stage.node.upstream):
                del waiting[name]
                running += 1
                start(stage, finished.put)
        if running:
            result = finished.get()
            running -= 1
            results[result.name] = result
    return {name: results[name] for name in plan}


def table_rows(
    plan: dict[str, PlannedStage], results: dict[str, Result]
) -> list[dict[str, str | float | int]]:
    """The report as rows, the plan's order kept."""
    return [
        {
            "stage": name,
            "outcome": result.outcome.value,
            "seconds": round(result.seconds, 1),
            "attempts": result.attempts,
            "gpu": plan[name].node.gpu,
            "why": result.reason or why(plan[name]),
        }
        for name, result in results.items()
    ]


def why(stage: PlannedStage) -> str:
    """Why a stage had to be looked at, in a few words."""
    shown = [*stage.changes[:2], *(["..."] if len(stage.changes) > 2 else [])]
    if not shown and stage.stale_upstream:
        shown = ["after " + ", ".join(stage.stale_upstream[:3])]
    return "; ".join(shown)


def summary(results: dict[str, Result]) -> str:
    """`3 executed, 1 restored`."""
    counts = Counter(result.outcome for result in results.values())
    return ", ".join(f"{counts[kind]} {kind}" for kind in Outcome if counts[kind])


def print_report(plan: dict[str, PlannedStage], results: dict[str, Result]) -> None:
    """The table and the summary, on standard output."""
    table = Table()
    for column in ("stage", "outcome", "seconds", "why"):
        table.add_column(
            column, justify="right" if column == "seconds" else "left", overflow="fold"
        )
    for row in table_rows(plan, results):
        style = STYLES[Outcome(str(row["outcome"]))]
        table.add_row(
            str(row["stage"]),
            f"[{style}]{row['outcome']}[/]",
            f"{row['seconds']}",
            str(row["why"]).replace("[", r"\["),
        )
    console = Console()
    console.print(table)
    console.print(summary(results))


if __name__ == "__main__":
    sys.exit(main())
