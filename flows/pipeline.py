"""Run the pipeline as a Prefect flow, one task per stage.

    python -m flows.pipeline                   everything
    python -m flows.pipeline train@grpo -j 1   one stage and what it needs
    python -m flows.pipeline --remote          restore what other clones computed, share the rest
    python -m flows.pipeline --pools           each stage by an agent of the work pool that it needs
    python -m flows.pipeline --alert ops       a failure is sent to this notification block
    python -m flows.pipeline --pools --seeds   each seed of a stage by an agent, then joined by one

The graph is that of dvc.yaml, the cache is DVC's, and each stage runs as
`dvc --wait-for-lock repro -s <stage>`, so the result is that of `dvc repro`. Prefect adds the
schedule, the agents and the page that shows the run: its name says commit and stages, and its
artifacts are the table of stages, the verdict, the accuracies with their picture, and the report's
address. Without PREFECT_API_URL the flow starts a server for the time of its run.
Options -j and --timeout-hours as of `python -m flows.local`.
"""

import base64
import csv
from pathlib import Path
from typing import Annotated, Any

from prefect import Flow, flow
from prefect.artifacts import (
    create_image_artifact,
    create_link_artifact,
    create_markdown_artifact,
    create_table_artifact,
)
from prefect.blocks.abstract import NotificationBlock
from prefect.blocks.core import Block
from prefect.client.schemas.objects import FlowRun, State
from prefect.runtime import deployment
from prefect.runtime import flow_run as current_run
from prefect.states import Completed, Failed
from pydantic import Field

from flows.agents import Agents, check_server, failure_described, make_log, run_as_task
from flows.command_line import run
from flows.execute import Result, StageOutcome, run_stage
from flows.local import make_parser, print_report, run_plan, summary, table_rows
from flows.plan import StageNode, make_plan
from flows.process import Runner, exit_when_terminated
from flows.share import describe_commit, push_current, run_shared

MAX_WAITING = 64
"""Stages that agents compute at one time, at most; each has a thread here that waits."""
REPORT, LAST = Path("data/report"), "track"
"""The report, and the stage after which all that it shows is up to date."""


def name_run() -> str:
    """Name of a flow run: its deployment, if it has one, what it brings up to date, the commit."""
    stages = ", ".join(current_run.parameters.get("stages") or ["all stages"])
    prefix = f"{deployment.name}: " if deployment.name else ""
    return f"{prefix}{stages} at {describe_commit(Path.cwd())}"


async def send_alert(flow: Flow[..., Any], flow_run: FlowRun, state: State) -> None:  # noqa: ARG001
    """Send the message of a failed flow run to the notification block that `alert` names."""
    name = flow_run.parameters.get("alert")
    if name is None:
        return
    message = state.message or "no message"
    block = check_notifies(name, await Block.aload(name))
    await block.notify(message, subject=f"{flow_run.name}: {state.name}")


def check_notifies(name: str, block: object) -> NotificationBlock:
    """The block; a ValueError if it sends no notifications."""
    if not isinstance(block, NotificationBlock):
        raise ValueError(
            f"alert: {name}: expected a block that sends notifications, found a "
            f"{type(block).__name__}: `prefect block type ls` lists them"
        )
    return block


