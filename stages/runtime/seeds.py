"""The work of several seeds side by side, in one process each.

On a CPU each process has one thread, so nothing waits for a spinning thread when other work takes a
core. Where there are GPUs, each process waits for one and holds it. The processes are forked when
everything is imported, so a stage starts once. The work of one seed may itself be that of several
processes, which train one model together (`runtime/ranks`).
"""

import copy
import logging
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stages.runtime import gpu_slot, journal, ranks, usage
from stages.runtime import process as stage_process
from stages.runtime.process import die_with_parent
from stages.runtime.progress import Display, Progress, Show, Snapshot
from stages.runtime.usage import USAGE

if TYPE_CHECKING:
    from stages.runtime.runs import StageRun

logger = logging.getLogger(__name__)

_Pipes = dict[connection.Connection, tuple[int, BaseProcess]]
ResultT = TypeVar("ResultT")


MakeRun = Callable[..., Any]
"""Makes the run of a seed, in the process that does its work, from the keywords

    seed
    rank     which of the processes that train one model this is; those after 0 write no output
    folder   scratch of this seed and rank alone that survives a kill; never an output
    log      the seed's journal; of a rank after 0, scratch
    progress how far the seed is (`Progress`): the work changes it, and a thread shows it
"""


def for_each(
    work: Callable[[Any], ResultT],
    make_run: MakeRun,
    numbers: Sequence[int],
    stage_run: "StageRun",
    *,
    gpu: bool = False,
    num_processes: int = 1,
    num_samplers: int = 0,
) -> dict[int, ResultT]:
    """The results of `work(run)` by seed, in the order of `numbers`.

    A single seed is worked on in this process, and under torchrun each seed after the other.
    Otherwise each seed has a process, and a GPU where `gpu` is set and there is one; the first
    error ends all processes and is raised here, with its seed in a note. `num_processes` train each
    seed's model together; the first of them returns the result. `num_samplers`: processes of a seed
    beside them that have a GPU, too. Results cross a pipe: small things only. No seed may change
    what another sees.
    """
    stage_run.check_unchanged()  # the parameters have been read by now
    if not numbers:  # all are finished: no GPU is waited for
        return {}
    num_gpus = num_processes + num_samplers if gpu else 0
    task = _Task(work, make_run, stage_run.folder, num_gpus, num_processes)
    if len(numbers) > 1 and ranks.read_torchrun_rank() is None:
        return _fork(task, numbers, stage_run.display)
    results = {}
    with gpu_slot.take(min(num_gpus, 1) if ranks.read_torchrun_rank() is not None else num_gpus):
        for seed in numbers:
            with task.begin(seed, partial(stage_run.display.update, seed)) as run:
                results[seed] = work(run)
    return results


@dataclass(frozen=True, slots=True)
class _Task:
    """The work of every seed; see `for_each`."""

    work: Callable[[Any], Any]
    make_run: MakeRun
    folder: Path
    num_gpus: int
    num_processes: int

    @contextmanager
    def begin(self, seed: int, show: Show) -> Iterator[Any]:
        """The run of a seed in this process, while processes of its other ranks work, too."""
        folder = self.folder / f"seed-{seed}"
        folder.mkdir(exist_ok=True)
        other_rank = partial(self._work_as, seed, folder)
        with (
            ranks.joined(other_rank, self.num_processes, folder) as rank,
            self._open(seed, folder, rank, show) as run,
        ):
            yield run

    def _work_as(self, seed: int, folder: Path, rank: int) -> None:
        with self._open(seed, folder, rank) as run:
            self.work(run)

    @contextmanager
    def _open(self, seed: int, folder: Path, rank: int, show: Show | None = None) -> Iterator[Any]:
        """The run of a rank, with its scratch folder and journal; ranks after 0 show nothing."""
        folder = folder / f"rank-{rank}" if rank else folder
        folder.mkdir(exist_ok=True)
        progress = Progress()
        with ExitStack() as stack:
            log = stack.enter_context(journal.writing(folder / "journal.jsonl"))
            stack.enter_context(usage.sampling(folder / USAGE))
            if show is not None and not rank:
                stack.enter_context(progress.shown(show))
            yield self.make_run(seed=seed, rank=rank, folder=folder, log=log, progress=progress)


def _fork(task: _Task, numbers: Sequence[int], display: Display) -> dict[int, Any]:
    """The result of each seed, from a process of its own."""
    context = multiprocessing.get_context("fork")
    pipes: _Pipes = {}
    processes = []
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        for seed in numbers:
            ours, theirs = context.Pipe(duplex=False)
            processes.append(context.Process(target=_child, args=(task, seed, theirs)))
            pipes[ours] = seed, processes[-1]  # pyright: ignore[reportArgumentType]
            processes[-1].start()
            theirs.close()
        results = _receive(pipes, display)
    finally:
        started = [process for process in processes if process.pid]
        for process in started if pipes else ():  # those beside a failed one keep their work
            process.terminate()
        for process in started:
            process.join(stage_process.SECONDS_TO_END if pipes else None)
            process.kill()
            process.join()
    return {seed: results[seed] for seed in numbers}


def _receive(pipes: _Pipes, display: Display) -> dict[int, Any]:
    """The result of each process, by seed; a pipe leaves `pipes` when its result has come."""
    results: dict[int, Any] = {}
    while pipes:
        for pipe in connection.wait(list(pipes)):
            assert isinstance(pipe, connection.Connection)
            seed, process = pipes[pipe]
            try:
                kind, content = pipe.recv()
            except EOFError:
                process.join()
                raise RuntimeError(
                    f"if memory ran out, set fewer `seeds`: the process of seed {seed} "
                    f"ended without a word, exited with {process.exitcode}"
                ) from None
            if kind == "progress":
                display.update(seed, content)
            elif kind == "result":
                results[seed] = content
                del pipes[pipe]
            else:
                error, trace = content
                error.add_note(f"in the work of seed {seed}:\n{trace}")
                raise error
    return results


def _child(task: _Task, seed: int, pipe: connection.Connection) -> None:
    """The process of a seed: ends with its parent, sends its progress, then its result."""
    try:
        die_with_parent(signal.SIGTERM)

        def show(snapshot: Snapshot) -> None:
            with suppress(OSError):  # the parent has ended, and this process is about to
                pipe.send(("progress", snapshot))

        with (
            gpu_slot.take(task.num_gpus),
            task.begin(seed, show) as run,
        ):
            result = task.work(run)
        pipe.send(("result", result))
    except BaseException as error:  # noqa: BLE001
        trace = traceback.format_exc()
        try:
            pipe.send(("error", (copy.copy(error), trace)))  # as receiving does: some cannot be
        except Exception:  # noqa: BLE001
            pipe.send(("error", (RuntimeError(f"{type(error).__name__}: {error}"), trace)))
    finally:
        pipe.close()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
