"""Stages computed by the agents of a Prefect work pool, each in its own clone.

Prefect hands a stage to a worker and reports how it ended; results travel only through the DVC
remote (`flows.remote`). Prefect does not notice the loss of a machine. Therefore an agent increases
a label of its flow run every few seconds, and a run whose label stops goes to another agent. No
clocks are compared, and no agent counts as dead while the server does not answer.
"""

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from prefect import flow, get_client, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL
from prefect.states import Cancelling, Completed, Crashed, Failed

from flows.execute import Result, StageOutcome
from flows.plan import StageNode
from flows.process import Runner, StoppedError
from flows.share import ask_until_answered, describe_commit, restore_upstream, run_shared
from stages.runtime.redaction import hide_secrets

BEAT_SECONDS = 5.0
POLL_SECONDS = 2.0
MAX_CRASHES = 20
"""Number of agents that may die while they run a stage; after these, the stage is the likely
cause."""
LOST_SECONDS = float(os.environ.get("POSTTRAIN_LOST_SECONDS", "90"))
"""Time without a new label after which an agent counts as dead."""
STAGE_TIME = re.compile(r"^\d\d:\d\d:\d\d ")
NO_ANSWER = (httpx.TransportError, PrefectHTTPStatusError)


@flow(name="stage", persist_result=False, retries=0)
def stage(
    name: str,
    inputs: str,
    commit: str,
    timeout_hours: float | None = None,
    seed: int | None = None,
) -> State:
    """Flow of an agent: restore what a stage needs, run it, push its result.

    prefect.yaml deploys it once for each work pool.

    Args:
        name: DVC's name of the stage.
        inputs: digest of its inputs, which must be the same in this clone.
        commit: of the pipeline, for messages.
        timeout_hours: limit of one attempt.
        seed: the seed to finish and push; None: the whole stage.
    """
    runner = Runner(root=Path.cwd(), log=make_log(), timeout_hours=timeout_hours)
    with heartbeat(UUID(str(flow_run.id)), runner.cancel):
        try:
            restore_upstream(name, runner)
        except ValueError as error:
            return Failed(message=str(error))
        result = run_shared(name, runner, inputs=inputs, seed=seed)
    reason = f"on {socket.gethostname()}, {runner.root.name}"
    if not result.outcome.good:
        reason += f", for a pipeline at {commit}: {result.reason}"
    return to_state(replace(result, reason=reason))


def to_state(result: Result) -> State:
    """Final state of a task on Prefect's page."""
    if result.outcome.good:
        return Completed(name=result.outcome.value.capitalize(), message=result.reason)
    return Failed(message=result.reason)


def run_as_task(
    name: str, work: Callable[[Runner], Result], runner: Runner, wait_for: Iterable[State] = ()
) -> tuple[Result, State]:
    """Result and state of `work`, run as a task of Prefect, with a log and edges on its page.

    `work` gets the runner with the task's log; `wait_for` are states of the tasks that it needs.
    """
    results: list[Result] = []

    # DVC is the only cache, and run_stage retries where it can help: Prefect does neither.
    @task(task_run_name=name, cache_policy=NO_CACHE, persist_result=False, retries=0)
    def stage() -> State:
        results.append(work(replace(runner, log=make_log())))
        return to_state(results[0])

    state = stage(wait_for=wait_for, return_state=True)
    crashed = Result(outcome=StageOutcome.FAILED, reason=str(state.message))
    return (results or [crashed])[0], state


def make_log() -> Callable[[str], None]:
    """The log of a flow or task run for lines of stages, without their time, which the log adds."""
    logger = get_run_logger()
    return lambda line: logger.info(STAGE_TIME.sub("", line))


def check_server(*, agents_compute: bool) -> None:
    """Raise a ValueError if Prefect's server does not answer or refuses us.

    Agents need one. Without agents it may be unset: then a flow starts a server of its own.
    """
    if agents_compute and not PREFECT_API_URL.value():
        raise ValueError("set PREFECT_API_URL: agents of work pools need a server that runs")
    if PREFECT_API_URL.value():
        with failure_described(), get_client(sync_client=True) as client:
            client.api_version()


