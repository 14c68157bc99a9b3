"""Exchange of results with the default DVC remote: a clone restores what another has computed.

    python -m flows.remote fetch STAGE          into DVC's cache of this clone, if the remote has it
    python -m flows.remote push STAGE ...       from that cache; what is there already is not sent
    python -m flows.remote fetch-or-seeds STAGE the same, or its finished seeds (`flows.seeds`)
    python -m flows.remote fetch-seed STAGE SEED
    python -m flows.remote push-seeds STAGE

Run records (times, host, versions) are not outputs: they are sent beside the result of a stage, to
the remote's folder `records`. A result without one is complete.

A result is an entry of DVC's run cache, which maps the digest of a stage's inputs to its outputs,
and the objects that it names. `dvc push --run-cache` sends entries first. Here an entry is sent
after all its objects, and used only if its digest and theirs are right, so an interrupted push is
never taken for a result. `dvc pull --run-cache` reads the same remote.
"""

import enum
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from flows import dvc_internals
from flows.lock import RUN_FILE, RUNS, Entry, digest_entry, digest_inputs, find_records
from stages.runtime.redaction import hide_secrets

KEY = "key "
"""Printed by `fetch` before the digest of a stage's inputs."""
FINAL = ("NoCredentialsError", "PartialCredentialsError", "RemoteMissingDepsError")
"""Names of errors, of S3's library and of DVC without a driver, that waiting does not cure."""


class RemoteStatus(enum.IntEnum):
    """Exit status of this file's commands."""

    DONE = 0
    FAILED = 1
    AWAY = 3
    """The remote does not answer; it may later."""
    ABSENT = 4
    """The remote answers, and has no such result."""
    NOT_SHARED = 5
    """DVC keeps no run cache of this stage: every clone runs it."""


def main() -> int:
    """Run the command; returns its exit status."""
    from dvc.exceptions import DvcException

    from flows import seeds

    final = (
        PermissionError, DvcException, ImportError, ValueError, TypeError, LookupError,
        AttributeError,
    )  # fmt: skip
    try:
        action, *names = sys.argv[1:]
        exchange = ResultExchange(Path.cwd())
        match action:
            case "fetch":
                return exchange.fetch(*names)
            case "fetch-or-seeds":
                if (status := exchange.fetch(*names)) is RemoteStatus.ABSENT:
                    seeds.fetch(exchange, names[0])
                return status
            case "fetch-seed":
                return seeds.fetch(exchange, names[0], int(names[1]))
            case "push-seeds":
                return seeds.push(exchange, *names)
            case _:
                for name in names:
                    exchange.push(name)
    except Exception as error:  # noqa: BLE001 - every kind of remote has errors of its own library
        print(hide_secrets(" ".join(f"{type(error).__name__}: {error}".split())))
        is_full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        is_final = is_full or isinstance(error, final) or type(error).__name__ in FINAL
        return RemoteStatus.FAILED if is_final else RemoteStatus.AWAY
    return RemoteStatus.DONE


