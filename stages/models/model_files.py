"""Files of the base model: completeness, digests, and conversion from GGUF.

GGUF is the format of llama.cpp: weights, often quantised, with tokenizer and chat template in one
file. Such a file is converted once, by transformers' reader, to a folder of safetensors in float32
(`FOLDERS`), which everything else reads like any other model. `package:<name>/<file>` is a file in
an installed Python package.
"""

import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import torch
import transformers
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from stages.config import Params

INDEX = "model.safetensors.index.json"
"""File that names the safetensors file of each weight, if there are several."""
GGUF, PACKAGE = ".gguf", "package:"
FOLDERS = Path(".pipe/gguf")
"""Folder of converted models, one folder per digest: a deleted one is made again."""
DESCRIPTION = "converted.json"
ORIGIN = "origin.json"
"""File with the digests of the weights (`Origin`), in the folder of the base model's tokenizer."""
READ = (".safetensors", ".json", ".jinja", ".model", ".txt", GGUF)
"""Suffixes of the files that transformers reads."""
NAMED_TEMPLATES = "additional_chat_templates"
"""Folder of the chat templates that have names, such as `tool_use`."""


class Origin(Params):
    """Files that the base model comes from, wherever they lie."""

    files: dict[str, str]
    """Path in the folder, or a GGUF file's name -> SHA-256."""
    quantisation: str | None
    """Most frequent type of a GGUF file's tensors before conversion, such as Q4_1."""


def is_local(path: str) -> bool:
    """Whether `model.path` names files on this machine; else it is a hub id."""
    return path.endswith(GGUF) or Path(path).is_dir()


def locate_folder(path: str) -> str:
    """Folder of `model.path`, converted if it is a GGUF file; a hub id as it is."""
    return str(convert_gguf(locate_gguf(path))) if path.endswith(GGUF) else path


def locate_gguf(path: str) -> Path:
    """A GGUF file, in a folder or in a package; ValueError: it is not there."""
    if not path.startswith(PACKAGE):
        file, advice = Path(path), "Correct model.path, or put the file there"
    else:
        package, _, name = path.removeprefix(PACKAGE).partition("/")
        spec = importlib.util.find_spec(package) if package.isidentifier() else None
        places = (spec and spec.submodule_search_locations) or [f"<{package}>"]
        file = Path(places[0]) / name
        advice = f"Install the package that holds {package}, or correct model.path"
    if not file.is_file():
        raise ValueError(f"model.path: expected a GGUF file, there is none at '{path}'. {advice}.")
    return file


def convert_gguf(file: Path) -> Path:
    """Folder with the model of a GGUF file in safetensors and float32, and its tokenizer."""
    try:
        reader = importlib.metadata.version("gguf")
    except importlib.metadata.PackageNotFoundError as error:
        raise ValueError(
            f"{file.name} is a GGUF file, which the package gguf reads: pip install -c "
            f"constraints.txt -e '.[gguf]'"
        ) from error
    # Another version of a library may convert otherwise.
    digest = digest_file(str(file), file.stat().st_mtime_ns)
    folder = FOLDERS / f"{digest}-{transformers.__version__}-{reader}"
    FOLDERS.mkdir(parents=True, exist_ok=True)
    with FileLock(FOLDERS / f"{folder.name}.lock"):
        if not (folder / DESCRIPTION).is_file():
            scratch = FOLDERS / f"{folder.name}.scratch"
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.rmtree(folder, ignore_errors=True)
            _convert(file, scratch)
            scratch.rename(folder)
    return folder


def _convert(file: Path, folder: Path) -> None:
    from gguf import GGUFReader

    place: dict[str, Any] = {"gguf_file": file.name, "trust_remote_code": False}
    try:
        types = [tensor.tensor_type.name for tensor in GGUFReader(file).tensors]
        model = AutoModelForCausalLM.from_pretrained(
            file.parent, dtype=torch.float32, use_safetensors=True, **place
        )
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **place)
    except Exception as error:  # any error of the libraries about the file
        raise ValueError(
            f"{file}: expected a GGUF file of a causal language model that transformers reads, "
            f"found: {' '.join(str(error).split()):.200}"
        ) from error
    # The weights are saved as they are now: without a quantisation.
    config: Any = model.config
    del config.quantization_config
    plain = type(model)(config)
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    content = json.dumps({"quantisation": max(sorted(set(types)), key=types.count)})
    (folder / DESCRIPTION).write_text(f"{content}\n", encoding="utf-8")


def describe_origin(path: str | None) -> Origin | None:
    """Digests of the files of `model.path`; None: no path, or a hub id, which has a commit."""
    if path is None or not is_local(path):
        return None
    quantisation, files = None, list_files(path)
    if path.endswith(GGUF):
        text = (Path(locate_folder(path)) / DESCRIPTION).read_text(encoding="utf-8")
        quantisation = json.loads(text)["quantisation"]
    digests = dict[str, str]()
    for file in files:
        name = file.name if path.endswith(GGUF) else file.relative_to(path).as_posix()
        digests[name] = digest_file(str(file), file.stat().st_mtime_ns)
    return Origin(files=digests, quantisation=quantisation)


def list_files(path: str) -> list[Path]:
    """The files of a folder that transformers reads, or a GGUF file."""
    if path.endswith(GGUF):
        return [locate_gguf(path)]
    files = sorted(file for file in Path(path).iterdir() if file.name.endswith(READ))
    return files + sorted((Path(path) / NAMED_TEMPLATES).glob("*.jinja"))


@functools.lru_cache(maxsize=256)
def digest_file(path: str, _changed: int) -> str:
    """SHA-256 of a file, read once for each time of its last change."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_template(path: str | None) -> str | None:
    """The text of a chat template's file; None without a path. ValueError: it cannot be read."""
    try:
        return None if path is None else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"model.chat_template: expected keep_thoughts or a Jinja file in UTF-8, found no such "
            f"file at '{path}' ({error}). Correct the path"
        ) from error


def check_model_files(path: str | None) -> None:
    """Raise a ValueError, before any work, if a folder has no whole model in safetensors."""
    folder = Path(path or "")
    if path is None or not folder.is_dir():
        return
    names = {file.name for file in folder.iterdir()}
    file = folder / INDEX
    try:
        index = dict(json.loads(file.read_bytes())) if INDEX in names else {}
        needed = {*index.get("weight_map", {"": "model.safetensors"}).values()}
        for name in sorted(needed & names):
            file = folder / name
            with safe_open(file, "pt"):
                pass
    except (AttributeError, TypeError, ValueError, SafetensorError) as error:
        raise ValueError(
            f"{file}: expected a whole file of weights, or their index, found something else "
            f"({error}). Copy it again; a file of git LFS comes by `git lfs pull`."
        ) from error
    if missing := sorted({"config.json", *needed} - names):
        raise ValueError(
            f"{folder}: expected a model with a file {missing[0]}, found "
            f"{', '.join(sorted(names)) or 'nothing':.200}. Save the whole model there by "
            f"save_pretrained, in safetensors (pickled weights can run code), LoRA adapters merged "
            f"(merge_and_unload); of a GGUF file, name the file itself."
        )
