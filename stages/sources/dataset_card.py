"""Splits of the files in a data set's folder, by the README.md of its hub repository.

    ---
    configs:
    - config_name: main
      data_files:
      - split: train
        path: main/train-*
      - split: test
        path: main/test-*
    ---

A configuration counts if some of its files are in the folder, so that a part of a repository can be
copied. `data_files` may also be a pattern, a list of them or a map of splits. Patterns are relative
to `data_dir`, if there is one; without patterns, its files are split by their names.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from stages.config import suggest

NAME = "README.md"


def find_files(folder: str, name: str | None) -> dict[str, list[Path]] | str | None:
    """Split -> files of the configuration `name`, or of the only one.

    A text: the folder of a configuration that names no files. None: the folder has no README.md
    that lists files in it.

    Raises:
        ValueError: `name` is none of several configurations, or one names files outside of the
            folder.
    """
    splits_by_name = {
        str(config.get("config_name", "default")): files
        for config in _read_configs(Path(folder))
        if (files := _list_splits(Path(folder), config))
    }
    if not splits_by_name:
        return None
    if name is None and len(splits_by_name) == 1:
        return next(iter(splits_by_name.values()))
    if name is None or name not in splits_by_name:
        hint = "" if name is None else suggest(name, splits_by_name, otherwise="")
        raise ValueError(
            f"{folder} has the configurations {', '.join(splits_by_name)}: expected one of them as "
            f"`name`, found {name or 'none'}{hint}"
        )
    return splits_by_name[name]


def _read_configs(folder: Path) -> list[Mapping[str, Any]]:
    """Configurations in the front matter of the README.md."""
    card = folder / NAME
    if not card.is_file():
        return []
    text = card.read_text(encoding="utf-8-sig", errors="replace")
    front_matter = text.partition("\n---")[0] if text.startswith("---\n") else ""
    try:
        header = YAML(typ="safe").load(front_matter)
    except YAMLError as error:
        raise ValueError(f"{card}: expected YAML between its first --- and ---: {error}") from error
    configs = (header.get("configs") if isinstance(header, dict) else None) or []
    if not isinstance(configs, list) or not all(isinstance(item, dict) for item in configs):
        raise ValueError(
            f"{card}: expected `configs` to be a list of objects with config_name and data_files, "
            f"found {configs!r:.60}. Correct it, or delete it: then the names of files say their "
            f"split."
        )
    return configs


def _list_splits(folder: Path, config: Mapping[str, Any]) -> dict[str, list[Path]] | str:
    """Split -> its files in the folder; or the folder of a configuration that names no files."""
    within = str(config.get("data_dir") or "")
    patterns = list(_list_patterns(config.get("data_files")))
    for path in [within, *(pattern for _, pattern in patterns)]:
        if "://" in path or path.startswith("/") or ".." in Path(path).parts:
            raise ValueError(
                f"{folder / NAME}: expected paths within the folder under `configs`, found "
                f"{path!r:.80}. Copy these files into the folder and correct the path, or delete "
                f"`configs`: then the names of files say their split."
            )
    if within and not patterns:
        return str(folder / within) if (folder / within).is_dir() else ""
    splits: dict[str, list[Path]] = {}
    for split, pattern in patterns:
        files = sorted(file for file in (folder / within).glob(pattern) if file.is_file())
        splits.setdefault(split, []).extend(files)
    return {split: files for split, files in splits.items() if files}


def _list_patterns(data_files: Any) -> Iterator[tuple[str, str]]:
    """Pairs of split and pattern in `data_files`, which may have any of its forms."""
    if isinstance(data_files, Mapping) and "path" not in data_files:
        data_files = [{"split": split, "path": path} for split, path in data_files.items()]
    entries: Sequence[Any] = data_files if isinstance(data_files, list) else [data_files]
    for entry in entries:
        split, path = "train", entry
        if isinstance(entry, Mapping):
            split, path = str(entry.get("split", split)), entry.get("path")
        patterns = path if isinstance(path, list) else [path]
        yield from ((split, str(pattern)) for pattern in patterns if pattern)
