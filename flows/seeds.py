"""Compute some seeds of a stage, which a later run of it joins.

    python -m flows.seeds train@grpo 1            seed 1 of this stage, whose inputs are up to date
    python -m flows.seeds train@grpo 0,2 --remote what the remote lacks of it, and pushed there

The outputs of a seed are kept in the scratch folder of the stage run
(`stages/runtime/finished_seeds`), which belongs to exactly these inputs. `dvc repro -s train@grpo`
takes them from there and computes the missing seeds: outputs and dvc.lock are those of a run of all
seeds. Until then the outputs of the row and dvc.lock stay as they are.

Finished seeds travel through the DVC remote as archives,
`seeds/<stage>/<row>/<digest of the inputs>-<seed>.tar`, until the remote has the joined result. The
manifest in an archive has the digest of each file; a truncated or damaged archive is not used.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import tarfile
from contextlib import suppress
from pathlib import Path

from flows import dvc_internals
from flows.command_line import make_parser, run
from flows.plan import read_graph
from flows.process import Runner, exit_when_terminated
from flows.remote import KEY, RemoteStatus, ResultExchange

SEEDS, FINISHED = "POSTTRAIN_SEEDS", "finished"
ENDED, PARTIAL = "ended", "some seeds"
"""File in the scratch folder of a run that has ended, and its text after a run of some seeds."""


def main() -> int:
    """Run the command line; returns its exit status."""
    parser = make_parser("flows.seeds", __doc__)
    parser.add_argument("stage", help="as DVC names it, for example train@grpo")
    parser.add_argument("seeds", help="numbers of the section seeds, for example 0,2")
    parser.add_argument("--remote", action="store_true", help="share them by the DVC remote")
    options = parser.parse_args()
    exit_when_terminated()
    graph = read_graph(Path.cwd())
    allowed = graph[options.stage].seeds if options.stage in graph else ()
    seeds = options.seeds.split(",")
    if not {*seeds} <= {*map(str, allowed)}:
        parser.error(
            f"expected a stage that has seeds, and some of them, found {options.stage} with "
            f"{options.seeds}: it has {', '.join(map(str, allowed)) or 'none'}"
        )
    if not options.remote:
        return run_seeds(options.stage, options.seeds)
    from flows.share import restore_upstream, run_shared

    runner = Runner(root=Path.cwd())
    restore_upstream(options.stage, runner)
    is_good = True
    for seed in seeds:
        result = run_shared(options.stage, runner, seed=int(seed))
        print(f"{options.stage} seed {seed}: {result.outcome.value} {result.reason}".rstrip())
        is_good &= result.outcome.good
    return 0 if is_good else 1


def run_seeds(name: str, seeds: str) -> int:
    """Run the commands of a stage for some of its seeds; the exit status of the one that failed."""
    from dvc.repo import Repo

    with Repo(".", _wait_for_lock=True) as repo:
        command = str(repo.stage.load_one(name=name).cmd)
    os.environ[SEEDS] = seeds
    for line in command.splitlines():
        if status := Runner(root=Path.cwd()).run(shlex.split(line), print):
            return status if status > 0 else 128 - status  # as a shell reports a signal
    return 0


def push(exchange: ResultExchange, name: str) -> RemoteStatus:
    """Send the finished seeds of a stage that the remote lacks."""
    _, key, _ = dvc_internals.load_stage(exchange.repo, name, refresh=True)
    if key is None:
        return RemoteStatus.NOT_SHARED
    exchange.check_remote()
    fs = exchange.entries.fs
    sent = [number for number, _ in list_archives(exchange, name, key)]
    for folder in sorted(locate_scratch(exchange, name, key).glob(f"seed-*/{FINISHED}")):
        number = int(folder.parent.name.removeprefix("seed-"))
        if number in sent or not is_whole(folder):
            continue
        archive = folder.with_suffix(".tar")
        with tarfile.open(archive, "w") as file:
            file.add(folder, arcname=".")
        fs.put_file(str(archive), fs.join(locate_archives(exchange, name), f"{key}-{number}.tar"))
        archive.unlink()
    return RemoteStatus.DONE


def fetch(exchange: ResultExchange, name: str, seed: int | None = None) -> RemoteStatus:
    """Fetch a finished seed, or all, into the stage's scratch folder; done if `seed` is there."""
    _, key, _ = dvc_internals.load_stage(exchange.repo, name, refresh=True)
    if key is None:
        return RemoteStatus.NOT_SHARED
    if seed is not None:
        print(f"{KEY}{key}")
    exchange.check_remote()
    scratch = locate_scratch(exchange, name, key)
    for number, path in list_archives(exchange, name, key):
        target = scratch / f"seed-{number}" / FINISHED
        if seed in (None, number) and not is_whole(target):
            shutil.rmtree(target, ignore_errors=True)
            unpack(exchange, path, target)
    is_here = is_whole(scratch / f"seed-{seed}" / FINISHED)
    return RemoteStatus.DONE if is_here else RemoteStatus.ABSENT


