"""Checkpoints of training loops: what a killed run resumes from, and the record of its steps.

In the scratch folder of a seed run (`loops/run`), of one loop or of several by name:

    loop/<name>/history.jsonl, rollouts.jsonl    lines of each step
                checkpoints/step-0008/           intermediate policies, for others to read
                states/step-00000012/            the state after step 12 (`runtime/checkpoints`)

A checkpoint of the state records the lengths of the other files. When the run resumes, they are
truncated to these lengths, and the later lines are written again. If several processes train the
model, only rank 0 writes lines and states.
"""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.loops.run import STATES
from stages.loops.state import Metrics, State
from stages.loops.training import POLICY_PREFIX
from stages.loops.work import Step
from stages.models import sharding
from stages.records import lines
from stages.runtime import checkpoints, outputs, process
from stages.runtime.journal import TIMES

if TYPE_CHECKING:
    from stages.loops.run import Run, Save

HISTORY, ROLLOUTS, POLICIES = "history.jsonl", "rollouts.jsonl", "checkpoints"
SHARE_OF_COPIES = 0.02
"""Of the time of a loop with long steps; the checkpoints are written beside it."""


class LoopRecord:
    """Checkpointed record of a training loop: its history, rollouts, policies and states."""

    def __init__(self, run: "Run", state: State, folder: Path) -> None:
        """Ready for the step after `state`."""
        self._run, self._state, self._folder = run, state, folder
        self._checkpointed = self._recorded = state.step
        of_rank0 = sharding.broadcast_from_rank0(folder)
        self._writer = checkpoints.Writer(of_rank0 / STATES, state.step)
        self._seconds_locked, self._seconds_of_copy = 0.0, 0.0
        self._step_since = time.monotonic()
        lengths: Mapping[Path, int] = {}
        if state.source is not None:
            lengths = checkpoints.outside_lengths(state.source)
        self.history: list[Metrics] = []
        """The metrics of every step, as they stand in the file."""
        if length := lengths.get(of_rank0 / HISTORY, 0):
            with (of_rank0 / HISTORY).open("rb") as file:
                written = file.read(length).decode().splitlines()
            self.history = [json.loads(line)["metrics"] for line in written]
        folder.mkdir(parents=True, exist_ok=True)
        self._files: dict[str, Any] = {}
        if run.rank:
            return
        if length := lengths.get(run.log.path, 0):
            run.log.go_on(length)
        for name in (HISTORY, ROLLOUTS):
            (folder / name).touch()
            self._files[name] = file = (folder / name).open("r+b")
            file.truncate(lengths.get(folder / name, 0))
            file.seek(0, os.SEEK_END)

    def add(self, step: Step) -> None:
        """Write a step's lines."""
        metrics = {name: v for name, v in step.metrics.items() if not name.startswith(TIMES)}
        line = json.dumps({"index": step.index, "metrics": metrics}, sort_keys=True)
        self.history.append(json.loads(line)["metrics"])
        if not self._run.rank:
            self._files[HISTORY].write(f"{line}\n".encode())
            self._files[ROLLOUTS].writelines(lines.to_json_line(row).encode() for row in step.rows)

    def save_policy(self, save: "Save") -> None:
        """Write an intermediate policy: the weights after this step."""
        path = self._folder / POLICIES / f"{POLICY_PREFIX}{self._state.step:04d}"
        if self._run.rank:
            save(path)  # takes part, and writes nothing
            return
        with outputs.replace(path) as temporary:
            save(temporary)

    def end_step(self) -> None:
        """A step is over and recorded: weights and files are those of a state again."""
        now = time.monotonic()
        self._seconds_locked = now - (self._locked_since() or now)
        self._state.updating_since, self._step_since = None, now
        self._recorded = self._state.step  # last: a signal may come anywhere

    def _locked_since(self) -> float | None:
        """Since when this process cannot copy a state by itself; None: it can.

        That is while weights change, and where several processes train one model at any time.
        """
        return self._step_since if sharding.get_world_size() > 1 else self._state.updating_since

    def can_copy(self) -> bool:
        """Whether this process can copy the state now, without others."""
        return self._locked_since() is None and self._state.step == self._recorded

    def may_stop(self) -> bool:
        """Whether a process that is asked to end may do so now, and not at the end of the step.

        It may where the state of the last whole step is saved or can be copied. Elsewhere a step
        that takes less than half of `process.SECONDS_TO_END`, as the one before it did, is
        finished; a longer one is lost, and with it the steps since the last checkpoint.
        """
        if self._state.step != self._recorded:  # its lines are being written
            return False
        since = self._locked_since()
        if since is None or self._state.step == self._checkpointed:
            return True
        seconds = max(self._seconds_locked, time.monotonic() - since)
        return seconds > process.SECONDS_TO_END / 2

    def is_due(self) -> bool:
        """Whether it is time for a checkpoint of the state.

        Where a step could not be finished in the time that a process has to end, as often as the
        copy of the state, for which training waits, takes `SHARE_OF_COPIES` of the time.
        """
        is_long = self._seconds_locked > process.SECONDS_TO_END / 2
        return self._writer.due(self._seconds_of_copy / SHARE_OF_COPIES if is_long else None)

    def checkpoint(self) -> None:
        """Begin to write a checkpoint of the state, if any step was taken since the last one."""
        if self._state.step == self._checkpointed:
            return
        begin = time.monotonic()
        step, content = self._state.step, self._state.snapshot()
        self._seconds_of_copy = time.monotonic() - begin
        if self._run.rank:
            self._checkpointed = step
            return
        for file in self._files.values():
            file.flush()
        lengths = {self._folder / name: file.tell() for name, file in self._files.items()}
        lengths[self._run.log.path] = self._run.log.length
        for path in (self._folder / POLICIES).rglob("*"):
            if path.is_file():
                lengths[path] = path.stat().st_size
        self._writer.write(step, content, lengths)
        self._checkpointed = step  # last: a signal may end this anywhere, and it is called again

    def close(self) -> int:
        """Wait until all is on disk; returns the number of the last step whose state is."""
        self._writer.wait()
        for file in self._files.values():
            file.close()
        return self._writer.saved
