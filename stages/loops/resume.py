"""Checkpoints of training loops, from which a killed run resumes, and the record of their steps.

In the scratch folder of a seed run (`loops/run`), for one loop or several with names:

    loop/<name>/history.jsonl, rollouts.jsonl    lines of each step
                checkpoints/step-0008/           intermediate policies, for others to read
                states/step-00000012/            the state after step 12 (`runtime/checkpoints`)

A checkpoint of the state has the lengths of the other files. When the run resumes, they are
truncated to these lengths, and the later lines are written again. If several processes train the
model, only rank 0 writes lines and states.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.loops.run import STATES
from stages.loops.state import Metrics, State
from stages.loops.training import POLICY_PREFIX
from stages.loops.work import Step
from stages.models import sharding
from stages.records import lines
from stages.runtime import checkpoints, outputs
from stages.runtime.journal import TIMES

if TYPE_CHECKING:
    from stages.loops.run import Run, Save

HISTORY, ROLLOUTS, POLICIES = "history.jsonl", "rollouts.jsonl", "checkpoints"


class LoopRecord:
    """Checkpointed record of a training loop: its history, rollouts, policies and states."""

    def __init__(self, run: "Run", state: State, folder: Path) -> None:
        """Open the files, truncated to their lengths at `state`, for the step after it."""
        self._run, self._state, self._folder = run, state, folder
        self._checkpointed = self._recorded = state.step
        of_rank0 = sharding.broadcast_from_rank0(folder)
        self._writer = checkpoints.Writer(of_rank0 / STATES, state.step)
        lengths: Mapping[Path, int] = {}
        if state.source is not None:
            lengths = checkpoints.outside_lengths(state.source)
        self.history: list[Metrics] = []
        """Metrics of every step, as in the file."""
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
        """Write the lines of a step."""
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
            save(path)  # this rank takes part, and writes nothing
            return
        with outputs.replace(path) as temporary:
            save(temporary)

    def end_step(self) -> None:
        """Mark the step as ended and recorded: weights and files are those of a state again."""
        self._state.is_updating = False
        self._recorded = self._state.step  # last: a signal may come anywhere

    def can_copy(self) -> bool:
        """Whether weights and files are those of a state, and this process can copy it alone."""
        is_whole = self._state.step == self._recorded and not self._state.is_updating
        return is_whole and sharding.get_world_size() == 1

    def is_due(self) -> bool:
        """Whether it is time for a checkpoint of the state."""
        return self._writer.due()

    def checkpoint(self) -> None:
        """Begin to write a checkpoint of the state, if there were steps since the last one."""
        if self._state.step == self._checkpointed:
            return
        step = self._state.step
        if self._run.rank:
            self._state.snapshot()  # this rank takes part, and writes nothing
            self._checkpointed = step
            return
        for file in self._files.values():
            file.flush()
        lengths = {self._folder / name: file.tell() for name, file in self._files.items()}
        lengths[self._run.log.path] = self._run.log.length
        for path in (self._folder / POLICIES).rglob("*"):
            if path.is_file():
                lengths[path] = path.stat().st_size
        self._writer.write(step, self._state.snapshot, lengths)
        self._checkpointed = step  # last: a signal may end this anywhere, and it is called again

    def close(self) -> int:
        """Wait until all is on disk; returns the number of the last step with a saved state."""
        self._writer.wait()
        for file in self._files.values():
            file.close()
        return self._writer.saved
