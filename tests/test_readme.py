"""The rows, presets, reward, environment and recipe on README's pages work as they stand there."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from stages import plan, plan_checks, tables
from stages.environments.checks import check_replay
from stages.environments.definition import EnvironmentPreset
from stages.records.problems import Prompt

ROOT = Path(__file__).parents[1]
PAGES = "\n".join(
    (ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "stages/write_your_own.md")
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGES, re.DOTALL | re.MULTILINE)


def yaml_blocks() -> list[dict[str, Any]]:
    return [YAML(typ="safe").load(block) for block in blocks("yaml")]


def own_file(folder: str = "rewards") -> tuple[Path, str]:
    start = f"# stages/{folder}/own/"
    (block,) = [block for block in blocks("python") if block.startswith(start)]
    path, _, code = block.partition("\n")
    return Path(path.removeprefix("# ")), code


def test_the_reward_function_rewards():
    namespace: dict[str, Any] = {}
    exec(compile(own_file()[1], "README.md", "exec"), namespace)
    problem = {"id": "1", "task": "solve", "question": "1 + 1?", "prompt": "1 + 1?\n"}
    prompt = Prompt(prompt_ids=[1], answer="2", **problem)
    texts = "#### 2", "1 + 1 = 2\n#### 2", ""
    assert [namespace["reward"](prompt, text) for text in texts] == [1, 0.5, 1]


def test_the_environment_pays_and_can_be_replayed():
    namespace: dict[str, Any] = {}
    exec(compile(own_file("environments")[1], "README.md", "exec"), namespace)
    preset = EnvironmentPreset.model_validate({"starts": "prompts"})
    check_replay(namespace["Higher"], [{"id": "a"}], preset, seed=0)
    game = namespace["Higher"]()
    game.start({"id": "a"}, 4)
    replies = [game.step({"content": text}) for text in ("I say 9", "5")]
    assert [(reply.reward, reply.done) for reply in replies] == [(0.0, False), (1.0, True)]
    assert replies[0].messages[0]["content"] == "lower"


def test_the_rows_presets_and_recipe_pass_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    modules = plan_checks.load_entry_points()
    monkeypatch.setattr(plan_checks, "load_entry_points", lambda: modules)
    folders = ("stages/rewards/own", "stages/environments/own")
    for name in ("dvc.yaml", "stages/presets.yaml", "stages/recipes", *folders):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    for folder in ("rewards", "environments"):
        path, code = own_file(folder)
        path.write_text(code, encoding="utf-8")

    shutil.copy(ROOT / "params.yaml", "params.yaml")
    (switch,) = re.findall(r"`(vars: .*?)`", PAGES)
    recipes = YAML(typ="safe").load(switch)["vars"]
    text = Path("dvc.yaml").read_text(encoding="utf-8")
    Path("dvc.yaml").write_text(re.sub(r"(?m)^vars: .*$", switch, text))
    paths, problems = plan.list_tables()
    assert paths[1:] == [Path(recipe) for recipe in recipes]
    assert problems + plan.check_plan(paths)[1] == []

    content = YAML(typ="safe").load(ROOT / "params.yaml")
    rows = [block for block in yaml_blocks() if block.keys() & tables.TABLES]
    assert len(rows) == 3
    for block in rows:
        for table, added in block.items():
            content[table] |= added
    presets = re.findall(r"^```yaml\n((?:grpo_.*\n)+)```", PAGES, re.MULTILINE)
    assert len(presets) == 1
    with Path("stages/presets.yaml").open("a", encoding="utf-8") as file:
        file.write(presets[0])
    for preset in YAML(typ="safe").load(presets[0]):
        content["policies"][preset] = content["policies"]["grpo"] | {"preset": preset}
    with Path("params.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(content, file)
    assert plan.check_plan(paths[:1])[1] == []
