"""Stages whose results are shared: looked up in the DVC remote before a run, and pushed after it.

`flows.remote` talks to the remote in a child process, which can be ended. While the remote does not
answer, it is asked again.
"""

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from flows.execute import TAIL_LINES, Result, StageOutcome, find_error, run_stage
from flows.plan import StageNode, make_plan
from flows.process import Runner
from flows.remote import KEY, RemoteStatus

LONGEST_PAUSE = 30.0
OUTAGE_SECONDS = float(os.environ.get("POSTTRAIN_REMOTE_SECONDS", "600"))
"""How long a remote or a server that does not answer is asked again."""


class RemoteError(ValueError):
    """The remote, or Prefect's server, cannot be used; all local files are kept."""

    status = 1
    """Exit status of a command: its words were right."""


def describe_commit(root: Path) -> str:
    """The clone's commit, shortened, and a digest of what differs from it, but for dvc.lock."""

    def ask_git(*words: str) -> str:
        command = ["git", *words]
        result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        return result.stdout.strip()

    commit = ask_git("rev-parse", "--short", "HEAD") or "no commit"
    edits = ask_git("diff", "HEAD", "--", ".", ":!dvc.lock")
    return f"{commit}-edited-{sha256(edits.encode()).hexdigest()[:8]}" if edits else commit


def run_shared(
    name: str,
    runner: Runner,
    *,
    inputs: str = "",
    compute: Callable[[str], Result] | None = None,
    seed: int | None = None,
) -> Result:
    """`run_stage`, with the remote's result restored if it has one, and pushed if not.

    Args:
        name: DVC's name of the stage; the stages that it needs must be up to date.
        runner: runs commands.
        inputs: the digest that the inputs must have, where another clone asks for the result.
        compute: has another clone compute and push the result of the inputs with a digest. None:
            this clone computes it.
        seed: the seed to finish, of the section `seeds`; None: the whole stage.

    Raises:
        StoppedError: once `runner.cancel` is set.
    """
    remote_result = None
    # A seed that another clone finished is of use to who computes.
    fetch, push = ["fetch-or-seeds" if compute is None else "fetch", name], ["push", name]
    if seed is not None:
        fetch, push = ["fetch-seed", name, str(seed)], ["push-seeds", name]
    try:
        answer, key = ask_remote(fetch, runner)
        if inputs not in ("", key) and answer is not RemoteStatus.NOT_SHARED:
            raise RemoteError(
                f"the inputs of {name} differ in {runner.root}, at commit "
                f"{describe_commit(runner.root)}: bring both clones to one commit, with nothing "
                f"edited but dvc.lock"
            )
        if answer is RemoteStatus.ABSENT and compute is not None:
            remote_result = compute(key)
            if not remote_result.outcome.good:
                return remote_result
            answer, _ = ask_remote(fetch, runner)
            if answer is RemoteStatus.ABSENT:
                raise RemoteError(
                    f"{name} was computed ({remote_result.reason}) and is not in this remote"
                )
        result = Result(outcome=StageOutcome.RESTORED)
        if seed is None or answer is not RemoteStatus.DONE:
            result = run_stage(name, runner, seed)
        if result.outcome.good and answer is not RemoteStatus.NOT_SHARED:
            ask_remote(push, runner)
    except RemoteError as error:
        return Result(outcome=StageOutcome.FAILED, reason=str(error))
    return remote_result if remote_result is not None and result.outcome.good else result


def restore_upstream(name: str, runner: Runner) -> None:
    """Restore the results that a stage needs in this clone.

    Raises:
        RemoteError: one of them is not in the remote, or could not be restored.
    """
    for upstream, node in make_plan(runner.root, [name]).items():
        if upstream == name or not node.changes:
            continue
        answer, _ = ask_remote(["fetch", upstream], runner)
        if answer is RemoteStatus.ABSENT:
            raise RemoteError(
                f"{name} needs {upstream}, which is not in the DVC remote: run {upstream} with "
                f"--remote first"
            )
        result = run_stage(upstream, runner)
        if not result.outcome.good:
            raise RemoteError(f"{upstream}, which {name} needs, was not restored: {result.reason}")


def push_current(plan: Mapping[str, StageNode], runner: Runner) -> None:
    """Push the stages that are up to date and so will not run: the remote may be newer than they.

    Raises:
        RemoteError: the remote cannot be used, or did not answer for too long.
    """
    if names := [name for name, node in plan.items() if not node.changes]:
        ask_remote(["push", *names], runner)


def ask_remote(words: Sequence[str], runner: Runner) -> tuple[RemoteStatus, str]:
    """Run a command of `flows.remote`, again while the remote does not answer.

    Returns:
        The answer, and of what fetches the digest of the stage's inputs.

    Raises:
        RemoteError: the remote cannot be used, or did not answer for too long.
        StoppedError: once `runner.cancel` is set.
    """

    def ask() -> tuple[RemoteStatus, str]:
        tail: deque[str] = deque(maxlen=TAIL_LINES)
        status = runner.run([sys.executable, "-m", "flows.remote", *words], tail.append)
        if status == RemoteStatus.AWAY:
            raise ConnectionError(["no output", *tail][-1])
        if status not in (RemoteStatus.DONE, RemoteStatus.ABSENT, RemoteStatus.NOT_SHARED):
            raise RemoteError(
                f"no {words[0]} by the DVC remote: {find_error(tail)}; "
                "everything here is kept: run again, or without --remote"
            )
        keys = [line.removeprefix(KEY) for line in tail if line.startswith(KEY)]
        return RemoteStatus(status), "".join(keys)

    return ask_until_answered(ask, "the DVC remote", runner)


def ask_until_answered(ask: Callable[[], Any], place: str, runner: Runner) -> Any:
    """Answer of `ask`, which is called again if it raises a ConnectionError.

    Raises:
        RemoteError: it has done so for too long.
        StoppedError: once `runner.cancel` is set.
    """
    started = time.monotonic()
    pause = 1.0
    while True:
        try:
            return ask()
        except ConnectionError as error:
            seconds = time.monotonic() - started
            if seconds > OUTAGE_SECONDS:
                raise RemoteError(
                    f"{place} has not answered for {seconds:.0f} s: {error}; "
                    "everything here is kept: run again when it does"
                ) from None
            pause = min(2 * pause, LONGEST_PAUSE)
            runner.log(f"{place} does not answer: {error}; waiting, asking again in {pause:g} s")
        runner.pause(pause)
