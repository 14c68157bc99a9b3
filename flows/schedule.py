"""Start each stage as soon as what it needs is there, a limited number at a time.

Plain Python: how a stage is started is the caller's business, so that a thread pool
and Prefect are scheduled alike.
"""

import queue
from collections.abc import Callable

from flows.execute import Outcome, Result
from flows.plan import PlannedStage

Report = Callable[[Result], None]


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
