"""Exchange the results of stages with the default DVC remote: what any clone made, all restore.

python -m flows.remote fetch STAGE          into DVC's cache here, if the remote has it
python -m flows.remote push STAGE ...       from it; what is there already is not sent

A result is an entry of DVC's run cache, which says what inputs gave what outputs, and the objects
that it names. `dvc push --run-cache` sends the entries first. Here an entry follows when all its
objects are there, and is used when its digest and theirs are right: what was pushed by half is not
there yet. `dvc pull --run-cache` reads the same remote.
"""

import enum
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

KEY = "key "
"""Before the digest of a stage's inputs, in what `fetch` prints."""


class Answer(enum.IntEnum):
    """Exit status of this file's command line."""

    DONE = 0
    FAILED = 1
    AWAY = 3
    """The remote does not answer; later it may."""
    ABSENT = 4
    """The remote answers, and no clone has pushed this result."""
    NOT_SHARED = 5
    """DVC keeps no run cache of this stage: every clone runs it."""


def main() -> int:
    """Run the command line; the result is the exit status."""
    from dvc.exceptions import DvcException

    final = (PermissionError, DvcException, ValueError, TypeError, LookupError, AttributeError)
    try:
        action, *names = sys.argv[1:]
        clone = Clone(Path.cwd())
        if action == "fetch":
            return clone.fetch(*names)
        for name in names:
            clone.push(name)
    except final as error:
        print(" ".join(f"{type(error).__name__}: {error}".split()))
        return Answer.FAILED
    except Exception as error:  # noqa: BLE001 - a library of each kind of remote has its own
        print(" ".join(f"{type(error).__name__}: {error}".split()))
        is_final = type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError")
        return Answer.FAILED if is_final else Answer.AWAY
    return Answer.DONE


