"""Rules on all files: sources run no code that came as data, and links of pages lead somewhere."""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for pattern in ("stages/**/*.py", "flows/**/*.py", "studies/*.py")
    for path in ROOT.glob(pattern)
)
UNPICKLERS = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
UNSAFE_CALLS = {
    "eval", "exec", "compile", "__import__", "sympify", "parse_expr", "torch.load", "torch.save",
    "os.system", "os.popen", "yaml.load", "yaml.unsafe_load",
}  # fmt: skip
"""sympy evaluates what it reads: only the worker of math-verify comes near it."""
SAFE_VALUES = {
    "trust_remote_code": False, "allow_pickle": False, "weights_only": True,
    "use_safetensors": True, "safe_serialization": True, "shell": False,
}  # fmt: skip
"""Argument -> the one value that it may have."""
STARTERS = {"subprocess", "multiprocessing", "runpy", "pty"}
SEES_TEXT = ("rewards", "environments", "sources", "loops", "algorithms", "records")
"""Folders of stages/ whose modules have completions or rows of strangers in their hands."""
WORKERS = {"symbolic_equality", "hash_seed"}
"""Modules there that start a process all the same: math-verify's worker, which reads text from its
input, and the user's environment with another hash seed."""


def find_unsafe(source: str, *, sees_text: bool = False) -> Iterator[str]:
    """What in a module could run code that came as data."""
    for node in ast.walk(ast.parse(source)):
        forbidden = UNPICKLERS | (STARTERS if sees_text else set())
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        tops = [name.partition(".")[0] for name in names]
        yield from (f"imports {name}" for name in tops if name in forbidden)
        if not isinstance(node, ast.Call):
            continue
        name, values = ast.unparse(node.func), {word.arg: word.value for word in node.keywords}
        if name in UNSAFE_CALLS:
            yield f"calls {name}"
        for argument, safe in SAFE_VALUES.items():
            value = values.get(argument)
            if value is not None and not (isinstance(value, ast.Constant) and value.value is safe):
                yield f"passes {argument}={ast.unparse(value)}"
        loads_weights = name.startswith("AutoModel") and name.endswith(".from_pretrained")
        if loads_weights and "use_safetensors" not in values:
            yield f"calls {name} without use_safetensors"


def test_no_source_unpickles_or_runs_text_or_trusts_remote_code():
    unsafe = []
    for path in SOURCES:
        parts = path.relative_to(ROOT).parts
        sees_text = parts[1] in SEES_TEXT and path.stem not in WORKERS
        source = path.read_text(encoding="utf-8")
        unsafe += [(str(path), call) for call in find_unsafe(source, sees_text=sees_text)]
    assert unsafe == []


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("import pickle", "imports pickle"), ("from dill import loads", "imports dill"),
        ("eval(text)", "calls eval"), ("torch.load(path)", "calls torch.load"),
        ("f(x, trust_remote_code=True)", "passes trust_remote_code=True"),
        ("f(x, trust_remote_code=c.trust)", "passes trust_remote_code=c.trust"),
        ("subprocess.run(x, shell=True)", "passes shell=True"),
        ("from subprocess import run", "imports subprocess"),
        ("AutoModelForCausalLM.from_pretrained(p)",
         "calls AutoModelForCausalLM.from_pretrained without use_safetensors"),
        ("model.eval(); re.compile('x'); f(trust_remote_code=False)", None),
    ],
)  # fmt: skip
def test_unsafe_code_is_noticed_and_ordinary_code_is_not(source, complaint):
    assert list(find_unsafe(source, sees_text=True)) == ([] if complaint is None else [complaint])


def list_anchors(page: Path) -> set[str]:
    headings = re.findall(r"(?m)^#+ (.*)$", page.read_text())
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_of_a_page_leads_to_a_file_and_its_heading():
    broken = []
    skipped = {".venv", "venv", "shared", "report.golden.md"}
    for page in (path for path in ROOT.rglob("*.md") if not skipped & set(path.parts)):
        for link in re.findall(r"\]\((?!http)([^)\s]+)\)", page.read_text()):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if not target.exists() or (anchor and anchor not in list_anchors(target)):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []


def test_the_files_of_the_image_suffice_to_install(tmp_path):
    excluded, *copied = (ROOT / ".dockerignore").read_text().split()
    assert excluded == "*"
    for name in (pattern.removeprefix("!") for pattern in copied):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    options = ["--no-deps", "--no-build-isolation", "--dry-run", "-c", "constraints.txt", "-e", "."]
    install = [sys.executable, "-m", "pip", "install", *options]
    done = subprocess.run(install, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Would install posttrain" in done.stdout, done.stderr