@flow(
    name="pipeline",
    flow_run_name=name_run,
    on_failure=[send_alert],
    on_crashed=[send_alert],
    persist_result=False,
)
def pipeline(
    stages: list[str] | None = None,
    max_parallel: Annotated[int, Field(ge=1)] = 2,
    timeout_hours: float | None = None,
    remote: bool = False,  # noqa: FBT001, FBT002 - a flow's parameters have names
    pools: bool = False,  # noqa: FBT001, FBT002
    seeds: bool = False,  # noqa: FBT001, FBT002
    alert: str | None = None,
) -> State:
    """Bring the stages, and the stages that they need, up to date.

    Args:
        stages: names of stages or of tables; none means all.
        max_parallel: largest number of stages at a time in this clone. Stages lock the GPUs
            they use by themselves.
        timeout_hours: for one attempt of one stage; none means no limit.
        remote: share results by the default DVC remote: `flows.share`.
        pools: have agents of the stages' work pools compute what the remote does not have.
        seeds: with `pools`, have each seed of such a stage computed by an agent, then joined.
        alert: notification block to which a failure is reported, for example `slack-webhook/team`.
    """
    if alert is not None:
        check_notifies(alert, Block.load(alert))
    runner = Runner(root=Path.cwd(), log=make_log(), timeout_hours=timeout_hours)
    plan = make_plan(runner.root, stages)
    if seeds and not pools:
        raise ValueError("seeds: expected pools, too, whose agents compute them. Add --pools.")
    agents = Agents(max_parallel, by_seed=seeds) if pools else None
    if remote or pools:
        push_current(plan, runner)

    states: dict[str, State] = {}

    def run_node(node: StageNode) -> Result:
        def work(runner: Runner) -> Result:
            if not node.changes:
                return Result(outcome=StageOutcome.SKIPPED)
            if agents is not None:
                return agents.run_stage(node, runner)
            return (run_shared if remote else run_stage)(node.name, runner)

        # These have ended; naming them draws the edges of the graph on Prefect's page.
        upstream = [states[name] for name in node.upstream]
        result, states[node.name] = run_as_task(node.name, work, runner, upstream)
        return result

    results = run_plan(plan, run_node, runner, MAX_WAITING if pools else max_parallel)
    table = table_rows(plan, results)
    create_table_artifact(key="pipeline", table=table, description=summary(results))
    if LAST in results and results[LAST].outcome.good:  # else the report is an earlier run's
        publish_report(runner.root)
    print_report(plan, results)
    good = all(result.outcome.good for result in results.values())
    return Completed(message=summary(results)) if good else Failed(message=summary(results))


def publish_report(root: Path) -> None:
    """Make the artifacts of what the report folder has."""
    report = root / REPORT
    verdict, accuracy, picture, page = (
        report / name
        for name in ("verdict.txt", "plots/accuracy.csv", "plots/accuracy.svg", "report.html")
    )
    if verdict.is_file():
        create_markdown_artifact(verdict.read_text(encoding="utf-8"), key="verdict")
    if accuracy.is_file():
        with accuracy.open(encoding="utf-8", newline="") as rows:
            table = [round_numbers(row) for row in csv.DictReader(rows)]
        create_table_artifact(table, key="accuracy", description="Accuracy on test problems")
    if picture.is_file():  # in the address itself: a server shows no file of its clients
        data = base64.b64encode(picture.read_bytes()).decode()
        create_image_artifact(
            f"data:image/svg+xml;base64,{data}", key="accuracy-plot", description=str(picture)
        )
    if page.is_file():
        create_link_artifact(page.as_uri(), key="report", description=str(page))


def round_numbers(row: dict[str, str]) -> dict[str, str | float]:
    """A row of accuracies with numbers as numbers, of four decimals; a policy's name may be `0`."""
    return {key: value if key == "policy" else round(float(value), 4) for key, value in row.items()}


def main() -> int:
    """Run the command line; returns its exit status."""
    parser = make_parser("flows.pipeline", __doc__)
    parser.add_argument("--alert", metavar="BLOCK", help="block to which a failure is reported")
    parser.add_argument("--pools", action="store_true", help="agents of the work pools compute")
    parser.add_argument("--seeds", action="store_true", help="with --pools: a task for each seed")
    options = parser.parse_args()
    if options.seeds and not options.pools:
        parser.error("--seeds needs --pools, whose agents compute them")
    exit_when_terminated()
    check_server(agents_compute=options.pools)
    words = vars(options)
    with failure_described():
        state = pipeline(words.pop("stages") or None, **words, return_state=True)
    return 0 if state.is_completed() else 1


if __name__ == "__main__":
    run(main)
