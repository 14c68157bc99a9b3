"""Long work in parts, of which the finished ones survive a kill."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from stages.runtime import outputs

PartT = TypeVar("PartT")


def go_on(
    folder: Path,
    work: Callable[[int], Iterator[PartT]],
    *,
    write: Callable[[Path, PartT], object],
    read: Callable[[int, Path], PartT],
) -> Iterator[PartT]:
    """All parts in order: those that an interrupted attempt kept, then the rest of the work.

    A part is on disk before it is yielded. Everything that `work` does from part n on must be a
    function of n and of the stage's inputs alone; then it makes no difference where it stopped.

    Args:
        folder: where parts are kept, inside `Run.folder`: of the same inputs, until success.
        work: the parts from a number on.
        write: a part to a file.
        read: the part of this number back again, equal to what was written.
    """
    # A part that was being written has another name until it is whole.
    kept = sorted(folder.glob("[0-9]*.part"))
    for index, path in enumerate(kept):
        yield read(index, path)
    for index, part in enumerate(work(len(kept)), start=len(kept)):
        with outputs.replace(folder / f"{index:06d}.part") as temporary:
            write(temporary, part)
        yield part
