"""Several processes that train one model together: ranks 0, 1, ..., of which 0 alone writes.

On one machine they are forked here, each with a GPU where there are any. Under `torchrun`, which
also joins machines that share their files, this process is one of them already:

    torchrun --nnodes 2 --nproc-per-node 8 ... -m stages.train_grpo grpo --train grpo ...
"""

import logging
import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable, Mapping
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeVar

import stages
from stages.runtime import start_up
from stages.runtime.process import Stopped, die_with_parent, ignore

logger = logging.getLogger(__name__)

SECONDS_TO_RAISE = 10.0
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}

ResultT = TypeVar("ResultT")


def launched() -> int | None:
    """The rank that torchrun gave this process; None: it did not start it."""
    return int(os.environ["RANK"]) if "TORCHELASTIC_RUN_ID" in os.environ else None


def together(work: Callable[[int], ResultT], number: int, folder: Path) -> ResultT:
    """`work(rank)` in `number` processes that know each other; what it returned in this one.

    They meet (`models/sharding`) by a file in `folder`, which the environment names. An error of
    this process is raised; one of another alone ends all.
    """
    if number > 1:
        start_up.give_back()  # torch's distributed tensors
    if (mine := launched()) is None:
        return work(0) if number == 1 else _forked(work, number, folder)
    if (found := int(os.environ["WORLD_SIZE"])) != number:
        raise ValueError(
            f"num_processes is {number}, torchrun started {found}: the number changes how sums are "
            f"rounded, so it stands in params.yaml. Set it to {found}, or start {number}."
        )
    os.environ[stages.MEETING] = "env://"
    return work(mine)


def _forked(work: Callable[[int], ResultT], number: int, folder: Path) -> ResultT:
    for name, value in LOOPBACK.items():
        os.environ.setdefault(name, value)
    meeting = folder / "ranks"
    meeting.unlink(missing_ok=True)  # of a run that was killed
    url = f"file://{meeting.resolve()}?world_size={number}"  # torch reads it without decoding
    environments = [{stages.MEETING: f"{url}&rank={rank}"} for rank in range(number)]
    devices = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
    for environment, device in zip(environments, devices, strict=False):
        environment["CUDA_VISIBLE_DEVICES"] = device
    context = multiprocessing.get_context("fork")
    arguments = [(work, rank, environments[rank]) for rank in range(1, number)]
    others = {one[1]: context.Process(target=_child, args=one) for one in arguments}
    done = threading.Event()
    try:
        for one in others.values():
            one.start()
        threading.Thread(target=_watch, args=(others, done), daemon=True).start()
        os.environ |= environments[0]
        result = work(0)
        for rank, one in others.items():
            one.join()
            if one.exitcode:
                raise RuntimeError(f"rank {rank} failed after the last step: see its error above")
    finally:
        done.set()
        for one in [one for one in others.values() if one.pid]:
            one.kill()
            one.join()
    return result


def _child(work: Callable[[int], object], rank: int, environment: dict[str, str]) -> None:
    ignore()  # the first rank says when all end
    die_with_parent()
    status = 1
    try:
        os.environ |= environment
        work(rank)
        status = 0
    except Stopped:
        status = 0  # as all do: the first rank may still be writing
    except BaseException:  # noqa: BLE001
        logger.error("rank %d:\n%s", rank, traceback.format_exc())
    finally:
        os._exit(status)


def _watch(others: Mapping[int, BaseProcess], done: threading.Event) -> None:
    """End this process when another failed, for which it might wait for ever in a sum."""
    waiting = {one.sentinel: rank for rank, one in others.items()}
    while waiting and not done.is_set():
        for ended in connection.wait(list(waiting), timeout=1.0):
            assert isinstance(ended, int)
            rank = waiting.pop(ended)
            others[rank].join()  # its pipe closes a moment before its exit status is there
            # An error of all is raised here too: it has a moment to get out by itself.
            if others[rank].exitcode and not done.wait(SECONDS_TO_RAISE):
                logger.error("rank %d ended without the others: so does this process", rank)
                os._exit(1)
