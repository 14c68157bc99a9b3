"""What a loop leaves in the scratch folder of its inputs, step by step, and where it goes on.

    loop/history.jsonl, rollouts.jsonl    lines of each step
         checkpoints/step-0008/           policies on the way, for others to read
         states/step-00000012/            the state after step 12 (`runtime/checkpoints`)

A checkpoint of the state holds for the files as long as they were then; what was written later is
cut off and comes again. Of several processes that train one model the first alone writes lines and
states.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from stages.loops.state import TENSORS, Metrics, State
from stages.loops.work import Step
from stages.models import sharding
from stages.records import lines
from stages.runtime import checkpoints, outputs
from stages.runtime.checkpoints import Writer
from stages.runtime.seeds import SeedRun

logger = logging.getLogger(__name__)

LOOP, STATES, KNOWN = "loop", "states", "known"
HISTORY, ROLLOUTS, POLICIES = "history.jsonl", "rollouts.jsonl", "checkpoints"
POLICY = "step-"
TIMES = "time/"
"""Prefix of metrics that a second run would not repeat: they stand in the journal alone."""
Save = Callable[[Path], None]
"""Writes the policy as it is, as a checkpoint that others read (`policy.save_model`)."""


def resume(run: SeedRun, name: str = "") -> State:
    """The state from which a loop of this seed goes on; `name`: of one of several loops."""
    states = Record.folder(run, name) / STATES
    found = sharding.broadcast_from_rank0(None if run.rank else checkpoints.last(states))
    if found is None:
        return State()
    state = State.read(found)
    if not run.rank:
        named = f", {name}" if name else ""
        logger.info("seed %d%s: goes on after step %d", run.seed, named, state.step)
    return state


def parts(
    run: SeedRun, name: str, work: Callable[[int], Iterator[Step]], row_type: type[Any]
) -> Iterator[Step]:
    """The steps of work that learns nothing, such as sampling: each is kept as soon as it is done.

    `work(n)`: the steps from number n on. Their rows are dataclasses of `row_type`.
    """

    def told(first: int) -> Iterator[dict[str, Any]]:
        for step in work(first):
            rows = [lines.to_dict(row) for row in step.rows]
            yield {"index": step.index, "metrics": step.metrics, "rows": rows}

    for part in outputs.keep_parts(run.folder / "parts" / name, told):
        rows = [row_type(**row) for row in part["rows"]]
        yield Step(index=part["index"], metrics=part["metrics"], rows=rows)


def once(run: SeedRun, compute: Callable[[], Sequence[Tensor]]) -> list[Tensor]:
    """What `compute` returned in the first attempt: a reference's numbers, an hour's work."""
    folder = Record.folder(run) / KNOWN
    found = sharding.broadcast_from_rank0(None if run.rank else checkpoints.last(folder))
    if found is None:
        known = [value.contiguous() for value in compute()]
        tensors = {f"{number:08d}": value for number, value in enumerate(known)}
        if not run.rank:
            checkpoints.write(folder, 0, lambda path: save_file(tensors, path / TENSORS), {})
        return known
    return [value for _, value in sorted(load_file(found / TENSORS).items())]


class Record:
    """A loop's scratch folder, while it runs."""

    @staticmethod
    def folder(run: SeedRun, name: str = "") -> Path:
        """Where it is."""
        return run.folder / LOOP / name

    def __init__(self, run: SeedRun, state: State, name: str) -> None:
        """Ready for the step after `state`."""
        self._run, self._state, self._own = run, state, Record.folder(run, name)
        self._kept, first = state.step, sharding.broadcast_from_rank0(self._own)
        self._writer = Writer(first / STATES)
        grown: dict[Path, int] = {}
        if state.source is not None:
            grown = checkpoints.grown(state.source)
        self.history: list[Metrics] = []
        """The metrics of every step, as they stand in the file."""
        if length := grown.get(first / HISTORY, 0):
            with (first / HISTORY).open("rb") as file:
                done = file.read(length).decode().splitlines()
            self.history = [json.loads(line)["metrics"] for line in done]
        self._own.mkdir(parents=True, exist_ok=True)
        self._files: dict[str, Any] = {}
        if run.rank:
            return
        if length := grown.get(run.log.path, 0):
            run.log.go_on(length)
        for one in (HISTORY, ROLLOUTS):
            (self._own / one).touch()
            self._files[one] = file = (self._own / one).open("r+b")
            file.truncate(grown.get(self._own / one, 0))
            file.seek(0, os.SEEK_END)

    def add(self, step: Step) -> None:
        """Write a step's lines."""
        metrics = {name: v for name, v in step.metrics.items() if not name.startswith(TIMES)}
        line = json.dumps({"index": step.index, "metrics": metrics}, sort_keys=True)
        self.history.append(json.loads(line)["metrics"])
        if not self._run.rank:
            self._files[HISTORY].write(f"{line}\n".encode())
            self._files[ROLLOUTS].writelines(lines.to_json_line(row).encode() for row in step.rows)

    def save(self, save: Save) -> None:
        """Keep the policy as it is."""
        place = self._own / POLICIES / f"{POLICY}{self._state.step:04d}"
        if self._run.rank:
            save(place)  # takes part, and writes nothing
            return
        with outputs.replace(place) as path:
            save(path)

    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return self._writer.due()

    def keep(self) -> None:
        """Begin to write a checkpoint, if any step was taken since the last one."""
        if self._state.step == self._kept:
            return
        step, content = self._state.step, self._state.snapshot()
        if self._run.rank:
            self._kept = step
            return
        for file in self._files.values():
            file.flush()
        grown = {self._own / one: file.tell() for one, file in self._files.items()}
        grown[self._run.log.path] = self._run.log.length
        for path in (self._own / POLICIES).rglob("*"):
            if path.is_file():
                grown[path] = path.stat().st_size
        self._writer.write(step, content, grown)
        self._kept = step  # last: a signal may end this anywhere, and it is called again

    def close(self) -> None:
        """Wait until all is on disk."""
        self._writer.wait()
        for file in self._files.values():
            file.close()
