"""Entries of DVC's run cache and of dvc.lock: their digests, by which DVC names them."""

from typing import Any

Entry = dict[str, Any]
"""`cmd`, `deps`, `params`, `outs`. In the run cache, here and in a remote, its file is
runs/<first two digits>/<digest of the inputs>/<digest of the entry>."""


def digest_entry(entry: Entry) -> str:
    """DVC's name of an entry: SHA-256 of its content, sizes aside."""
    from dvc.utils import dict_sha256

    return dict_sha256(entry, exclude=["size", "nfiles"])


def digest_inputs(entry: Entry) -> str:
    """DVC's name of an entry's inputs: command, dependencies, parameters, paths of outputs."""
    return digest_entry(entry | {"outs": [out["path"] for out in entry["outs"]]})
