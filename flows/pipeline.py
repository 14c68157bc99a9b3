"""The pipeline as a Prefect flow: one task a stage, named by the stage.

    python -m flows.pipeline                   everything
    python -m flows.pipeline train@grpo -j 1   one stage and what it needs
    python -m flows.pipeline --remote          what other clones made is restored, the rest shared
    python -m flows.pipeline --pools           each stage by an agent of the pool that it needs

The graph is dvc.yaml's, the cache is DVC's, and each stage runs as
`dvc --wait-for-lock repro -s <stage>`, so the result is that of `dvc repro`. Prefect adds
the schedule, the agent and the page that shows what ran. Without PREFECT_API_URL the flow
brings a server of its own for as long as it runs.
"""

import argparse
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.futures import PrefectFuture
from prefect.logging import get_run_logger
from prefect.states import Completed, Failed
from prefect.task_runners import ThreadPoolTaskRunner

from flows.agents import Agents
from flows.execute import Limits, Outcome, Result, run_stage
from flows.local import Report, print_report, run_plan, summary, table_rows
from flows.plan import PlannedStage, make_plan
from flows.process import exit_when_terminated
from flows.share import run_shared, share_current

MAX_WORKERS = 64
"""Threads of the task runner; how many stages run at a time is a parameter of the flow."""


# Prefect's types know no thread pool of their own.
@flow(  # pyright: ignore[reportCallIssue]
    name="pipeline",
    task_runner=ThreadPoolTaskRunner(max_workers=MAX_WORKERS),  # pyright: ignore[reportArgumentType]
    validate_parameters=True,
    persist_result=False,
)
def pipeline(
    stages: list[str] | None = None,
    max_parallel: int = 2,
    timeout_hours: float | None = None,
    remote: bool = False,  # noqa: FBT001, FBT002 - a flow's parameters have names
    pools: bool = False,  # noqa: FBT001, FBT002
) -> State:
    """Bring the stages, and what they need, up to date.

    Args:
        stages: names of stages or of groups; none means all.
        max_parallel: the most stages at one time in this clone. GPU slots are file locks that
            the stages take themselves.
        timeout_hours: for one attempt of one stage; none means no limit.
        remote: share results by the default DVC remote: `flows.share`.
        pools: have agents of the stages' work pools make what the remote does not have.
    """
    root = Path.cwd()
    limits = Limits(timeout_seconds=None if timeout_hours is None else timeout_hours * 3600)
    plan = make_plan(root, stages)
    cancel = threading.Event()
    run = run_stage
    if remote or pools:
        share_current(plan, root, on_line=get_run_logger().info, cancel=cancel)
        run = run_shared
    if pools:
        run = Agents(plan, cancel, max_parallel, timeout_hours).run_stage
        max_parallel = MAX_WORKERS

    def one(name: str, on_line: Callable[[str], None]) -> Result:
        return run(name, root, on_line=on_line, cancel=cancel, limits=limits)

    try:
        results = run_with_prefect(plan, one, max_parallel)
    except BaseException:
        cancel.set()  # the tasks' threads watch it and end what they started
        raise
    rows = table_rows(plan, results)
    create_table_artifact(key="pipeline", table=rows, description=summary(results))
    print_report(plan, results)
    good = all(result.outcome.good for result in results.values())
    return Completed(message=summary(results)) if good else Failed(message=summary(results))


def run_with_prefect(
    plan: dict[str, PlannedStage],
    run: Callable[[str, Callable[[str], None]], Result],
    max_parallel: int,
) -> dict[str, Result]:
    """Run the plan with one Prefect task a stage, by `run(name, on_line)`."""
    outcomes: dict[str, Result] = {}
    futures: dict[str, PrefectFuture[State]] = {}

    # DVC is the only cache and run_stage retries what is worth it, so Prefect does neither.
    @task(task_run_name="{name}", cache_policy=NO_CACHE, persist_result=False, retries=0)
    def stage(name: str) -> State:
        logger = get_run_logger()
        if plan[name].stale:
            outcomes[name] = run(name, logger.info)
        else:
            outcomes[name] = Result(name=name, outcome=Outcome.SKIPPED)
        result = outcomes[name]
        if result.outcome.good:
            return Completed(name=result.outcome.value.capitalize(), message=result.reason)
        return Failed(message=result.reason)

    def start(planned: PlannedStage, report: Report) -> None:
        name = planned.node.name

        def done(future: PrefectFuture[State]) -> None:
            crashed = Result(name=name, outcome=Outcome.FAILED, reason=str(future.state.message))
            report(outcomes.get(name, crashed))

        # They have all ended; naming them draws the edges of the graph on Prefect's page.
        upstream: list[Any] = [futures[other] for other in planned.node.upstream]
        futures[name] = stage.submit(name, wait_for=upstream)  # pyright: ignore[reportCallIssue]
        futures[name].add_done_callback(done)

    return run_plan(plan, start, max_parallel)


def main() -> int:
    """Run the command line; the result is the exit status."""
    parser = argparse.ArgumentParser(prog="python -m flows.pipeline", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("stages", nargs="*", help="stages or groups; none: all")
    parser.add_argument("-j", "--max-parallel", type=int, default=2, metavar="N")
    parser.add_argument("--timeout-hours", type=float, help="for each stage")
    parser.add_argument("--remote", action="store_true", help="share results by the DVC remote")
    parser.add_argument("--pools", action="store_true", help="agents of the work pools compute")
    arguments = parser.parse_args()
    exit_when_terminated()
    state = pipeline(
        arguments.stages or None,
        max_parallel=arguments.max_parallel,
        timeout_hours=arguments.timeout_hours,
        remote=arguments.remote,
        pools=arguments.pools,
        return_state=True,  # pyright: ignore[reportCallIssue]
    )
    return 0 if state.is_completed() else 1


if __name__ == "__main__":
    sys.exit(main())
