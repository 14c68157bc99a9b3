"""The same work for several seeds, side by side: one process each.

On a CPU each has one thread, so nothing waits for a spinning thread when other work takes a core.
Where there are GPUs, each takes one and waits for it. They are forked when everything is imported,
so a stage starts once. A seed may itself be the work of several processes (`runtime/ranks`).
"""

import copy
import logging
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stages.runtime import gpu_slot, journal, ranks
from stages.runtime import process as stage_process
from stages.runtime.process import die_with_parent

if TYPE_CHECKING:
    from stages.runtime.runs import Run

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_SIGNS = 1.0
SECONDS_BETWEEN_LINES = 15.0

Say = Callable[[int, int | None, str], None]
"""Tell how many of how many items are done, and of which part of the work."""

_Pipes = dict[connection.Connection, tuple[int, BaseProcess]]
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


@dataclass(kw_only=True, slots=True)
class SeedRun:
    """What the work of one seed is told, and how it tells how far it is."""

    seed: int
    rank: int = 0
    """Which of the processes that train one model this is; the others of 0 leave no output."""
    folder: Path
    """Scratch that survives a kill, of this seed and rank alone; never an output."""
    log: journal.Journal
    """This seed's journal; of another rank than 0, scratch."""
    say: Say
    _said: float = 0.0

    def track(
        self, items: Iterable[ItemT], *, total: int | None = None, label: str = "", done: int = 0
    ) -> Iterator[ItemT]:
        """Yield `items` unchanged and tell how far they are; a `Step`'s metrics are logged.

        `done`: how many of the total came before.
        """
        if total is None and hasattr(items, "__len__"):
            total = len(items)  # pyright: ignore[reportArgumentType]
        self.say(done, total, label)
        for count, item in enumerate(items, start=done + 1):
            metrics = getattr(item, "metrics", None)
            if isinstance(metrics, dict) and hasattr(item, "index"):
                self.log(item.index, metrics)  # pyright: ignore[reportAttributeAccessIssue]
            yield item
            if time.monotonic() - self._said >= SECONDS_BETWEEN_SIGNS or count == total:
                self._said = time.monotonic()
                self.say(count, total, label)


def side_by_side(
    work: Callable[[SeedRun], ResultT],
    seeds: Sequence[int],
    run: "Run",
    *,
    gpu: bool = False,
    num_processes: int = 1,
) -> dict[int, ResultT]:
    """`work` for each seed; what each returned, in the order of `seeds`.

    Each in `num_processes`, of which the first returns. A single seed works in this process, and
    under torchrun each after the other. Otherwise each has a process, and a GPU where one is wanted
    and there is one; the first error ends all and is raised here with the seed named. Results cross
    a pipe: small things only. No seed may change what another sees.
    """
    run.unchanged()  # the parameters have been read by now
    display = _Display(run.execution.stage, seeds)
    if len(seeds) == 1 or ranks.launched() is not None:
        own = 1 if ranks.launched() is not None else num_processes
        with gpu_slot.take(wanted=gpu, number=own):
            return {
                seed: _work(work, seed, run.folder, partial(display.update, seed), num_processes)
                for seed in seeds
            }
    context = multiprocessing.get_context("fork")
    pipes: _Pipes = {}
    processes = []
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        for seed in seeds:
            ours, theirs = context.Pipe(duplex=False)
            arguments = (work, seed, run.folder, theirs, gpu, num_processes)
            processes.append(context.Process(target=_child, args=arguments))
            pipes[ours] = seed, processes[-1]  # pyright: ignore[reportArgumentType]
            processes[-1].start()
            theirs.close()
        results = _results(pipes, display)
    finally:
        started = [process for process in processes if process.pid]
        for process in started if pipes else ():  # those beside one that failed keep their work
            process.terminate()
        for process in started:
            process.join(stage_process.SECONDS if pipes else None)
            process.kill()
            process.join()
        display.end()
    return {seed: results[seed] for seed in seeds}


