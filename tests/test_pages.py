"""Every block of code on every page runs here as it stands, or says on its page where it runs."""

import gzip
import importlib.util
import inspect
import json
import random
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from conftest import shrink
from page_blocks import OWN_FILE, Block, blocks_of, list_blocks, list_pages
from page_commands import COMMAND_BLOCKS, MODULES, run_blocks, runs_in_ci
from parsed_commands import PARSERS, has_parser, parse
from pipeline_copy import PipelineCopy
from pydantic import TypeAdapter
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from tiny_checkpoints import checkpoint

from flows.command_line import COMMANDS
from stages import environment, own_modules, plan, plan_checks
from stages.config import PRESETS_PATH, read_yaml
from stages.environments.checks import check_replay
from stages.environments.definition import EnvironmentFile, EnvironmentPreset, load_factory
from stages.models import size
from stages.records.problems import Prompt
from stages.rows import TABLES
from stages.sources import catalogue, containers

ROOT = Path(__file__).parents[1]
OWN_FILES = {
    match[1]: block.text[match.end() :]
    for block in blocks_of("own file")
    if (match := OWN_FILE.match(block.text))
}
"""Path -> code that stands under it on a page."""


def run_file(path: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(compile(OWN_FILES[path], path, "exec"), namespace)
    return namespace


def test_a_file_of_each_kind_has_at_most_ten_lines_of_code():
    assert {path.split("/")[1] for path in OWN_FILES} == {*own_modules.FOLDERS}
    for path, code in OWN_FILES.items():
        lines = [line for line in code.splitlines() if line.strip() and not line.startswith('"""')]
        assert len(lines) <= 10, path


@pytest.mark.parametrize("path", OWN_FILES)
def test_a_file_can_be_loaded_and_is_named_by_a_row_or_preset(path: str, inside: Path):
    _, folder, _, name = Path(path).with_suffix("").parts
    module = own_modules.load_own_module(folder, name, files=None)
    assert [word for word in FUNCTIONS[folder] if hasattr(module, word)] or any(
        inspect.isclass(value) and value.__module__ == module.__name__
        for value in vars(module).values()
    )
    blocks = [*blocks_of("rows"), *blocks_of("presets")]
    assert [block for block in blocks if re.search(rf"\bown/{name}\b", block.text)]


FUNCTIONS = {
    "rewards": ("reward", "prefer"), "algorithms": ("surrogate", "advantage"),
    "sources": ("rows",), "environments": (),
}  # fmt: skip
"""Folder -> what a file in it has, if no class."""


def test_the_environment_pays_and_can_be_replayed():
    namespace = run_file("stages/environments/own/higher.py")
    preset = EnvironmentPreset.model_validate({"starts": "prompts"})
    check_replay(namespace["Higher"], [{"id": "a"}], preset, seed=0)
    game = namespace["Higher"]()
    game.start({"id": "a"}, 4)
    replies = [game.step({"content": text}) for text in ("I say 9", "5")]
    assert [(reply.reward, reply.done) for reply in replies] == [(0.0, False), (1.0, True)]
    assert replies[0].messages[0]["content"] == "lower"


def test_what_functions_on_pages_return():
    reward = run_file("stages/rewards/own/short.py")["reward"]
    problem = {"id": "1", "task": "solve", "question": "1 + 1?", "prompt": "1 + 1?\n"}
    prompt = Prompt(prompt_ids=[1], answer="2", **problem)
    texts = "#### 2", "1 + 1 = 2\n#### 2", ""
    assert [reward(prompt, text) for text in texts] == [1, 0.5, 1]
    prefer = run_file("stages/rewards/own/shorter.py")["prefer"]
    assert [prefer(None, *texts) for texts in (("a", "bb"), ("bb", "a"), ("a", "b"))] == [1, 0, 0.5]
    surrogate = run_file("stages/algorithms/own/spo.py")["surrogate"]
    new, old, weights = torch.tensor([[0.1]]).log(), torch.tensor([[0.2]]).log(), torch.ones(1, 1)
    losses, _ = surrogate(new, old, weights, torch.tensor([[True]]))
    assert losses.item() == pytest.approx(0.5**2 / 0.4 - 0.5)
    advantage = run_file("stages/algorithms/own/median.py")["advantage"]
    rewards, groups = torch.tensor([1.0, 5.0, 0.0, 9.0]), torch.tensor([0, 0, 0, 1])
    counted = torch.tensor([True, True, True, False])
    assert advantage(rewards, groups, counted=counted).tolist() == [0.0, 4.0, -1.0, 0.0]


KINDS = {"own file", "script", "presets", "rows", "deployment", "commands", "mermaid", "text"}


def test_every_block_has_a_language_and_a_test():
    """Each kind of block but drawings and printed text has a test below.

    Scripts run in stages/test_library.py, settings of deployments also in flows/test_agents.py.
    """
    assert [str(block) for block in list_blocks() if block.kind not in KINDS] == []
    indented = [
        f"{page}: {line}"
        for page in list_pages()
        for line in re.findall(r"(?m)^\n    (?! *[-*\d] )(.*)", remove_blocks(page))
    ]
    assert indented == [], "no language: put it between ``` and ```"
    commands = tuple(f"{program} " for program in PARSERS)
    hidden = [block for block in blocks_of("text") if block.text.startswith(commands)]
    assert [str(block) for block in hidden] == []


def remove_blocks(page: Path) -> str:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.sub(r"(?ms)^ *```.*?^ *```$", "", text)


# Rows, presets and sources, by the check of the plan.


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the check reads, with the files of the pages."""
    path: Path = tmp_path_factory.mktemp("checkout")
    folders = [f"stages/{name}/own" for name in own_modules.FOLDERS]
    for name in ("dvc.yaml", "params.yaml", "stages/presets.yaml", "stages/recipes", *folders):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, path / name)
    for name, code in OWN_FILES.items():
        (path / name).write_text(code, encoding="utf-8")
    with (path / "stages/presets.yaml").open("a", encoding="utf-8") as file:
        file.writelines(block.text for block in blocks_of("presets"))
    shutil.copytree(checkpoint("qwen3"), path / "model")
    return path


@pytest.fixture
def inside(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same as the working folder; the pages' own files can be imported."""
    monkeypatch.chdir(checkout)
    entry_points = plan_checks.load_entry_points()
    monkeypatch.setattr(plan_checks, "load_entry_points", lambda: entry_points)
    for name in own_modules.FOLDERS:
        package, folder = importlib.import_module(f"stages.{name}.own"), f"stages/{name}/own"
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(checkout / folder)])
    yield checkout
    for path in OWN_FILES:
        sys.modules.pop(path.removesuffix(".py").replace("/", "."), None)
    shutil.copy(ROOT / "params.yaml", checkout / "params.yaml")
    shutil.rmtree(checkout / "data", ignore_errors=True)