def forget(exchange: ResultExchange, name: str, key: str) -> None:
    """Remove the archives of inputs whose joined result the remote has."""
    for _, path in list_archives(exchange, name, key):
        exchange.entries.fs.remove(path)


def release(root: Path, name: str, key: str) -> None:
    """Release a stage's finished seeds, after the result of their inputs was fetched.

    The next stage that starts here removes them once dvc.lock names that result
    (`stages/runtime/identity`). Until then they stay, and so do those of a run that goes on.
    """
    ended = root / ".pipe" / f"{name}-{key[:16]}" / ENDED
    if ended.is_file() and ended.read_text(encoding="utf-8") == PARTIAL:
        ended.write_text("", encoding="utf-8")


def is_whole(folder: Path) -> bool:
    """Whether a folder holds a finished seed with the digests of its manifest."""
    try:
        files = json.loads((folder / "manifest.json").read_bytes())["files"]
        return all(
            hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
            for name, (_, digest) in files.items()
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return False


def list_archives(exchange: ResultExchange, name: str, key: str) -> list[tuple[int, str]]:
    """Seeds of these inputs in the remote, with the path of each archive, in order."""
    fs = exchange.entries.fs
    paths = sorted(fs.find(locate_archives(exchange, name)))
    matches = [(re.fullmatch(rf"{key}-(\d+)\.tar", fs.name(path)), path) for path in paths]
    return [(int(match[1]), path) for match, path in matches if match]


def unpack(exchange: ResultExchange, path: str, target: Path) -> None:
    """Put the files of an archive into the folder `target`; a damaged archive is removed.

    A later push would otherwise skip this seed.
    """
    fs, part = exchange.entries.fs, target.with_name(f".{FINISHED}.{os.getpid()}")
    part.mkdir(parents=True, exist_ok=True)  # of a killed process, whose id came again
    try:
        with (
            fs.open(path, "rb") as file,
            suppress(tarfile.TarError),
            tarfile.open(fileobj=file, mode="r|") as archive,
        ):
            for member in archive:
                place = (part / member.name).resolve()
                # The filters of tarfile, which do the same, came with Python 3.11.4.
                if member.isfile() and part.resolve() in place.parents:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    content = archive.extractfile(member)
                    assert content is not None, "a file has content"
                    with place.open("wb") as copy:
                        shutil.copyfileobj(content, copy)
        if not is_whole(part):
            fs.remove(path)
        elif not target.exists():
            part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def locate_scratch(exchange: ResultExchange, name: str, key: str) -> Path:
    """The scratch folder of a stage run with these inputs."""
    return Path(exchange.repo.root_dir) / ".pipe" / f"{name}-{key[:16]}"


def locate_archives(exchange: ResultExchange, name: str) -> str:
    """The folder of the remote with the archives of a stage's seeds."""
    return exchange.entries.fs.join(exchange.entries.path, "seeds", *name.split("@"))


if __name__ == "__main__":
    run(main)
