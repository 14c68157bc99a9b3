"""A data set of the hub, as it is in the cache of `datasets` after its download."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import datasets
import datasets.config
import huggingface_hub.constants
import pytest


def cache_dataset(
    folder: Path, name: str, splits: Mapping[str, Sequence[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put the splits of `owner/<name>` into a cache in `folder`, and switch the network off."""
    files = {split: folder / f"{split}.jsonl" for split in splits}
    for split, rows in splits.items():
        files[split].write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    paths = {split: str(path) for split, path in files.items()}
    datasets.load_dataset("json", data_files=paths, cache_dir=str(folder / "built"))
    built = next(folder.glob("built/json/*/*/*/dataset_info.json")).parent
    cached = folder / f"cache/owner___{name}/default/0.0.0" / built.name
    shutil.copytree(built, cached)
    for path in cached.glob("json-*.arrow"):
        path.rename(cached / path.name.replace("json-", f"{name}-", 1))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", folder / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