def check_params(content: Any) -> list[str]:
    with Path("params.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(content, file)
    paths, problems = plan.list_tables()
    return problems + plan.check_plan(paths)[1]


def list_contents(block: Block) -> list[dict[str, Any]]:
    """Content of a block, or of each of its alternatives: one key on several lines."""
    try:
        return [YAML(typ="safe").load(block.text)]
    except DuplicateKeyError:
        lines = block.text.splitlines(keepends=True)
        keys = Counter(re.match(" *[^ :]+:|", line)[0] for line in lines)  # type: ignore[index]
        ((key, _),) = keys.most_common(1)
        rest = "".join(line for line in lines if not line.startswith(key))
        return [YAML(typ="safe").load(rest + line) for line in lines if line.startswith(key)]


ROWS = [
    pytest.param(
        block, content, id=f"{block}-{number}",
        marks=[pytest.mark.environments] if "reasoning_gym" in str(content) else (),
    )
    for block in blocks_of("rows")
    for number, content in enumerate(list_contents(block))
]  # fmt: skip
NUM_ROWS = 40
"""Of a file that a test writes."""


@pytest.mark.parametrize(("block", "content"), ROWS)
def test_rows_and_sections_pass_the_check(
    block: Block, content: dict[str, Any], inside: Path, monkeypatch: pytest.MonkeyPatch
):
    params = read_yaml(ROOT / "params.yaml")
    assert content.keys() <= params.keys()
    # A table that is empty there says that the page's rows are all that there are.
    is_whole = {} in content.values()
    for name, section in content.items():
        params[name] = section if is_whole else {**params[name], **section}
        for row in section.values() if name in TABLES else ():
            write_people(row)
    if "data" in content:
        write_source(content["data"]["source"], monkeypatch)
    if "model" in content:
        shutil.copytree("model", params["model"]["path"])
        assert size.model_facts(params["model"]) is not None
    problems = check_params(params)
    if "answer" in str(content.get("data")) and "solution" not in str(content["data"]):
        # The page's source is for policies that learn from rewards alone, params.yaml has others.
        (problem,) = problems
        assert problem.startswith("policies.sft: it imitates demonstrations")
    else:
        assert problems == []
    for row in content.get("environments", {}).values():
        play_environment(row)
    if "data" in content:
        read_rows(content["data"]["source"])


def play_environment(row: dict[str, Any]) -> None:
    """Load an environment of numbered starts, and play a few episodes of them twice."""
    preset = EnvironmentPreset.model_validate(read_yaml(PRESETS_PATH)[row["preset"]])
    if "path" in preset.options:
        columns = [preset.options["key"], preset.options["value"]]
        rows = [dict.fromkeys(columns, f"x{n}") for n in range(600)]
        write_rows(Path(preset.options["path"]), rows)
    if row["by"] == "reasoning_gym":
        pytest.importorskip("reasoning_gym", reason="needs the extra `environments`")
    content = EnvironmentFile(
        kind=row["by"], preset=preset, own=own_modules.get_own_word(row["on"]), own_digest=None,
        packages={}, files={},
    )  # fmt: skip
    starts = environment.list_starts("train", preset, "")[:3]
    assert check_replay(load_factory(content), starts, preset, seed=0)


def read_rows(source: Any) -> None:
    """Nearly every row of a source is read as a problem or conversation."""
    if "reasoning_gym" in str(source):
        pytest.importorskip("reasoning_gym", reason="needs the extra `environments`")
    config = TypeAdapter(catalogue.SourceConfig).validate_python(source)
    screened = catalogue.read_source(config, 0)
    assert len(screened.problems) >= NUM_ROWS
    assert len(screened.bad) < len(screened.problems) / 100


def write_source(source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that a source names, or its data set of the hub, with rows of its columns."""
    for number, item in enumerate(source if isinstance(source, list) else [source]):
        for key in {"path", "test_path"} & item.keys():
            rows = [make_row(item, f"{number}{key}{n}") for n in range(NUM_ROWS)]
            if containers.is_hub_id(item[key]):
                hub = partial(load_from_hub, item, datasets.Dataset.from_list(rows))
                monkeypatch.setattr(datasets, "load_dataset", hub)
            elif Path(item[key]).suffix:
                write_rows(Path(item[key]), rows)
            else:
                for split, part in (("train", rows[:30]), ("test", rows[30:])):
                    write_rows(Path(item[key], f"{split}.jsonl"), part)


def load_from_hub(source: Any, rows: Any, path: str, name: str | None, *, revision: str) -> Any:
    assert (path, name, revision) == (source["path"], source["name"], source["revision"])
    return datasets.DatasetDict({"train": rows})


def make_row(source: dict[str, Any], word: str) -> dict[str, Any]:
    """A row with the columns that a source names; else a conversation, or a problem."""
    draw = random.Random(word)

    def text() -> str:
        return " ".join("".join(draw.choices("aeimnrst", k=5)) for _ in range(12))

    number, columns = str(draw.randrange(1000)), source.get("columns")
    if columns is None and "chat" in source["path"]:
        return {"messages": [{"role": role, "content": text()} for role in ("user", "assistant")]}
    if columns is None:
        return {"question": text(), "answer": number, "solution": f"{text()}\n#### {number}"}
    row: dict[str, Any] = {}
    for column, value in columns.items():
        for path in re.findall(r"\{([\w.]+)\}", value) if "{" in value else [value]:
            *above, key = path.split(".")
            place = row
            for name in above:
                place = place.setdefault(name, {})
            if key not in place:
                place[key] = number if column == "answer" else text()
    return row


def write_people(row: dict[str, Any]) -> None:
    """The file of a row of labels by people, in the form of its preset."""
    if row.get("by") != "people":
        return
    preset = read_yaml(PRESETS_PATH)[row["preset"]]
    if "format" in preset:
        assert preset["format"]["kind"] == "prm800k"
        step = {"completions": [{"text": "1 + 1 = 2", "rating": 1}], "chosen_completion": 0}
        label = {"finish_reason": "solution", "steps": [step]}
        rows: list[Any] = [{"question": {"problem": f"p{n}"}, "label": label} for n in range(20)]
    else:
        transcript = "\n\nHuman: Question {0}?\n\nAssistant: {1}"
        rows = [
            {"chosen": transcript.format(n, "Yes."), "rejected": transcript.format(n, "No.")}
            for n in range(20)
        ]
    write_rows(Path("data", row["on"]), rows)


def write_rows(path: Path, rows: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    match path.suffix:
        case ".parquet":
            datasets.Dataset.from_list(rows).to_parquet(str(path))
        case ".json":
            path.write_text(json.dumps(rows), encoding="utf-8")
        case ".csv":
            table = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
            path.write_text("\n".join(table), encoding="utf-8")
        case ".gz":
            path.write_bytes(gzip.compress(lines.encode()))
        case _:
            assert path.suffix == ".jsonl"
            path.write_text(lines, encoding="utf-8")


def test_presets_of_a_page_go_with_a_policy_or_an_environment(inside: Path):
    """Each is a policy that the test adds, or that of an environment on a page."""
    presets = YAML(typ="safe").load("".join(block.text for block in blocks_of("presets")))
    params = read_yaml(ROOT / "params.yaml")
    contents = [content for block in blocks_of("rows") for content in list_contents(block)]
    for content in contents:
        params["environments"].update(content.get("environments", {}))
    policies = {name for name, preset in presets.items() if "starts" not in preset}
    for name in policies:
        params["policies"][name] = params["policies"]["grpo"] | {"preset": name}
    environments = {row["preset"] for row in params["environments"].values()}
    assert presets.keys() - policies <= environments
    assert check_params(params) == []


def test_recipes_that_a_page_switches_on_pass_the_check(inside: Path):
    text = Path("dvc.yaml").read_text(encoding="utf-8")
    for page in list_pages():
        for switch in re.findall(r"`(vars: \[.*?\])`", (ROOT / page).read_text(encoding="utf-8")):
            Path("dvc.yaml").write_text(re.sub(r"(?m)^vars: .*$", switch, text))
            paths, _ = plan.list_tables()
            assert [*map(str, paths[1:])] == YAML(typ="safe").load(switch)["vars"]
            try:
                assert check_params(read_yaml(ROOT / "params.yaml")) == []
            finally:
                Path("dvc.yaml").write_text(text)


# Deployments of Prefect, and commands.


@pytest.mark.parametrize("block", blocks_of("deployment"), ids=str)
def test_a_deployment_takes_the_place_of_one_of_prefect_yaml(block: Block):
    content = YAML(typ="safe").load(ROOT / "prefect.yaml")
    by_name = {item["name"]: item for item in content["deployments"]}
    for deployment in YAML(typ="safe").load(block.text):
        old = by_name[deployment["name"]]
        assert deployment.keys() <= old.keys()
        assert deployment["entrypoint"] == old["entrypoint"]
        assert deployment["work_pool"]["name"] == old["work_pool"]["name"]
        for step in deployment["pull"]:
            (function, arguments), = step.items()  # fmt: skip
            module, _, name = function.rpartition(".")
            inspect.signature(getattr(importlib.import_module(module), name)).bind(**arguments)


@pytest.mark.parametrize("block", COMMAND_BLOCKS, ids=str)
def test_commands_are_parsed_and_the_page_says_where_they_run_if_not_here(block: Block):
    for command in block.commands:
        if has_parser(command.words, command.folder):
            parse(command.words, command.folder)
        is_run = command.words[0] in MODULES or runs_in_ci(command)
        assert is_run or command.place, f"{command.words[0]}: say on the page where it runs"


def test_commands_within_sentences_are_known():
    unknown = []
    for page in list_pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        words = re.findall(r"`posttrain ([a-z]+)", text)
        unknown += [f"{page}: posttrain {word}" for word in words if word not in COMMANDS]
        modules = re.findall(r"python -m ((?:stages|flows|studies|tests)[\w.]*)", text)
        unknown += [f"{page}: {name}" for name in modules
                    if importlib.util.find_spec(name.rstrip(".")) is None]  # fmt: skip
    assert unknown == []


def cut(params: dict[str, Any], presets: dict[str, Any]) -> None:
    """Make a pipeline small and leave out rows that no command names."""
    shrink(params, presets)
    params["seeds"] = [0, 1, 2]
    rows = {"policies": ("sft", "grpo"), "pairs": ("verifier",), "rewards": ("rule", "preference")}
    for table, names in {**rows, "steps": ()}.items():
        params[table] = {name: params[table][name] for name in names}
    presets["game"]["starts"] = {"train": 32, "dev": 8, "test": 8}


@pytest.mark.weekly
def test_commands_run_in_the_order_of_their_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one copy, but for those of which the page says where else they run, or that nothing does.

    Those of README run before a commit lands: test_pipeline.py.
    """
    copy = PipelineCopy(tmp_path / "copy", cut)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    copy.run("-m", "flows.command_line", "new", "environment", "higher")
    (tmp_path / "remote").mkdir()
    copy.run("-m", "dvc", "remote", "add", "-q", "-d", "results", str(tmp_path / "remote"))
    run_blocks(COMMAND_BLOCKS, copy)
