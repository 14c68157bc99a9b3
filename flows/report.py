"""One line a stage: what happened to it, for people."""

from collections import Counter

from rich.console import Console
from rich.table import Table

from flows.execute import Outcome, Result
from flows.plan import PlannedStage

STYLES = {
    Outcome.EXECUTED: "green",
    Outcome.RESTORED: "cyan",
    Outcome.SKIPPED: "dim",
    Outcome.FAILED: "bold red",
    Outcome.BLOCKED: "yellow",
}


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
