"""Nothing that the project reads can run code: checkpoints, data and answers are data."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from stages.models import policy

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "stages").rglob("*.py")) + sorted((ROOT / "flows").rglob("*.py"))
UNPICKLERS = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
RUN_TEXT = {"eval", "exec", "compile", "__import__", "sympify", "parse_expr"}
"""The last two are sympy's, which evaluates what it reads: only math-verify's worker comes near."""
STARTERS = {"subprocess", "multiprocessing", "runpy", "importlib", "code", "pty"}
"""What starts a process, or a module by its name."""
MAY_START = {
    "stages/__main__.py": {"importlib"},  # modules of the table of entry points
    "stages/doctor.py": {"subprocess"},  # the plan's check; it sees no completion
    "stages/planning/speed.py": {"subprocess"},  # timed passes of made-up tokens
    "stages/planning/forecast.py": {"multiprocessing"},  # forks, for trials on fake tensors
    "stages/plan_checks.py": {"importlib"},  # the same modules
    "stages/engines/vllm_hosting.py": {"importlib"},  # asks whether vLLM is installed
    "stages/environments/definition.py": {"importlib"},  # versions of packages
    "stages/environments/skyrl_gym.py": {"importlib"},  # the package, which may be absent
    "stages/environments/textarena.py": {"importlib"},  # likewise
    "stages/environments/hash_seed.py": {"subprocess"},  # itself, with another hash seed
    "stages/own_modules.py": {"importlib"},  # the user's file, by a word of params.yaml
    "stages/own_imports.py": {"importlib"},  # versions of packages
    "stages/imports.py": {"importlib"},  # the loader of one module of transformers
    "stages/models/model_files.py": {"importlib"},  # where a package of params.yaml lies
    "stages/sources/reasoning_gym.py": {"importlib"},  # the package, which may be absent
    "stages/studies/reasoning_gym.py": {"subprocess"},  # itself, with other hash seeds
    "stages/studies/__main__.py": {"subprocess"},  # dvc, with the names of studies
    "stages/studies/copies.py": {"subprocess"},  # stages, by the names of their files
    "stages/rewards/symbolic_equality.py": {"subprocess"},  # the worker; text goes to its input
}
"""Of everything under stages/ that sees data; stages/runtime sees none."""
UNSAFE_CALLS = {
    "torch.load",
    "torch.save",
    "os.system",
    "os.popen",
    "yaml.load",
    "yaml.unsafe_load",
}
# Keyword arguments that must have one value wherever they are given.
SAFE_VALUES = {
    "trust_remote_code": False,
    "allow_pickle": False,
    "weights_only": True,
    "use_safetensors": True,
    "safe_serialization": True,
    "shell": False,
}


def unsafe(source: str) -> Iterator[str]:
    """What in a module could run code that came as data."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        else:
            modules = []
        yield from (f"imports {name}" for name in modules if name.split(".")[0] in UNPICKLERS)
        if isinstance(node, ast.Call):
            yield from unsafe_call(node)


def unsafe_call(node: ast.Call) -> Iterator[str]:
    name = ast.unparse(node.func)
    if name in RUN_TEXT | UNSAFE_CALLS:
        yield f"calls {name}"
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    for argument, safe in SAFE_VALUES.items():
        value = given.get(argument)
        if value is not None and not (isinstance(value, ast.Constant) and value.value is safe):
            yield f"passes {argument}={ast.unparse(value)}"
    loads_weights = name.startswith("AutoModel") and name.endswith(".from_pretrained")
    if loads_weights and "use_safetensors" not in given:
        yield f"calls {name} without use_safetensors=True"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_unpickles_or_runs_text_or_trusts_remote_code(path: Path):
    assert list(unsafe(path.read_text(encoding="utf-8"))) == []


def starters(source: str) -> set[str]:
    """What a module imports of `STARTERS`."""
    result: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            result |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            result.add((node.module or "").split(".")[0])
    return result & STARTERS


def test_nothing_that_sees_completions_can_start_a_process_or_a_module():
    result = {}
    for path in SOURCES:
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("stages/") and not name.startswith("stages/runtime/"):
            used = starters(path.read_text(encoding="utf-8"))
            result |= {name: used} if used else {}
    assert {name: used - MAY_START.get(name, set()) for name, used in result.items()} == {
        name: set() for name in MAY_START
    }
    assert starters("from subprocess import run\nimport importlib.util") == {
        "subprocess", "importlib"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("import pickle", "imports pickle"),
        ("from dill import loads", "imports dill"),
        ("eval(text)", "calls eval"),
        ("torch.load(path)", "calls torch.load"),
        ("f(x, trust_remote_code=True)", "passes trust_remote_code=True"),
        ("f(x, trust_remote_code=config.trust)", "passes trust_remote_code=config.trust"),
        ("subprocess.run(x, shell=True)", "passes shell=True"),
        ("AutoModelForCausalLM.from_pretrained(p)", "without use_safetensors=True"),
    ],
)
def test_the_search_finds_what_it_searches_for(source: str, complaint: str):
    assert any(complaint in item for item in unsafe(source))


def test_the_search_leaves_ordinary_code_alone():
    assert list(unsafe("model.eval(); re.compile('x'); f(trust_remote_code=False)")) == []


def test_a_saved_policy_holds_its_weights_in_safetensors_alone(tmp_path: Path):
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=8,
            hidden_size=8,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
        )
    )
    words = Tokenizer(WordLevel({"<eos>": 0, "a": 1}, unk_token="<eos>"))
    policy.save_model(
        model, PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>"), tmp_path
    )
    files = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert "model.safetensors" in files
    assert {Path(name).suffix for name in files} <= {".safetensors", ".json", ".jinja", ".txt"}
