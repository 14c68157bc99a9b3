"""Finished seeds: a stage run's files of one seed, kept until the outputs of all seeds are safe.

    .pipe/<stage>-<key>/seed-1/finished/
        outputs/0/ 1/ ...    the seed's files in each output folder of the row, in their order
        journal.jsonl        with times; usage.jsonl if the seed took long enough
        seed.json            time and machine of its computation
        manifest.json        stage, input key and seed; length and digest of each other file

A stage run reuses the finished seeds that it finds and computes the others. With POSTTRAIN_SEEDS=1,
or 0,2, it computes only these seeds, changes no output of the row, and leaves no run record: a
later run without the variable joins the seeds (`flows.seeds`, flows/README.md).
"""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.runtime import outputs, ranks
from stages.runtime.journal import Journal
from stages.runtime.usage import USAGE
from stages.runtime.versions import PIN_OF

logger = logging.getLogger(__name__)

SEEDS = "POSTTRAIN_SEEDS"
FINISHED, OUTPUTS, JOURNAL = "finished", "outputs", "journal.jsonl"
RECORD, MANIFEST = "seed.json", "manifest.json"


def read_choice(seeds: Sequence[int]) -> list[int] | None:
    """Seeds that POSTTRAIN_SEEDS names, in the order of `seeds`; None: it is not set.

    A ValueError if it names other seeds, or if torchrun or DVC runs the stage: DVC would record the
    outputs of these seeds as those of all.
    """
    text = os.environ.get(SEEDS)
    if text is None:
        return None
    if not re.fullmatch(r"\d+(,\d+)*", text) or not set(map(int, text.split(","))) <= set(seeds):
        raise ValueError(
            f"{SEEDS}: expected some of the seeds {', '.join(map(str, seeds))}, as in 0,2, "
            f"found {text!r}. Name some of them, or unset it."
        )
    if stage := os.environ.get("DVC_STAGE"):
        raise ValueError(
            f"{SEEDS}: expected a stage that is run without DVC, found `dvc repro`. "
            f"`python -m flows.seeds {stage} {text}` computes these seeds, after `dvc checkout`; "
            f"or unset it."
        )
    if ranks.read_torchrun_rank() is not None:
        raise ValueError(f"{SEEDS}: expected no torchrun, which needs all seeds. Unset it.")
    return sorted(set(map(int, text.split(","))), key=list(seeds).index)


def store_seed(
    folder: Path, identity: Mapping[str, Any], folders: Sequence[Path], log: Journal,
    record: Mapping[str, Any],
) -> None:  # fmt: skip
    """Store a seed's files in `folders`, its journal and its record atomically.

    `folder`: the seed's scratch. `identity`: fields that must be equal in a run that reuses it.
    """
    with outputs.replace(folder / FINISHED) as temporary:
        temporary.mkdir()
        for number, path in enumerate(folders):
            target = temporary / OUTPUTS / str(number)
            shutil.copytree(path, target, copy_function=outputs.link_or_copy)
        with log.path.open("rb") as file:
            (temporary / JOURNAL).write_bytes(file.read(log.length))
        if (folder / USAGE).is_file() and (folder / USAGE).stat().st_size:
            shutil.copyfile(folder / USAGE, temporary / USAGE)
        (temporary / RECORD).write_text(json.dumps(dict(record), sort_keys=True), encoding="utf-8")
        files = {
            path.relative_to(temporary).as_posix(): _describe(path)
            for path in sorted(temporary.rglob("*"))
            if path.is_file()
        }
        manifest = {"identity": dict(identity), "files": files}
        (temporary / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def restore_seed(
    folder: Path,
    identity: Mapping[str, Any],
    folders: Sequence[Path],
    surroundings: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Copy a finished seed's files into `folders`, its journal to its scratch; returns its record.

    None if there is none. A finished seed that is damaged, of another identity, or computed in
    other `surroundings` (packages, arithmetic) is removed with a warning.
    """
    finished = folder / FINISHED
    if not finished.exists():
        return None
    damage = _damage(finished, identity) or find_difference(
        json.loads((finished / RECORD).read_text(encoding="utf-8")), surroundings
    )
    if damage is not None:
        logger.warning("%s is not used (%s): the seed is computed again", finished, damage)
        shutil.rmtree(finished)
        return None
    for number, path in enumerate(folders):
        path.mkdir(parents=True, exist_ok=True)
        for name in _files(finished, f"{OUTPUTS}/{number}/"):
            target = path / name.split("/", 2)[2]
            target.parent.mkdir(parents=True, exist_ok=True)
            outputs.link_or_copy(str(finished / name), str(target))
    for name in {JOURNAL, USAGE}.intersection(_files(finished, "")):
        shutil.copyfile(finished / name, folder / name)
    return json.loads((finished / RECORD).read_text(encoding="utf-8"))


def find_difference(record: Mapping[str, Any], surroundings: Mapping[str, Any]) -> str | None:
    """First forbidden difference between seeds of one run, in words; None: there is none.

    Only packages of both machines are compared; vLLM's build for CPUs differs from the one for
    GPUs. With `compute.rounding: native` seeds must not differ in the processor, either.
    """
    computed, expected = (
        {str(PIN_OF.get(name, name)): f"{name} {version}" for name, version in packages.items()}
        for packages in (record.get("packages", {}), surroundings.get("packages", {}))
    )
    for name in sorted(computed.keys() & expected.keys()):
        if computed[name] != expected[name]:
            return f"computed with {computed[name]}, here {expected[name]}"
    names = ["rounding", "threads"]
    if surroundings.get("rounding", "pinned") != "pinned":
        names.append("cpu")
    for name in names:
        computed, expected = record.get(name), surroundings.get(name)
        if computed != expected:
            return f"computed with {name} {computed}, here {expected}"
    return None


def warn_of_devices(folders: Sequence[Path]) -> None:
    """Warn if the joined seeds were computed on several devices: their bits may differ.

    `folders`: the scratch of each seed.
    """
    paths = [folder / FINISHED / RECORD for folder in folders]
    records = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
    devices = sorted({str(record["device"]) for record in records})
    if len(devices) > 1:
        logger.warning(
            "seeds of this run were computed on %s: their results may differ by the device, too",
            " and ".join(devices),
        )


def _files(finished: Path, prefix: str) -> list[str]:
    files = json.loads((finished / MANIFEST).read_bytes())["files"]
    return [name for name in files if name.startswith(prefix)]


def _damage(finished: Path, identity: Mapping[str, Any]) -> str | None:
    """Reason why a finished seed cannot be used, or None. It may come from another machine."""
    try:
        manifest = json.loads((finished / MANIFEST).read_bytes())
        if manifest["identity"] != dict(identity):
            return f"expected {dict(identity)}, found {manifest['identity']}"
        for name, description in manifest["files"].items():
            if Path(name).is_absolute() or ".." in Path(name).parts:
                return f"{name} is outside of it"
            if _describe(finished / name) != description:
                return f"{name} has other bits than were written"
        if missing := {JOURNAL, RECORD} - set(manifest["files"]):
            return f"{', '.join(sorted(missing))} is missing"
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _describe(path: Path) -> list[Any]:
    """Length and SHA-256 of a file."""
    with path.open("rb") as file:
        return [path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()]
