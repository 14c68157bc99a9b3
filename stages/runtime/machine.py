"""Memory and processors that this process may use: the machine's, or its container's if less.

A container's limits are those of its control group and of the groups around it, in version 1 or 2
(https://docs.kernel.org/admin-guide/cgroup-v2.html).
"""

import os
from pathlib import Path

GROUPS, OF_PROCESS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
VERSION_2 = ""
"""Name of all controllers of version 2 in /proc/self/cgroup."""


def count_bytes() -> int:
    """Bytes of memory."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [*_read(VERSION_2, "memory.max"), *_read("memory", "memory.limit_in_bytes")]
    return int(min([whole, *(limit for (limit,) in limits)]))


def count_processors() -> int:
    """Number of processors, rounded down, at least one."""
    of_version_1 = zip(
        _read("cpu", "cpu.cfs_quota_us"), _read("cpu", "cpu.cfs_period_us"), strict=True
    )
    limits = [*_read(VERSION_2, "cpu.max"), *(quota + period for quota, period in of_version_1)]
    shares = [quota / period for quota, period in limits if quota > 0]  # -1: no limit
    return max(1, int(min([len(os.sched_getaffinity(0)), *shares])))


def _read(controller: str, name: str) -> list[list[float]]:
    """Numbers in the file `name` of this process's group and of the groups around it, if any."""
    numbers: list[list[float]] = []
    groups = OF_PROCESS.read_text(encoding="utf-8").splitlines() if OF_PROCESS.is_file() else []
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            top = GROUPS / controller
            group = top / path.lstrip("/")
            files = [folder / name for folder in (group, *group.parents)]
            words = [file.read_text(encoding="utf-8").split() for file in files
                     if file.is_relative_to(top) and file.is_file()]  # fmt: skip
            numbers += [[float(word.replace("max", "inf")) for word in line] for line in words]
    return numbers
