"""A bad input is refused by the place that is wrong, in one printable line, and nothing is lost.

plan.yaml, files.yaml: edits of what `stages.plan --check` reads. data.yaml: files of people and
models, that stages read. A case is a line: what is changed, and `says`, how each message begins
and, after `..`, words that it holds; or `works`.
"""

import contextlib
import functools
import gzip
import io
import json
import operator
import re
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import stage_inputs
from ruamel.yaml import YAML
from stage_inputs import ROOT
from transformers import LlamaConfig, LlamaForCausalLM

from stages import plan, prepare_data, source_checks

HEAD = "The plan is not valid; correct this:\n"
JARGON = ("Traceback", "Input should", "pydantic", "validation error", "Errno", "NoneType")
PARAMS, PRESETS, RAW = "params.yaml", "stages/presets.yaml", "data/raw/mine.jsonl"
EARLIER = {
    "data/prompts/train.jsonl": "{}\n", "data/prepared/data_card.json": '{"counts": {}}\n',
    "data/plan.json": '{"pools": {"earlier": {}}}\n', "data/pairs/mine/train.jsonl": "{}\n",
}  # fmt: skip


def load(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def save(path: str, content: Any) -> None:
    stage_inputs.write_yaml(Path(path), content)


def read_cases(name: str, part: str = "") -> list[Any]:
    content = load(Path(__file__).with_name(name))
    cases = content[part] if part else content
    names = [ascii(f"{number}: {case}")[1:80] for number, case in enumerate(cases)]
    return [pytest.param(case, id=name) for case, name in zip(cases, names, strict=True)]


# --- how a message is compared


def refusal(meet: Callable[[], object]) -> str:
    """The message of a refusal, empty where there is none; any other error goes through."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            meet()
    except SystemExit as error:
        return str(error).removeprefix(HEAD)
    except ValueError as error:
        if type(error) is not ValueError:  # a library's
            raise
        return str(error)
    return ""


def fits(message: str, expected: str) -> bool:
    begin, *words = [part.strip() for part in expected.split(".. ")]
    pattern = ".*".join(map(re.escape, [begin, *words]))
    return re.match(pattern, message, re.DOTALL) is not None


def list_files() -> dict[Path, bytes]:
    """Every file of data/ but those about runs, of which a stage that stops leaves a record."""
    files = (path for path in Path("data").rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files if "runs" not in path.parts}


def write_earlier() -> dict[Path, bytes]:
    """Outputs of an earlier run; all files that a refusal may not touch."""
    for name, text in EARLIER.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
    return list_files()


def check(case: dict[str, Any], meet: Callable[[], object], *, is_plan: bool = False) -> None:
    """Whether what is in the working folder is refused as a case says, and nothing is lost."""
    before, message = write_earlier(), refusal(meet)
    if case.get("works"):
        assert message == ""
        return
    says = [case["says"]] if isinstance(case["says"], str) else case["says"]
    messages = [line.strip() for line in message.splitlines()] if is_plan else [message]
    assert all(line.isprintable() for line in messages) or not is_plan
    assert len(messages) == len(says), message
    assert [text for text in says if not any(fits(line, text) for line in messages)] == [], message
    assert [word for word in JARGON if word in message] == []
    assert max(map(len, messages)) < 1000
    assert list_files() == before


# --- the plan


@pytest.fixture(scope="module")
def contents() -> dict[str, Any]:
    return {name: load(ROOT / name) for name in (PARAMS, PRESETS, "dvc.yaml")}


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """The files that the plan reads."""
    monkeypatch.chdir(tmp_path)
    Path("stages").mkdir()
    for name in (PARAMS, PRESETS, "dvc.yaml"):
        shutil.copy(ROOT / name, name)
    shutil.copytree(ROOT / "stages/recipes", "stages/recipes")
    for name in ("rewards", "environments"):
        Path(f"stages/{name}").symlink_to(ROOT / "stages" / name)


NEW = {"train": "grpo", "preset": "dapo", "from": "sft", "on": "rewards/rule"}
PLAY = {
    "environments.sums": {"by": "own", "preset": "game", "from": "base", "on": "own/calculator"},
    "episodes.demos": {"by": "script", "from": "base", "on": "environments/sums", "split": "train"},
}


def edit(params: Any, presets: Any, case: dict[str, Any]) -> None:
    """The edits of a case but for files."""

    def section_of(content: Any, path: str) -> tuple[Any, str]:
        *parents, key = path.split(".")
        return functools.reduce(operator.getitem, parents, content), key

    play = PLAY if case.get("play") else {}
    changed = [*play.items(), *case.get("rows", {}).items()]
    changed += [(case["row"], case["words"])] if "row" in case else []
    for path, words in changed:
        table, _, name = path.partition(".")
        start = params[table].get(name) or (NEW if table == "policies" else {})
        params[table][name] = start | words
    if "drop" in case:
        section, key = section_of(params, case["drop"])
        del section[key]
    for name, like in case.get("copy", {}).items():
        presets[name] = dict(presets[like])
    for content, changes in ((params, case.get("set", {})), (presets, case.get("presets", {}))):
        for path, value in changes.items():
            section, key = section_of(content, path)
            section[key] = value
    if "key" in case:
        params[case["key"]] = 4
    if "tests" in case:  # two policies that play from the test starts
        words = {"by": "policy", "from": "sft", "on": "environments/sums", "split": "test"}
        params["episodes"] |= {"first": words, "second": words | case["tests"]}
    if "people" in case:
        words = {"by": "people", "preset": "people", "from": "base", "on": "raw/mine.jsonl"}
        params["pairs"]["mine"] = words | case["people"]
    if "source" in case:
        params["data"] |= {"source": {"path": RAW} | case["source"], "mixture": None}


@pytest.mark.parametrize("case", read_cases("plan.yaml"))
def test_the_plan_refuses_an_edit_by_its_place(case, contents, repository, monkeypatch):
    for name in case.get("names", [None]):
        params, presets, graph = (
            deepcopy(contents[path]) for path in (PARAMS, PRESETS, "dvc.yaml")
        )
        edit(params, presets, case)
        if name is not None:
            params["policies"][name] = dict(NEW)
        save(PARAMS, params)
        save(PRESETS, presets)
        save("dvc.yaml", graph | {"vars": case.get("vars", [])})
        for path, text in case.get("files", {}).items():
            Path(path).write_text(text, encoding="utf-8")
        texts = [
            json.dumps(case.get("like")).replace("{n}", str(n)) for n in range(case.get("good", 0))
        ]
        if texts := [*texts, *map(json.dumps, case.get("raw", []))]:
            stage_inputs.write_raw("mine.jsonl", texts)
        if case.get("large"):  # then the first rows are looked at
            monkeypatch.setattr(source_checks, "MAX_WHOLE_BYTES", 1000)
        check(case, lambda: plan.main("--check"), is_plan=True)


def spoil(path: Path, case: dict[str, Any]) -> None:
    """Make a file what the words of a case say."""
    times = case.get("times", 1)
    if path.exists() and case.get("is"):
        path.unlink()
    if case.get("is") == "folder":
        path.mkdir(parents=True)
    if case.get("is") == "link":  # to another disk
        target = Path.cwd().with_name(f"{Path.cwd().name}-disk")
        target.mkdir()
        path.parent.mkdir()
        path.symlink_to(target)
    if case.get("is"):
        return
    text = case["text"] * times if "text" in case else path.read_text(encoding="utf-8")
    if "replace" in case:
        old, new = case["replace"]
        assert old in text
        text = text.replace(old, new * times)
    text = case.get("prepend", "") + text + case.get("append", "") * times
    data = text.encode(case.get("codec", "utf-8"))
    path.write_bytes(gzip.compress(data) if case.get("gzip") else data)


@pytest.mark.parametrize("case", read_cases("files.yaml"))
def test_the_plan_refuses_a_file_by_its_line(case, repository):
    spoil(Path(case["file"]), case)
    check(case, lambda: plan.main("--check"), is_plan=True)


@pytest.mark.parametrize(
    "recipe", sorted(path.name for path in (ROOT / "stages/recipes").iterdir())
)
def test_a_recipe_is_right(recipe, contents, repository):
    path = f"stages/recipes/{recipe}"
    save("dvc.yaml", contents["dvc.yaml"] | {"vars": [path]})
    for row in load(ROOT / path).get("pairs", {}).values():
        if row["on"].startswith("raw/"):  # people's pairs are a file that the user puts there
            shutil.rmtree("data", ignore_errors=True)
            Path("data", row["on"]).parent.mkdir(parents=True)
            Path("data", row["on"]).write_text('{"prompt": "?", "chosen": "a", "rejected": "b"}\n')
    lines = [line.strip() for line in refusal(lambda: plan.main("--check")).splitlines()]
    assert [line for line in lines if "data/raw" not in line] == []


# --- files of people


GOOD = {
    "problems": [
        {"question": f"What is {n} plus 3?", "answer": str(n + 3),
         "solution": f"{n} + 3 = {n + 3}\n#### {n + 3}"}
        for n in range(40)
    ],
}  # fmt: skip


def write_rows(good: list[dict[str, Any]], case: dict[str, Any]) -> None:
    """Good rows, changed as a case says, and then the file."""
    changed = [row | case.get("all", {}) for row in good[: case.get("rows", len(good))]]
    for row in changed:
        for key in case.get("without", ()):
            del row[key]
    lines, times = [json.dumps(row) for row in changed], case.get("times", 1)
    if isinstance(odd := case.get("odd"), dict):
        lines.insert(20, json.dumps(odd | {"question": odd["question"] * times}))
    elif odd is not None:
        lines.insert(20, odd * times)
    stage_inputs.write_raw("mine.jsonl", [json.dumps(changed)] if case.get("array") else lines)
    spoil(Path(RAW), case if "text" in case else case | {"times": 1})


def configure_preparation(**model: Any) -> None:
    """What `prepare_data` reads: a source of good problems."""
    save(PRESETS, {})
    section = {
        "source": {"path": RAW, "licence": "CC0-1.0"}, "prompt_template": "Solve: {question}\n",
        "mixture": None, "shares": {"preference": 0.2, "dev": 0.2, "test": 0.2},
        "max_prompt_tokens": 100, "max_completion_tokens": 100, "max_bad_share": 0.01,
    }  # fmt: skip
    base = stage_inputs.MODEL | {"tiny": stage_inputs.TINY | {"max_length": 2048}} | model
    save(PARAMS, {"data_seed": 0, "model": base, "data": section})


@pytest.mark.parametrize("case", read_cases("data.yaml", "problems"))
def test_a_file_of_problems_is_refused_by_its_line(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    configure_preparation()
    write_rows(GOOD["problems"], case)
    check(case, prepare_data.main)


# --- models


MODEL = Path("model")


def spoil_model(case: dict[str, Any]) -> None:
    """Make the folder of a model what the words of a case say."""
    for path in MODEL.glob(case["remove"]) if "remove" in case else ():
        path.unlink()
    for name, text in case.get("write", {}).items():
        (MODEL / name).write_text(text, encoding="utf-8")
    for name, codec in case.get("codec", {}).items():
        (MODEL / name).write_text((MODEL / name).read_text(), encoding=codec)
    for name, changes in case.get("json", {}).items():
        content = json.loads((MODEL / name).read_text()) | changes
        remaining = {key: value for key, value in content.items() if value != "absent"}
        (MODEL / name).write_text(json.dumps(remaining))
    if "cut" in case:
        path = MODEL / case["cut"]
        path.write_bytes(path.read_bytes()[:500])


@pytest.fixture(scope="module")
def whole_model(tmp_path_factory) -> Path:
    """A small Llama with its tokenizer."""
    folder = tmp_path_factory.mktemp("whole") / "model"
    tokenizer = stage_inputs.make_tokenizer()
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=2048,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def model_folder(whole_model, tmp_path, monkeypatch) -> None:
    """`prepare_data`'s files with a model that a user names."""
    monkeypatch.chdir(tmp_path)
    configure_preparation(path="model")
    write_rows(GOOD["problems"], {})
    shutil.copytree(whole_model, MODEL)


@pytest.mark.parametrize("case", read_cases("data.yaml", "models"))
def test_a_model_is_refused_by_its_file(case, model_folder):
    spoil_model(case)
    check(case, prepare_data.main)