def _results(pipes: _Pipes, display: "_Display") -> dict[int, Any]:
    """What each process returned; its pipe leaves `pipes` then, so an error leaves some there."""
    results: dict[int, Any] = {}
    while pipes:
        for pipe in connection.wait(list(pipes), timeout=SECONDS_BETWEEN_SIGNS):
            assert isinstance(pipe, connection.Connection)
            seed, process = pipes[pipe]
            try:
                kind, content = pipe.recv()
            except EOFError:
                process.join()
                raise RuntimeError(
                    f"fewer `seeds` need less memory, if that was wanting: the process of seed "
                    f"{seed} ended without a word, exited with {process.exitcode}"
                ) from None
            if kind == "progress":
                display.update(seed, *content)
            elif kind == "result":
                results[seed] = content
                del pipes[pipe]
            else:
                error, trace = content
                error.add_note(f"in the work of seed {seed}:\n{trace}")
                raise error
        display.show()
    return results


def _work(
    work: Callable[[SeedRun], ResultT], seed: int, folder: Path, say: Say, num_processes: int
) -> ResultT:
    own = folder / f"seed-{seed}"
    own.mkdir(exist_ok=True)

    def of_rank(rank: int) -> ResultT:
        mine = own / f"rank-{rank}" if rank else own
        mine.mkdir(exist_ok=True)
        silent: Say = lambda *_: None  # noqa: E731
        with journal.writing(mine / "journal.jsonl") as log:
            told = silent if rank else say
            return work(SeedRun(seed=seed, rank=rank, folder=mine, log=log, say=told))

    return ranks.together(of_rank, num_processes, own)


def _child(
    work: Callable[[SeedRun], Any],
    seed: int,
    folder: Path,
    pipe: connection.Connection,
    gpu: bool,  # noqa: FBT001
    num_processes: int,
) -> None:
    """The process of one seed: ends with its parent, sends signs of progress, then its result."""
    try:
        die_with_parent(signal.SIGTERM)
        with gpu_slot.take(wanted=gpu, number=num_processes):
            say: Say = lambda *sign: pipe.send(("progress", sign))  # noqa: E731
            result = _work(work, seed, folder, say, num_processes)
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


class _Display:
    """One line a stage: how far each seed is, and how long is left."""

    def __init__(self, stage: str, seeds: Sequence[int]) -> None:
        self._stage = stage
        self._at: dict[int, tuple[int, int | None, str]] = dict.fromkeys(seeds, (0, None, ""))
        self._begun = time.monotonic()
        self._shown = self._begun - SECONDS_BETWEEN_LINES
        self._terminal = sys.stderr.isatty()

    def update(self, seed: int, count: int, total: int | None, label: str) -> None:
        alone, before = len(self._at) == 1, self._at[seed]
        self._at[seed] = (count, total, label)
        if alone and label != before[2]:
            self._begun = time.monotonic()
        if alone:
            self.show()

    def show(self) -> None:
        """Draw the line again on a terminal; elsewhere write one now and then."""
        now = time.monotonic()
        if now - self._shown < (SECONDS_BETWEEN_SIGNS if self._terminal else SECONDS_BETWEEN_LINES):
            return
        self._shown = now
        if self._terminal:
            self.end(self._line(now))
        else:
            logger.info("%s", self._line(now))

    def end(self, line: str = "") -> None:
        """Clear the terminal's line, or put another in its place."""
        if self._terminal:
            sys.stderr.buffer.write(f"\r\x1b[2K{line}".encode())  # `write` would escape it
            sys.stderr.flush()

    def _line(self, now: float) -> str:
        parts, shares = [], []
        for seed, (count, total, label) in self._at.items():
            of_total = f"/{total}" if total is not None else ""
            parts.append(f"seed {seed}: {f'{label} ' if label else ''}{count}{of_total}")
            shares.append(count / total if total else 0.0)
        left = ""
        if (slowest := min(shares)) > 0.0:
            seconds = (now - self._begun) * (1.0 - slowest) / slowest
            left = f"; about {seconds:.0f} s left" if slowest < 1.0 else ""
        return f"{self._stage}  {', '.join(parts)}{left}"