class Clone:
    """This clone's DVC repository, and its default remote.

    DVC has no command for one entry of the run cache, so this reads and writes as
    `dvc.stage.cache` does; the tests hold it against DVC's own files.
    """

    def __init__(self, root: Path) -> None:
        from dvc.repo import Repo

        self.repo = Repo(str(root), _wait_for_lock=True)
        self.runs = self.repo.stage_cache
        self.objects = self.repo.cloud.get_remote_odb()
        self.entries = self.repo.cloud.get_remote_odb(hash_name="md5-dos2unix")

    def answers(self) -> None:
        """Raise an error of the remote's own library if it does not answer.

        A folder that is not there is a disk that is not mounted: DVC would make an empty one.
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

    def load(self, name: str, *, now: bool) -> tuple[Any, str | None, dict[str, Any] | None]:
        """A stage, the digest of its inputs, its entry in dvc.lock.

        Args:
            name: as DVC addresses it.
            now: the inputs are those in this folder; else those of dvc.lock.
        """
        from dvc.stage.cache import _can_hash, _get_stage_hash
        from dvc.stage.serialize import to_single_stage_lockfile

        with self.repo.lock:  # DVC writes dvc.lock in place
            stage: Any = self.repo.stage.load_one(name=name)
            whole = not stage.cmd_changed and all(out.hash_info for out in stage.outs)
            locked = deepcopy(to_single_stage_lockfile(stage)) if whole else None
            if now:
                stage.save_deps()
        is_shared = _can_hash(stage) and all(out.use_cache for out in stage.outs)
        return stage, _get_stage_hash(stage) if is_shared else None, locked

    def fetch(self, name: str) -> Answer:
        """Have DVC find the stage's result in its cache here, if anyone made it."""
        stage, key, locked = self.load(name, now=True)
        if key is None:
            return Answer.NOT_SHARED
        print(f"{KEY}{key}")
        own: list[Any] = [locked] if locked is not None and digest(locked, key=True) == key else []
        folder = Path(self.runs._get_cache_dir(key))
        here = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        known: list[Any] = [self.runs._load_cache(key, one) for one in here]
        for entry in (*own, *filter(None, known)):
            if self.made(entry, stage).outs_cached():
                return self.choose(stage, key, entry, own)
        self.answers()
        for entry in (*own, *self.pushed(key)):
            if self.pull(entry, stage):
                return self.choose(stage, key, entry, own)
        return Answer.ABSENT

    def pushed(self, key: str) -> Iterator[dict[str, Any]]:
        """The remote's entries of these inputs whose digest is right; their order is fixed."""
        from dvc.schema import COMPILED_LOCK_FILE_STAGE_SCHEMA
        from dvc.utils.serialize import YAMLFileCorruptedError, parse_yaml
        from voluptuous import Invalid

        fs = self.entries.fs
        for path in sorted(fs.find(fs.join(self.entries.path, "runs", key[:2], key))):
            try:
                text = fs.cat_file(path).decode()
                entry: Any = COMPILED_LOCK_FILE_STAGE_SCHEMA(parse_yaml(text, path))
            except (YAMLFileCorruptedError, UnicodeDecodeError, Invalid):
                continue
            if digest(entry) == fs.name(path):
                yield entry

    def pull(self, entry: dict[str, Any], stage: Any) -> bool:
        """Download what the entry names; whether all of it is here and right."""
        made = self.made(entry, stage)
        folders = {out.hash_info for out in made.outs}
        if not self.download(folders):
            return False
        self.download({one for some in made.get_used_objs().values() for one in some})
        return self.made(entry, stage).outs_cached()

    def download(self, objects: set[Any]) -> bool:
        """Whether all of them are here now; what the remote has and did not give is an error.

        What it has with other bits than the name says is removed there, or a push would skip it.
        """
        from dvc_objects.errors import ObjectFormatError

        self.objects.verify = True  # of each download, its digest
        with suppress(ObjectFormatError, AssertionError):  # a folder's list of files is damaged
            self.repo.cloud.pull(objects, odb=self.objects)
        missing = [one.value for one in objects if not self.repo.cache.local.exists(one.value)]
        if there := [one for one in missing if self.has(one)]:
            raise ConnectionError(f"{len(there)} objects could not be read")
        return not missing

    def has(self, name: str) -> bool:
        """Whether the remote has a whole object of this name; one that is not whole is removed."""
        from dvc_data.hashfile.hash import file_md5

        fs, path = self.objects.fs, self.objects.oid_to_path(name)
        with suppress(FileNotFoundError):
            if file_md5(path, fs) == name.partition(".")[0]:
                return True
            fs.remove(path)
        return False

    def made(self, entry: dict[str, Any], stage: Any) -> Any:
        """The stage with the outputs that the entry names."""
        return self.runs._create_stage(deepcopy(entry), wdir=stage.wdir)

    def choose(
        self, stage: Any, key: str, entry: dict[str, Any], own: list[dict[str, Any]]
    ) -> Answer:
        """Have DVC take this entry: the newest in its run cache, and no other in dvc.lock."""
        path = Path(self.store(key, entry))
        os.utime(path)
        if own and digest(own[0]) != digest(entry):
            with self.repo.lock:
                stage.dvcfile._lockfile.remove_stage(stage)
        return Answer.DONE

    def store(self, key: str, entry: dict[str, Any]) -> str:
        """Write the entry into the run cache here as DVC does; its path."""
        from dvc.utils.serialize import dump_yaml

        path = Path(self.runs._get_cache_path(key, digest(entry)))
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f"{path.name}.{os.getpid()}")
            dump_yaml(str(part), entry)
            part.replace(path)
        return str(path)

    def push(self, name: str) -> None:
        """Send the objects of the stage's result, then its entry."""
        stage, key, locked = self.load(name, now=False)
        if key is None or locked is None or not stage.outs_cached():
            return
        self.answers()
        objects = {one for some in stage.get_used_objs().values() for one in some}
        local = self.repo.cache.local
        # `cloud.push` takes the files of a folder for sent where the folder's list is.
        if failed := self.repo.cloud.transfer(local, self.objects, objects).failed:
            raise ConnectionError(f"{len(failed)} of {len(objects)} objects of {name} not sent")
        if digest(locked) not in map(digest, self.pushed(key)):
            fs = self.entries.fs
            there = fs.join(self.entries.path, "runs", key[:2], key, digest(locked))
            fs.put_file(self.store(key, locked), there)


def digest(entry: dict[str, Any], *, key: bool = False) -> str:
    """DVC's name of an entry of the run cache, or with `key` of its inputs."""
    from dvc.stage.cache import _get_cache_hash

    return _get_cache_hash(deepcopy(entry), key=key)


if __name__ == "__main__":
    sys.exit(main())
