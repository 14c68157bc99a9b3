"""Several processes that train one model together: ranks 0, 1, ..., of which only 0 writes.

On one machine they are forked here, each with a GPU if there are any. Under `torchrun`, which also
joins machines that share their files, this process is already one of them:

    torchrun --nnodes 2 --nproc-per-node 8 ... -m stages train_grpo grpo --train grpo ...
"""

import logging
import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import stages
from stages.runtime.process import die_with_parent, ignore

logger = logging.getLogger(__name__)

SECONDS_TO_RAISE = 10.0
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}


def read_torchrun_rank() -> int | None:
    """Rank that torchrun gave this process; None: torchrun did not start it."""
    return int(os.environ["RANK"]) if "TORCHELASTIC_RUN_ID" in os.environ else None


@contextmanager
def joined(work: Callable[[int], object], number: int, folder: Path) -> Iterator[int]:
    """Rank of this process, while `number` processes that can meet do the same work.

    Without torchrun, ranks 1, 2, ... are forked here and call `work(rank)`; this process is rank 0
    and works inside the block. They meet (`models/sharding`) by a file in `folder`, which the
    environment names. When the block ends, all have ended; an error of another rank ends this
    process. A ValueError if torchrun started another number of processes.
    """
    if (launched_rank := read_torchrun_rank()) is not None:
        if (world_size := int(os.environ["WORLD_SIZE"])) != number:
            raise ValueError(
                f"num_processes is {number}, torchrun started {world_size}: the number changes how "
                f"sums are rounded, so it stands in params.yaml. Set it to {world_size}, or start "
                f"{number}."
            )
        os.environ[stages.MEETING] = "env://"
        yield launched_rank
        return
    if number == 1:
        yield 0
        return
    environments = _meeting_environments(number, folder)
    context = multiprocessing.get_context("fork")
    processes = {
        rank: context.Process(target=_child, args=(work, rank, environments[rank]))
        for rank in range(1, number)
    }
    done = threading.Event()
    try:
        for process in processes.values():
            process.start()
        threading.Thread(target=_watch, args=(processes, done), daemon=True).start()
        os.environ |= environments[0]
        yield 0
        for rank, process in processes.items():
            process.join()
            if process.exitcode:
                raise RuntimeError(f"rank {rank} failed after the last step: see its error above")
    finally:
        done.set()
        for process in [process for process in processes.values() if process.pid]:
            process.kill()
            process.join()


def _meeting_environments(number: int, folder: Path) -> list[dict[str, str]]:
    """Environment variables of each rank: the file where all meet, and a GPU each if there are."""
    for name, value in LOOPBACK.items():
        os.environ.setdefault(name, value)
    meeting = folder / "ranks"
    meeting.unlink(missing_ok=True)  # of a run that was killed
    url = f"file://{meeting.resolve()}?world_size={number}"  # torch reads it without decoding
    environments = [{stages.MEETING: f"{url}&rank={rank}"} for rank in range(number)]
    devices = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    for environment, device in zip(environments, devices, strict=False):
        environment["CUDA_VISIBLE_DEVICES"] = device
    return environments


def _child(work: Callable[[int], object], rank: int, environment: dict[str, str]) -> None:
    ignore()  # the first rank says when all end
    die_with_parent()
    status = 1
    try:
        os.environ |= environment
        work(rank)
        status = 0
    except BaseException:  # noqa: BLE001
        logger.error("rank %d:\n%s", rank, traceback.format_exc())
    finally:
        os._exit(status)


def _watch(processes: Mapping[int, BaseProcess], done: threading.Event) -> None:
    """End this process when another failed, for which it might wait for ever in a sum."""
    waiting = {process.sentinel: rank for rank, process in processes.items()}
    while waiting and not done.is_set():
        for sentinel in connection.wait(list(waiting), timeout=1.0):
            assert isinstance(sentinel, int)
            rank = waiting.pop(sentinel)
            processes[rank].join()  # its pipe closes a moment before its exit status is there
            # An error of all ranks is raised here too: wait a moment for it.
            if processes[rank].exitcode and not done.wait(SECONDS_TO_RAISE):
                logger.error("rank %d ended without the others: so does this process", rank)
                os._exit(1)