@contextmanager
def failure_described() -> Iterator[None]:
    """Context that turns a failed request into a ValueError: a traceback has the password."""
    try:
        yield
    except (*NO_ANSWER, RuntimeError) as error:
        cause = error.__cause__ if isinstance(error, RuntimeError) else error  # of a flow's client
        if not isinstance(cause, NO_ANSWER):
            raise
        raise ValueError(describe_failure(cause)) from None


def describe_failure(error: Exception) -> str:
    """Message about a failed request, without the password in the server's address."""
    return hide_secrets(
        f"expected an answer of Prefect's server at {PREFECT_API_URL.value()}, found {error!r}: "
        f"start it; if it asks for a password, set PREFECT_API_AUTH_STRING=user:password here, too"
    )


@contextmanager
def heartbeat(run: UUID, cancel: threading.Event) -> Iterator[None]:
    """Label the flow run every few seconds; set `cancel` once the server reports its end."""
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
                continue  # the stage goes on until the server answers again
            if state is not None and is_ending(state):
                cancel.set()

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=BEAT_SECONDS)


def is_ending(state: State) -> bool:
    """Whether a flow run has ended or is being cancelled."""
    return state.is_final() or state.is_cancelling()


class Agents:
    """Agents of the work pools, from the view of the pipeline that hands out stages."""

    def __init__(self, max_parallel: int, *, by_seed: bool = False) -> None:
        """`by_seed`: agents finish the seeds of a stage separately, then one agent joins them."""
        self.slots = threading.Semaphore(max_parallel)
        """Limit of stages that are restored in this clone at a time."""
        self.by_seed = by_seed
        self.commit = describe_commit(Path.cwd())

    def run_stage(self, node: StageNode, runner: Runner) -> Result:
        """`run_shared`; an agent of the stage's pool computes what the remote does not have."""

        def compute(inputs: str) -> Result:
            self.slots.release()  # the number of stages at agents is not limited
            try:
                is_by_seed = self.by_seed and len(node.seeds) > 1
                failed = self.run_seeds(node, inputs, runner) if is_by_seed else None
                return failed or AgentRun(node, inputs, self.commit, runner).run()
            finally:
                self.slots.acquire()

        with self.slots:
            return run_shared(node.name, runner, compute=compute)

    def run_seeds(self, node: StageNode, inputs: str, runner: Runner) -> Result | None:
        """Finish each seed of a stage by an agent; returns the failure of the stage, or None.

        Each is a task on Prefect's page. If one fails, the other seeds go on and are kept.
        """

        def finish(seed: int) -> Result:
            run = AgentRun(node, inputs, self.commit, runner, seed)

            def work(runner: Runner) -> Result:
                return replace(run, runner=runner).run()

            return run_as_task(run.title, work, runner)[0]

        with ThreadPoolExecutor(len(node.seeds)) as pool:
            futures = [pool.submit(copy_context().run, finish, seed) for seed in node.seeds]
        if runner.cancel.is_set():
            raise StoppedError(f"{node.name} was cancelled")
        results = {seed: future.result() for seed, future in zip(node.seeds, futures, strict=True)}
        reasons = [
            f"seed {seed}: {result.reason}"
            for seed, result in results.items()
            if not result.outcome.good
        ]
        if not reasons:
            return None
        return Result(
            outcome=StageOutcome.FAILED,
            seconds=max(result.seconds for result in results.values()),
            attempts=max(result.attempts for result in results.values()),
            reason="; ".join([*reasons, "the other seeds are kept"]),
        )


