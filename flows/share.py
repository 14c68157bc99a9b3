"""Run a stage with the DVC remote asked for its result before, and given it afterwards.

Plain Python: `flows.remote` speaks to the remote, in a child that can be ended. A remote that does
not answer is waited for.
"""

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from flows.execute import Limits, Outcome, Result, last_words, run_stage
from flows.plan import PlannedStage, make_plan
from flows.process import StoppedError, child_environment, run_watched
from flows.remote import KEY, Answer

LONGEST_PAUSE = 30.0


def patience() -> float:
    """Seconds to wait for a remote or a server that does not answer."""
    return float(os.environ.get("POSTTRAIN_REMOTE_SECONDS", "600"))


def commit_of(root: Path) -> str:
    """The clone's commit, shortened, and whether files were edited since."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return result.stdout.strip() or "no commit"


class RemoteError(ValueError):
    """The remote cannot be used; everything local is kept."""


def run_shared(
    name: str,
    root: Path,
    *,
    on_line: Callable[[str], None],
    cancel: threading.Event,
    limits: Limits,
    inputs: str = "",
    elsewhere: Callable[[str, str], Result] | None = None,
) -> Result:
    """`run_stage`, with the remote asked before and told afterwards.

    Args:
        name: as DVC addresses it; what it needs must be there already.
        root: the repository.
        on_line: gets every line that is printed.
        cancel: once set, everything that was started is ended.
        limits: time and attempts.
        inputs: the digest that the stage's inputs must have, where another clone asks for it.
        elsewhere: has another clone make and push what the remote does not have, by the stage's
            name and the digest of its inputs. None: it is made here.

    Raises:
        StoppedError: once `cancel` is set.
    """
    made = None
    try:
        answer, key = ask("fetch", [name], root, on_line=on_line, cancel=cancel)
        if inputs not in ("", key) and answer is not Answer.NOT_SHARED:
            raise RemoteError(
                f"the inputs of {name} are others in {root}, at commit {commit_of(root)}: bring "
                "both clones to one commit, with nothing edited but dvc.lock"
            )
        if answer is Answer.ABSENT and elsewhere is not None:
            made = elsewhere(name, key)
            if not made.outcome.good:
                return made
            answer, _ = ask("fetch", [name], root, on_line=on_line, cancel=cancel)
            if answer is Answer.ABSENT:
                raise RemoteError(f"{name} was made ({made.reason}) and is not in this remote")
        result = run_stage(name, root, on_line=on_line, cancel=cancel, limits=limits)
        if result.outcome.good and answer is not Answer.NOT_SHARED:
            ask("push", [name], root, on_line=on_line, cancel=cancel)
    except RemoteError as error:
        return Result(name=name, outcome=Outcome.FAILED, reason=str(error))
    if made is None or not result.outcome.good:
        return result
    return replace(result, outcome=made.outcome, seconds=made.seconds, reason=made.reason)


def restore(
    name: str,
    root: Path,
    *,
    on_line: Callable[[str], None],
    cancel: threading.Event,
    limits: Limits,
) -> None:
    """Bring the results that a stage needs into this clone.

    Raises:
        ValueError: one of them is not to be had.
    """
    for other, planned in make_plan(root, [name]).items():
        if other == name or not planned.stale:
            continue
        answer, _ = ask("fetch", [other], root, on_line=on_line, cancel=cancel)
        if answer is Answer.ABSENT:
            raise RemoteError(f"{name} needs {other}, which is not in the DVC remote")
        result = run_stage(other, root, on_line=on_line, cancel=cancel, limits=limits)
        if not result.outcome.good:
            raise ValueError(f"{other}, which {name} needs, was not restored: {result.reason}")


def share_current(
    plan: Mapping[str, PlannedStage],
    root: Path,
    *,
    on_line: Callable[[str], None],
    cancel: threading.Event,
) -> None:
    """Push what is up to date here and so is not run: it may be from before there was a remote.

    Raises:
        RemoteError: the remote cannot be used, or did not answer for too long.
    """
    if names := [name for name, stage in plan.items() if not stage.stale]:
        ask("push", names, root, on_line=on_line, cancel=cancel)


def ask(
    action: str,
    names: Iterable[str],
    root: Path,
    *,
    on_line: Callable[[str], None],
    cancel: threading.Event,
) -> tuple[Answer, str]:
    """Fetch or push in a child that can be ended; wait while the remote does not answer.

    Returns:
        The answer, and of `fetch` the digest of the stage's inputs.

    Raises:
        RemoteError: it cannot be used, or did not answer for too long.
        StoppedError: once `cancel` is set.
    """
    started = time.monotonic()
    command = [sys.executable, "-m", "flows.remote", action, *names]
    pause = 1.0
    while True:
        tail: deque[str] = deque(maxlen=40)
        status = run_watched(
            command,
            cwd=root,
            env=child_environment(Path(sys.executable)),
            on_line=tail.append,
            cancel=cancel,
            timeout_seconds=None,
        )
        if status in (Answer.DONE, Answer.ABSENT, Answer.NOT_SHARED):
            keys = [line.removeprefix(KEY) for line in tail if line.startswith(KEY)]
            return Answer(status), "".join(keys)
        words = tail[-1] if tail and status == Answer.AWAY else last_words(tail)
        waited = time.monotonic() - started
        if status != Answer.AWAY or waited > patience():
            after = f" for {waited:.0f} s" if status == Answer.AWAY else ""
            kept = "everything here is kept: run again, or without --remote"
            raise RemoteError(f"no {action} by the DVC remote{after}: {words}; {kept}")
        pause = min(2 * pause, LONGEST_PAUSE)
        on_line(f"the DVC remote does not answer: {words}; waiting, asking again in {pause:g} s")
        if cancel.wait(pause):
            raise StoppedError(f"cancelled while waiting for the remote to {action}")