class ResultExchange:
    """This clone's DVC repository with its default remote."""

    def __init__(self, root: Path) -> None:
        from dvc.repo import Repo

        self.repo = Repo(str(root), _wait_for_lock=True)
        self.objects = self.repo.cloud.get_remote_odb()
        self.entries = self.repo.cloud.get_remote_odb(hash_name="md5-dos2unix")

    def check_remote(self) -> None:
        """Raise an error of the remote's library if it does not answer.

        A folder that is missing is a disk that is not mounted: DVC would create an empty one.
        """
        fs, path = self.entries.fs, self.entries.path
        if fs.protocol == "local":
            if not Path(path).is_dir():
                raise FileNotFoundError(f"there is no folder {path}")
            return
        try:
            fs.ls(path, detail=False)
        except FileNotFoundError:  # nothing was pushed yet
            fs.ls(path.split("/")[0], detail=False)

    def fetch(self, name: str) -> RemoteStatus:
        """Get a stage's result into this clone's cache and run cache, so that DVC restores it.

        Among results of the same inputs, dvc.lock's comes first, then those of this clone.
        """
        stage, key, locked = dvc_internals.load_stage(self.repo, name, refresh=True)
        if key is None:
            return RemoteStatus.NOT_SHARED
        print(f"{KEY}{key}")
        preferred = [locked] if locked is not None and digest_inputs(locked) == key else []
        for entry in (*preferred, *dvc_internals.list_entries(self.repo, key)):
            if dvc_internals.stage_with_outputs(self.repo, stage, entry).outs_cached():
                return self.choose(stage, key, entry, preferred)
        self.check_remote()
        for entry in (*preferred, *self.list_remote_entries(key)):
            if self.download_result(stage, entry):
                self.fetch_records(name, key)
                return self.choose(stage, key, entry, preferred)
        return RemoteStatus.ABSENT

    def choose(self, stage: Any, key: str, entry: Entry, preferred: list[Entry]) -> RemoteStatus:
        """Make DVC take this entry: the newest of its run cache, and no other in dvc.lock.

        Releases the finished seeds of these inputs, which the result contains.
        """
        from flows import seeds

        seeds.release(Path(self.repo.root_dir), stage.addressing, key)
        os.utime(dvc_internals.save_entry(self.repo, key, entry))
        if preferred and digest_entry(preferred[0]) != digest_entry(entry):
            dvc_internals.remove_from_lock(self.repo, stage)
        return RemoteStatus.DONE

    def list_remote_entries(self, key: str) -> Iterator[Entry]:
        """The remote's undamaged entries of the inputs with digest `key`, in a fixed order."""
        fs = self.entries.fs
        for path in sorted(fs.find(fs.join(self.entries.path, "runs", key[:2], key))):
            entry = dvc_internals.parse_entry(fs.cat_file(path), path)
            if entry is not None and digest_entry(entry) == fs.name(path):
                yield entry

    def download_result(self, stage: Any, entry: Entry) -> bool:
        """Download the objects that an entry names; returns whether all are here and undamaged."""
        result = dvc_internals.stage_with_outputs(self.repo, stage, entry)
        if not self.download({out.hash_info for out in result.outs}):
            return False
        self.download(collect_objects(result))  # also the files of folders
        return dvc_internals.stage_with_outputs(self.repo, stage, entry).outs_cached()

    def download(self, objects: set[Any]) -> bool:
        """Download objects that the remote has; returns whether all are in this clone's cache.

        Raises:
            ConnectionError: the remote has an object and did not send it.
        """
        from dvc_objects.errors import ObjectFormatError

        self.objects.verify = True  # the digest of each download
        with suppress(ObjectFormatError, AssertionError):  # a folder's list of files is damaged
            self.repo.cloud.pull(objects, odb=self.objects)
        local = self.repo.cache.local
        missing = [item.value for item in objects if not local.exists(item.value)]
        if unread := [digest for digest in missing if self.has_object(digest)]:
            raise ConnectionError(f"{len(unread)} objects could not be read")
        return not missing

    def has_object(self, digest: str) -> bool:
        """Whether the remote has an undamaged object.

        Removes a damaged one, which a later push would take for sent.
        """
        from dvc_data.hashfile.hash import file_md5

        fs, path = self.objects.fs, self.objects.oid_to_path(digest)
        with suppress(FileNotFoundError):
            if file_md5(path, fs) == digest.partition(".")[0]:
                return True
            fs.remove(path)
        return False

    def push(self, name: str) -> None:
        """Send the objects of a stage's result, then its entry; removes its seeds there."""
        from flows import seeds

        stage, key, locked = dvc_internals.load_stage(self.repo, name, refresh=False)
        if key is None or locked is None or not stage.outs_cached():
            return
        self.check_remote()
        objects = collect_objects(stage)
        # `cloud.push` takes the files of a folder for sent if the remote has the folder's list.
        cloud, local = self.repo.cloud, self.repo.cache.local
        if failed := cloud.transfer(local, self.objects, objects).failed:
            raise ConnectionError(f"{len(failed)} of {len(objects)} objects of {name} not sent")
        if digest_entry(locked) not in map(digest_entry, self.list_remote_entries(key)):
            path = dvc_internals.save_entry(self.repo, key, locked)
            fs = self.entries.fs
            fs.put_file(str(path), fs.join(self.entries.path, "runs", key[:2], key, path.name))
        self.push_records(name, key)
        seeds.forget(self, name, key)

    def push_records(self, name: str, key: str) -> None:
        """Send the run records of these inputs that the remote lacks; each run.json last."""
        fs, folder = self.entries.fs, self.locate_records(name)
        sent = {*fs.find(folder)}
        for record in find_records(Path(self.repo.root_dir), name, key):
            for path in sorted(record.iterdir(), key=lambda path: (path.name == RUN_FILE, path)):
                place = fs.join(folder, record.name, path.name)
                if place not in sent:
                    fs.put_file(str(path), place)

    def fetch_records(self, name: str, key: str) -> None:
        """Get the complete run records of these inputs that this clone lacks."""
        fs, folder = self.entries.fs, self.locate_records(name)
        here = Path(self.repo.root_dir) / RUNS / name.replace("@", "/")
        complete = [fs.parent(path) for path in fs.find(folder) if fs.name(path) == RUN_FILE]
        for record in complete:
            title = fs.name(record)
            if title.startswith(key[:16]) and not (here / title).exists():
                part = here / f".{title}.{os.getpid()}"
                fs.get(record, str(part))
                part.rename(here / title)

    def locate_records(self, name: str) -> str:
        """The folder of the remote with a stage's run records."""
        return self.entries.fs.join(self.entries.path, "records", *name.split("@"))


def collect_objects(stage: Any) -> set[Any]:
    """Digests of all files and folders that a stage's outputs consist of."""
    return {item for objects in stage.get_used_objs().values() for item in objects}


if __name__ == "__main__":
    sys.exit(main())