@dataclass(frozen=True)
class AgentRun:
    """Stage that an agent computes from inputs with a digest."""

    node: StageNode
    inputs: str
    commit: str
    runner: Runner
    seed: int | None = None
    """The seed to finish; None: the whole stage."""

    @property
    def title(self) -> str:
        """Its name on Prefect's page."""
        return self.node.name if self.seed is None else f"{self.node.name} seed {self.seed}"

    def run(self) -> Result:
        """Have an agent compute the stage, and another one if that dies.

        Raises:
            StoppedError: once `runner.cancel` is set; then the flow run is cancelled too.
        """
        started = time.monotonic()
        attempts = 0
        while True:
            attempts += 1
            try:
                state = self.follow(self.submit())
            except ValueError as error:
                state = Failed(message=str(error))
            if state.type is not StateType.CRASHED or attempts == MAX_CRASHES:
                break
            self.runner.log(f"{state.message}; another agent of {self.node.pool} begins it")
        name = str(state.name).lower()
        good = state.is_completed() and name in list(StageOutcome)
        return Result(
            outcome=StageOutcome(name) if good else StageOutcome.FAILED,
            seconds=time.monotonic() - started,
            attempts=attempts,
            reason=str(state.message or name),
        )

    def submit(self) -> FlowRun:
        """A running flow run of these inputs: another pipeline's, or a new one.

        A run that is being cancelled is not joined.
        """
        parameters = {
            "name": self.node.name,
            "inputs": self.inputs,
            "commit": self.commit,
            "timeout_hours": self.runner.timeout_hours,
            "seed": self.seed,
        }

        def create(client: SyncPrefectClient) -> FlowRun:
            deployment = client.read_deployment_by_name(f"stage/{self.node.pool}")
            number = 0
            while True:
                run = client.create_flow_run_from_deployment(
                    deployment.id,
                    parameters=parameters,
                    name=self.title,
                    # The server returns the run that has this key, if there is one.
                    idempotency_key=f"{self.title}-{self.inputs}-{number}",
                )
                if run.state is None or not is_ending(run.state):
                    return run
                number += 1

        try:
            return self.ask_server(create)
        except ObjectNotFound as error:
            raise ValueError(
                f"{self.node.name} needs `meta: {{gpu: {self.node.gpu}}}`, and the server has no "
                f"deployment stage/{self.node.pool}: flows/README.md, Several machines"
            ) from error

    def follow(self, run: FlowRun) -> State:
        """Final state of a flow run: crashed if its agent's label has stopped."""
        set_state = SyncPrefectClient.set_flow_run_state
        last_mark: object = None
        changed = logged = time.monotonic()
        while True:
            if self.runner.cancel.wait(POLL_SECONDS):
                self.ask_server(set_state, run.id, Cancelling())
                raise StoppedError(f"{self.title} was cancelled")
            started = time.monotonic()
            run = self.ask_server(SyncPrefectClient.read_flow_run, run.id)
            state = run.state or Crashed(message="the server knows no state of it")
            if state.is_final():
                return state
            now = time.monotonic()
            mark = (state.id, run.labels.get("beat"))
            # If the server answered late, the agent's label may be late too.
            if mark != last_mark or now - started > BEAT_SECONDS or state.is_scheduled():
                last_mark, changed = mark, now
            if state.is_scheduled() and now - logged > LOST_SECONDS:
                logged = now
                self.runner.log(f"{self.title} waits for a worker of the pool {self.node.pool}")
            if now - changed > LOST_SECONDS:
                silence = f"no sign of life from its agent for {now - changed:.0f} s"
                self.ask_server(set_state, run.id, Crashed(message=silence), force=True)

    def ask_server(self, request: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Answer to `request(client, ...)`, which is repeated while the server does not answer.

        No message quotes a password.

        Raises:
            ValueError: it did not answer for too long, or refuses the request.
            StoppedError: once `runner.cancel` is set.
        """

        def ask() -> Any:
            try:
                with get_client(sync_client=True) as client:
                    return request(client, *arguments, **keywords)
            except NO_ANSWER as error:
                if isinstance(error, PrefectHTTPStatusError) and error.response.status_code < 500:
                    raise ValueError(describe_failure(error)) from None
                raise ConnectionError(hide_secrets(repr(error))) from None

        # In an empty context, since Prefect would else use the flow's client, which retries for a
        # minute without a message.
        return ask_until_answered(lambda: Context().run(ask), "Prefect's server", self.runner)
