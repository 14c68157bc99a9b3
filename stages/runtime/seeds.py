"""Parallel work of several seeds, with a process for each.

On a CPU each process has one thread, so none waits for another thread that lost its core. On a
machine with GPUs, each process waits for a free GPU and holds it. The processes are forked after
all imports, so a stage starts once. A seed may have several processes, which train one model
together (`runtime/ranks`).
"""

import copy
import logging
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, TypeVar

from stages.runtime import gpu_slot, process, ranks
from stages.runtime.progress import Show, Snapshot

if TYPE_CHECKING:
    from stages.runtime.runs import StageRun

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


def for_each(
    work: Callable[[Any], ResultT],
    run: Any,
    numbers: Sequence[int],
    stage_run: "StageRun",
    *,
    gpu: bool = False,
    num_processes: int = 1,
    num_samplers: int = 0,
) -> dict[int, ResultT]:
    """The results of `work(run of the seed)` by seed, in the order of `numbers`.

    `run` is that of a row (`loops/run`), whose `of_seed` opens the runs of its seeds and ranks. A
    single seed runs in this process; under torchrun, so do all seeds, one after another. Otherwise
    each seed has a process, and with `gpu` a GPU if the machine has any; the first error ends all
    processes and is raised here, with its seed in a note. `num_processes` train each seed's model
    together; the first of them returns the result. `num_samplers`: further processes of a seed with
    a GPU. Results cross a pipe, so they must be small. No seed may change the inputs of another.
    """
    stage_run.check_unchanged()  # the parameters have been read by now
    if not numbers:  # all are finished: do not wait for a GPU
        return {}
    num_gpus = num_processes + num_samplers if gpu else 0
    open_seed = partial(_open_seed, work, run, num_processes)
    display, is_launched = stage_run.display, ranks.read_torchrun_rank() is not None
    results: dict[int, ResultT] = {}
    if len(numbers) == 1 or is_launched:
        with gpu_slot.take(min(num_gpus, 1) if is_launched else num_gpus):
            for seed in numbers:
                with open_seed(seed, partial(display.update, seed)) as of_seed:
                    results[seed] = work(of_seed)
        return results

    def work_in_fork(seed: int, pipe: connection.Connection) -> None:
        with _reporting(pipe) as show:
            with gpu_slot.take(num_gpus), open_seed(seed, show) as of_seed:
                result = work(of_seed)
            pipe.send(("result", result))

    context = multiprocessing.get_context("fork")
    pipes: dict[connection.Connection, tuple[int, BaseProcess]] = {}
    processes: list[BaseProcess] = []
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        for seed in numbers:
            ours, theirs = context.Pipe(duplex=False)
            processes.append(context.Process(target=work_in_fork, args=(seed, theirs)))
            pipes[ours] = seed, processes[-1]  # pyright: ignore[reportArgumentType]
            processes[-1].start()
            theirs.close()
        while pipes:
            for pipe in connection.wait(list(pipes)):
                assert isinstance(pipe, connection.Connection)
                seed, fork = pipes[pipe]
                try:
                    kind, content = pipe.recv()
                except EOFError:
                    fork.join()
                    raise ValueError(
                        f"if memory ran out, set fewer `seeds`: the process of seed {seed} "
                        f"ended without a word, exited with {fork.exitcode}"
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
    finally:
        limit = process.SECONDS_TO_END + process.SECONDS_TO_SAVE
        process.extend(limit + 5.0)  # longer than the limit of the seeds' processes
        started = [fork for fork in processes if fork.pid]
        for fork in started if pipes else ():  # the seeds beside a failed one keep their work
            fork.terminate()
        for fork in started:
            fork.join(limit if pipes else None)
            fork.kill()
            fork.join()
    return {seed: results[seed] for seed in numbers}


@contextmanager
def _open_seed(
    work: Callable[[Any], Any], run: Any, num_processes: int, seed: int, show: Show
) -> Iterator[Any]:
    """Context with the run of a seed in this process, while its other ranks run in theirs."""

    def work_as(rank: int) -> None:
        with run.of_seed(seed, rank, None) as of_rank:
            work(of_rank)

    folder = run.folder / f"seed-{seed}"
    folder.mkdir(exist_ok=True)
    with (
        ranks.joined(work_as, num_processes, folder) as rank,
        run.of_seed(seed, rank, show) as of_seed,
    ):
        yield of_seed


@contextmanager
def _reporting(pipe: connection.Connection) -> Iterator[Show]:
    """Context of a seed's process, which ends with its parent, and sends progress and errors."""

    def show(snapshot: Snapshot) -> None:
        with suppress(OSError):  # the parent has ended, and this process is about to
            pipe.send(("progress", snapshot))

    try:
        process.die_with_parent(signal.SIGTERM)
        yield show
    except BaseException as error:  # noqa: BLE001
        trace = traceback.format_exc()
        try:
            pipe.send(
                ("error", (copy.copy(error), trace))
            )  # as receiving does: some errors cannot be copied
        except Exception:  # noqa: BLE001
            pipe.send(("error", (RuntimeError(f"{type(error).__name__}: {error}"), trace)))
    finally:
        pipe.close()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
