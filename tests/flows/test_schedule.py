"""The order of stages, the limit on how many run, and what a failure stops."""

import threading
import time

import pytest

from flows.execute import Outcome, Result
from flows.graph import StageNode
from flows.plan import PlannedStage
from flows.schedule import Report, run_plan


def planned(name: str, *upstream: str) -> PlannedStage:
    node = StageNode(name=name, deps=(), outs=(), params=(), upstream=upstream, gpu=0)
    return PlannedStage(node=node, changes=("new",), stale_upstream=())


# a -> b, c, d -> e
PLAN = {
    stage.node.name: stage
    for stage in (
        planned("a"),
        planned("b", "a"),
        planned("c", "a"),
        planned("d", "a"),
        planned("e", "b", "c", "d"),
    )
}


class Recorder:
    """Starts a thread a stage, notes order and how many were busy at once."""

    def __init__(self, failing: str = "") -> None:
        self.order: list[str] = []
        self.busy = 0
        self.most = 0
        self.failing = failing
        self.lock = threading.Lock()

    def start(self, stage: PlannedStage, report: Report) -> None:
        name = stage.node.name
        with self.lock:
            self.order.append(name)
            self.busy += 1
            self.most = max(self.most, self.busy)

        def work() -> None:
            time.sleep(0.05)
            with self.lock:
                self.busy -= 1
            failed = name == self.failing
            report(Result(name=name, outcome=Outcome.FAILED if failed else Outcome.EXECUTED))

        threading.Thread(target=work).start()


@pytest.mark.parametrize(("limit", "most"), [(1, 1), (2, 2), (9, 3)])
def test_independent_stages_run_side_by_side_up_to_the_limit(limit: int, most: int) -> None:
    recorder = Recorder()
    results = run_plan(PLAN, recorder.start, limit)
    assert recorder.most == most
    assert list(results) == ["a", "b", "c", "d", "e"]
    assert recorder.order[0] == "a"
    assert recorder.order[-1] == "e"


def test_a_failure_blocks_what_needs_it_and_nothing_else() -> None:
    recorder = Recorder(failing="c")
    results = run_plan(PLAN, recorder.start, 1)
    outcomes = {name: result.outcome.value for name, result in results.items()}
    assert outcomes == {
        "a": "executed",
        "b": "executed",
        "c": "failed",
        "d": "executed",
        "e": "blocked",
    }
    assert results["e"].reason == "needs c"
    assert "e" not in recorder.order


def test_no_stage_at_a_time_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, found 0"):
        run_plan(PLAN, Recorder().start, 0)
