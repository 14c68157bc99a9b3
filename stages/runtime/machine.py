"""Memory and processors that this process may use: the machine's, or its container's if less.

A container's limits are those of its control group and of the groups around it, in version 2
(https://docs.kernel.org/admin-guide/cgroup-v2.html); those of version 1 are not read.
"""

import os
from pathlib import Path

GROUPS, OF_PROCESS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
VERSION_2 = "0::"
"""Beginning of the line of version 2 in /proc/self/cgroup."""


def count_bytes() -> int:
    """Bytes of memory."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(min([whole, *(limit for (limit,) in _read("memory.max"))]))


def count_processors() -> int:
    """Number of processors, rounded down, at least one."""
    shares = [quota / period for quota, period in _read("cpu.max")]
    return max(1, int(min([len(os.sched_getaffinity(0)), *shares])))


def _read(name: str) -> list[list[float]]:
    """Numbers in the file `name` of this process's group and of the groups around it, if any."""
    numbers: list[list[float]] = []
    groups = OF_PROCESS.read_text(encoding="utf-8").splitlines() if OF_PROCESS.is_file() else []
    for line in [line for line in groups if line.startswith(VERSION_2)]:
        group = GROUPS / line.removeprefix(VERSION_2).lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(GROUPS) and (folder / name).is_file():
                words = (folder / name).read_text(encoding="utf-8").split()
                numbers.append([float(word.replace("max", "inf")) for word in words])
    return numbers
