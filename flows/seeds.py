"""Some seeds of a stage, computed here without DVC, for a later run of the stage to join.

    python -m flows.seeds train@grpo 1            seed 1 of this stage, whose inputs are up to date
    python -m flows.seeds train@grpo 0,2 --remote what the remote lacks of it, and pushed there

What a seed wrote is kept in the scratch folder of the stage run (`stages/runtime/finished_seeds`),
which is of exactly these inputs. `dvc repro -s train@grpo` takes it from there and computes the
seeds that are missing: the same outputs and dvc.lock as of a run of all. The outputs of the row and
dvc.lock stay as they are until then.

Finished seeds travel through the DVC remote as objects of DVC, named by their digests; an entry
`seeds/<stage>/<row>/<digest of the inputs>-<seed>/<digest of the list of files>` is sent last.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from flows import dvc_internals
from flows.command_line import make_parser
from flows.plan import read_graph
from flows.process import Runner, child_environment, exit_when_terminated, kill_tree
from flows.remote import KEY, RemoteStatus, ResultExchange

SEEDS, FINISHED = "POSTTRAIN_SEEDS", "finished"
ENDED, PARTIAL = "ended", "some seeds"
"""File in the scratch of a run that has ended, and its text where that was of some seeds."""


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
    if not re.fullmatch(r"\d+(,\d+)*", options.seeds) or not set(
        map(int, options.seeds.split(","))
    ) <= set(allowed):
        parser.error(
            f"expected a stage that has seeds, and some of them, found {options.stage} with "
            f"{options.seeds}: it has {', '.join(map(str, allowed)) or 'none'}"
        )
    if not options.remote:
        return run_seeds(options.stage, options.seeds)
    from flows.share import restore_upstream, run_shared_seed

    runner = Runner(root=Path.cwd())
    try:
        restore_upstream(options.stage, runner)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    results = [
        run_shared_seed(options.stage, int(seed), runner) for seed in options.seeds.split(",")
    ]
    for result in results:
        print(f"{result.name}: {result.outcome.value} {result.reason}".rstrip())
    return 0 if all(result.outcome.good for result in results) else 1


def run_seeds(name: str, seeds: str) -> int:
    """Run the commands of a stage for some of its seeds; the exit status of the one that failed."""
    from dvc.repo import Repo

    with Repo(".", _wait_for_lock=True) as repo:
        command = str(repo.stage.load_one(name=name).cmd)
    environment = child_environment() | {SEEDS: seeds}
    for line in command.splitlines():
        child = subprocess.Popen(shlex.split(line), env=environment)
        try:
            status = child.wait()
        except BaseException:
            kill_tree(child.pid)
            raise
        if status:
            return status if status > 0 else 128 - status  # as a shell says it
    return 0


def push(exchange: ResultExchange, name: str) -> RemoteStatus:
    """Send the seeds of a stage that are finished here: the objects of each, then its entry."""
    _, key, _ = dvc_internals.load_stage(exchange.repo, name, refresh=True)
    if key is None:
        return RemoteStatus.NOT_SHARED
    exchange.check_remote()
    fs, local = exchange.entries.fs, exchange.repo.cache.local
    for folder in sorted(locate_scratch(exchange, name, key).glob(f"seed-*/{FINISHED}")):
        if not is_whole(folder):
            continue
        tree = dvc_internals.add_folder(exchange.repo, folder)
        objects = {tree.hash_info, *(info for _, _, info in tree)}
        if failed := exchange.repo.cloud.transfer(local, exchange.objects, objects).failed:
            raise ConnectionError(f"{len(failed)} of {len(objects)} objects of {name} not sent")
        seed = folder.parent.name.removeprefix("seed-")
        entry = f"{key}-{seed}", tree.hash_info.value
        place = fs.join(locate_entries(exchange, name), *entry)
        fs.makedirs(fs.parent(place), exist_ok=True)
        fs.pipe_file(place, tree.hash_info.value.encode())
    return RemoteStatus.DONE


def fetch(exchange: ResultExchange, name: str, seed: int | None = None) -> RemoteStatus:
    """Get a finished seed, or all, into the scratch of the stage; done if `seed` is here then."""
    _, key, _ = dvc_internals.load_stage(exchange.repo, name, refresh=True)
    if key is None:
        return RemoteStatus.NOT_SHARED
    if seed is not None:
        print(f"{KEY}{key}")
    exchange.check_remote()
    scratch = locate_scratch(exchange, name, key)
    for number, digest in list_entries(exchange, name, key):
        target = scratch / f"seed-{number}" / FINISHED
        if seed in (None, number) and not is_whole(target):
            shutil.rmtree(target, ignore_errors=True)
            get_files(exchange, digest, target)
    is_here = is_whole(scratch / f"seed-{seed}" / FINISHED)
    return RemoteStatus.DONE if is_here else RemoteStatus.ABSENT


def release(root: Path, name: str, key: str) -> None:
    """Let the finished seeds of a stage go, of whose inputs the result has come from elsewhere.

    The next stage that starts here removes them once dvc.lock names that result
    (`stages/runtime/identity`). Until then they stay, and so do those of a run that goes on.
    """
    ended = root / ".pipe" / f"{name}-{key[:16]}" / ENDED
    if ended.is_file() and ended.read_text(encoding="utf-8") == PARTIAL:
        ended.write_text("", encoding="utf-8")


def is_whole(folder: Path) -> bool:
    """Whether a finished seed is there, with the bits that its manifest names."""
    try:
        files = json.loads((folder / "manifest.json").read_bytes())["files"]
        return all(
            hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
            for name, (_, digest) in files.items()
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return False


def list_entries(exchange: ResultExchange, name: str, key: str) -> Iterator[tuple[int, str]]:
    """Seeds of these inputs that were sent, each with the digest of its list of files, in order."""
    fs, folder = exchange.entries.fs, locate_entries(exchange, name)
    for path in sorted(fs.find(folder)):
        place = "/".join(fs.parts(path)[-2:])
        if match := re.fullmatch(rf"{key}-(\d+)/([0-9a-f]{{32}}\.dir)", place):
            yield int(match[1]), match[2]


def get_files(exchange: ResultExchange, digest: str, target: Path) -> bool:
    """Put the files of a list into the folder `target`; whether the remote has all, undamaged."""
    info = dvc_internals.make_digest(digest)
    if not exchange.download({info}):
        return False
    tree = dvc_internals.load_folder(exchange.repo, info)
    if not exchange.download({item for _, _, item in tree}):
        return False
    part = target.with_name(f".{FINISHED}.{os.getpid()}")
    try:
        for names, _, item in tree:
            if any(name in ("", "..") for name in names) or Path(*names).is_absolute():
                return False
            path = part.joinpath(*names)
            path.parent.mkdir(parents=True, exist_ok=True)
            dvc_internals.link_object(exchange.repo, item, path)
        if not target.exists():
            part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return True


def locate_scratch(exchange: ResultExchange, name: str, key: str) -> Path:
    """The scratch folder of a stage run with these inputs."""
    return Path(exchange.repo.root_dir) / ".pipe" / f"{name}-{key[:16]}"


def locate_entries(exchange: ResultExchange, name: str) -> str:
    """The folder of the remote with the entries of a stage's seeds."""
    return exchange.entries.fs.join(exchange.entries.path, "seeds", *name.split("@"))


if __name__ == "__main__":
    sys.exit(main())
