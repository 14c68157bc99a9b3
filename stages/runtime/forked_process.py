"""A forked process that answers requests, one after the other, while this process works.

It has the memory of this process at the fork, and what it loads then. Requests and answers cross a
socket as JSON; nothing is unpickled. The kernel ends it when this process ends in any way.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from stages.runtime.process import die_with_parent, ignore

Prepare = Callable[[int], Callable[[Any], Any]]
"""Function that prepares for requests, and returns a function from a request to its answer."""


class ForkedProcess:
    """Process that answers requests in order."""

    def __init__(self, prepare: Prepare) -> None:
        """Fork the process; call it from the main thread, whose end ends the process.

        `prepare` is called in the process, with `memory`.
        """
        self.memory = os.memfd_create("shared")
        """Descriptor of an empty memory file, which both processes may resize and map."""
        ours, theirs = Pipe()
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            _answer(partial(prepare, self.memory), theirs, parent)  # pyright: ignore[reportArgumentType]
        theirs.close()
        self._pipe = ours

    def request(self, content: Any) -> None:
        """Send a request, small enough that sending does not block."""
        with suppress(OSError):  # it has ended: `receive` reports it
            self._pipe.send_bytes(json.dumps(content).encode())

    def receive(self) -> Any:
        """Wait for the answer to the earliest pending request."""
        try:
            content = json.loads(self._pipe.recv_bytes())
        except (EOFError, OSError):
            raise RuntimeError(
                f"the sampler process (process id {self.pid}) has ended, "
                f"perhaps for lack of memory. Run again: training resumes from its last checkpoint"
            ) from None
        if "refusal" in content:
            raise ValueError(content["refusal"])
        if "error" in content:
            raise RuntimeError(f"in the sampler process:\n{content['error']}")
        return content["answer"]

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        os.close(self.memory)
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _answer(prepare: Callable[[], Callable[[Any], Any]], pipe: Connection, parent: int) -> None:
    """Loop of the forked process, which ends with its parent, or when the pipe is closed."""
    try:
        ignore()  # the parent decides when both end
        die_with_parent(parent=parent)
        prepared = _try(prepare)
        answer = prepared.get("answer")
        if answer is None:  # the answer to the first request has the reason
            pipe.send_bytes(json.dumps(prepared).encode())
            return
        while True:
            request = json.loads(pipe.recv_bytes())
            pipe.send_bytes(json.dumps(_try(partial(answer, request))).encode())
    except (EOFError, OSError):
        pass  # the parent has closed its end
    finally:
        os._exit(0)


def _try(compute: Callable[[], Any]) -> dict[str, Any]:
    """The return value of `compute` as `answer`, or its exception."""
    try:
        return {"answer": compute()}
    except ValueError as error:  # for the user
        return {"refusal": str(error)}
    except BaseException:  # noqa: BLE001
        return {"error": traceback.format_exc()}
