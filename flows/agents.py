"""Have the agents of a work pool make a stage, each in a clone of its own.

Prefect hands a stage to a worker and tells how it ended; results travel by the DVC remote alone
(`flows.remote`). Prefect does not notice a machine that is gone, so an agent counts up a label of
its run every few seconds, and a run whose label stands still is given to another agent. No clocks
are compared, and while the server does not answer nobody is taken for dead.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from prefect import flow, get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL
from prefect.states import Cancelling, Completed, Crashed, Failed

from flows.execute import Limits, Outcome, Result
from flows.plan import PlannedStage, StageNode
from flows.process import StoppedError
from flows.share import commit_of, patience, restore, run_shared

BEAT_SECONDS = 5.0
POLL_SECONDS = 2.0
MOST_ATTEMPTS = 20  # after so many agents that died at one stage it is the stage that kills
NO_ANSWER = (httpx.TransportError, PrefectHTTPStatusError)


def lost_after() -> float:
    """Seconds without a sign of life after which an agent counts as dead."""
    return float(os.environ.get("POSTTRAIN_LOST_SECONDS", "90"))


@flow(name="stage", flow_run_name="{name}", persist_result=False, retries=0)
def stage(name: str, inputs: str, commit: str, timeout_hours: float | None = None) -> State:
    """Restore what the stage needs, run it, push its result; deployed once a pool (prefect.yaml).

    Args:
        name: as DVC addresses it.
        inputs: the digest of its inputs, which must be the same here.
        commit: the pipeline's, for messages.
        timeout_hours: for one attempt.
    """
    logger = get_run_logger()
    root = Path.cwd()
    limits = Limits(timeout_seconds=None if timeout_hours is None else timeout_hours * 3600)
    cancel = threading.Event()
    with beating(UUID(str(flow_run.id)), cancel):
        try:
            restore(name, root, on_line=logger.info, cancel=cancel, limits=limits)
        except ValueError as error:
            return Failed(message=str(error))
        result = run_shared(
            name, root, on_line=logger.info, cancel=cancel, limits=limits, inputs=inputs
        )
    where = f"{socket.gethostname()}, {root.name}"
    if not result.outcome.good:
        return Failed(message=f"on {where}, for a pipeline at {commit}: {result.reason}")
    return Completed(name=result.outcome.value.capitalize(), message=f"on {where}")


@contextmanager
def beating(run: UUID, cancel: threading.Event) -> Iterator[None]:
    """Show that this process lives; set `cancel` once the server says that the run has ended."""
    done = threading.Event()

    def beat() -> None:
        number = 0
        while not done.wait(BEAT_SECONDS):
            number += 1
            try:
                with get_client(sync_client=True) as client:
                    client.update_flow_run_labels(run, {"beat": number})
                    state = client.read_flow_run(run).state
            except NO_ANSWER:
                continue  # the stage goes on; the server will be back
            if state is not None and (state.is_final() or state.is_cancelling()):
                cancel.set()

    thread = threading.Thread(target=beat, name="beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=BEAT_SECONDS)


class Agents:
    """Gives stages to work pools and waits for them."""

    def __init__(
        self,
        plan: Mapping[str, PlannedStage],
        cancel: threading.Event,
        max_parallel: int,
        timeout_hours: float | None,
    ) -> None:
        if not PREFECT_API_URL.value():
            raise ValueError("set PREFECT_API_URL: agents of work pools need a server that runs")
        self.plan = plan
        self.cancel = cancel
        self.here = threading.Semaphore(max_parallel)
        self.timeout_hours = timeout_hours
        self.commit = commit_of(Path.cwd())

    def run_stage(
        self,
        name: str,
        root: Path,
        *,
        on_line: Callable[[str], None],
        cancel: threading.Event,
        limits: Limits,
    ) -> Result:
        """`run_shared`, with what the remote does not have made by an agent of the stage's pool."""

        def elsewhere(name: str, inputs: str) -> Result:
            self.here.release()  # however many stages agents compute, few are restored at a time
            try:
                return self.run(self.plan[name].node, inputs, on_line)
            finally:
                self.here.acquire()

        with self.here:
            return run_shared(
                name, root, on_line=on_line, cancel=cancel, limits=limits, elsewhere=elsewhere
            )

    def run(self, node: StageNode, inputs: str, on_line: Callable[[str], None]) -> Result:
        """Have a stage made elsewhere.

        A run of the same inputs that another pipeline has begun is joined, not repeated. Once
        `cancel` is set it is cancelled too.
        """
        started = time.monotonic()
        attempts = 0
        state = None
        while state is None or (state.type is StateType.CRASHED and attempts < MOST_ATTEMPTS):
            if state is not None:
                on_line(f"{state.message}; another agent of {node.pool} begins it")
            attempts += 1
            try:
                state = self.follow(self.submit(node, inputs, on_line), node, on_line)
            except (ValueError, ConnectionError) as error:
                state = Failed(message=str(error))
        name = str(state.name).lower()
        good = state.is_completed() and name in list(Outcome)
        return Result(
            name=node.name,
            outcome=Outcome(name) if good else Outcome.FAILED,
            seconds=time.monotonic() - started,
            attempts=attempts,
            reason=str(state.message or name),
        )

    def submit(self, node: StageNode, inputs: str, on_line: Callable[[str], None]) -> FlowRun:
        """A run of the stage that has not ended: one that there is, or a new one."""
        parameters: dict[str, Any] = {"name": node.name, "inputs": inputs, "commit": self.commit}
        parameters |= {"timeout_hours": self.timeout_hours}

        def create(client: SyncPrefectClient) -> FlowRun:
            deployment = client.read_deployment_by_name(f"stage/{node.pool}")
            number = 0
            while True:
                run = client.create_flow_run_from_deployment(
                    deployment.id,
                    parameters=parameters,
                    name=node.name,
                    idempotency_key=f"{node.name}-{inputs}-{number}",
                )
                if not (run.state and (run.state.is_final() or run.state.is_cancelling())):
                    return run
                number += 1

        try:
            return self.answered(on_line, create)
        except ObjectNotFound as error:
            raise ValueError(
                f"{node.name} needs `meta: {{gpu: {node.gpu}}}`, and there is no deployment "
                f"stage/{node.pool} on the server: flows/README.md, Several machines"
            ) from error

    def follow(self, run: FlowRun, node: StageNode, on_line: Callable[[str], None]) -> State:
        """Wait for the run to end; crashed when its agent shows no life."""
        seen: object = None
        since = told = time.monotonic()
        while True:
            if self.cancel.wait(POLL_SECONDS):
                self.answered(on_line, SyncPrefectClient.set_flow_run_state, run.id, Cancelling())
                raise StoppedError(f"{node.name} was cancelled")
            asked = time.monotonic()
            run = self.answered(on_line, SyncPrefectClient.read_flow_run, run.id)
            state = run.state or Crashed(message="the server knows no state of it")
            if state.is_final():
                return state
            now = time.monotonic()
            mark = (state.id, run.labels.get("beat"))
            if mark != seen or now - asked > BEAT_SECONDS or state.is_scheduled():
                seen, since = mark, now
            if state.is_scheduled() and now - told > lost_after():
                told = now
                on_line(f"{node.name} waits for a worker of the pool {node.pool}")
            if now - since > lost_after():
                state = Crashed(message=f"no sign of life from its agent for {now - since:.0f} s")
                set_state = SyncPrefectClient.set_flow_run_state
                self.answered(on_line, set_state, run.id, state, force=True)

    def answered(
        self,
        on_line: Callable[[str], None],
        question: Callable[..., Any],
        *arguments: Any,
        **keywords: Any,
    ) -> Any:
        """The server's answer; a server that does not answer is waited for."""
        started = time.monotonic()
        while True:
            try:
                return Context().run(put, question, *arguments, **keywords)
            except NO_ANSWER as error:
                if isinstance(error, PrefectHTTPStatusError) and error.response.status_code < 500:
                    raise
                waited = time.monotonic() - started
                if waited > patience():
                    raise ConnectionError(
                        f"Prefect's server has not answered for {waited:.0f} s: {error!r}; "
                        "everything here is kept: run again when it does"
                    ) from error
                on_line(f"Prefect's server does not answer ({error!r}); waiting")
            if self.cancel.wait(POLL_SECONDS):
                raise StoppedError("cancelled while Prefect's server did not answer")


def put(question: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Ask the server by a client of its own: the flow's retries for a minute and says nothing."""
    with get_client(sync_client=True) as client:
        return question(client, *arguments, **keywords)
