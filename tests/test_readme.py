"""What README tells a newcomer to write is right as it stands there."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from stages import configs, plan, tables
from stages.records.problems import Prompt

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def yaml_blocks() -> list[dict[str, Any]]:
    """Those without a preset that inherits, which is a line of stages/presets.yaml."""
    return [YAML(typ="safe").load(block) for block in blocks("yaml") if "<<:" not in block]


def own_reward() -> tuple[Path, str]:
    (block,) = [block for block in blocks("python") if block.startswith("# stages/rewards/own/")]
    path, _, code = block.partition("\n")
    return Path(path.removeprefix("# ")), code


def test_its_own_reward_rewards():
    namespace: dict[str, Any] = {}
    exec(compile(own_reward()[1], "README.md", "exec"), namespace)
    asked = {"id": "1", "task": "solve", "question": "1 + 1?", "prompt": "1 + 1?\n", "answer": "2"}
    prompt = Prompt(prompt_ids=[1], **asked)
    texts = "#### 2", "1 + 1 = 2\n#### 2", ""
    assert [namespace["reward"](prompt, text) for text in texts] == [1, 0.5, 1]


def test_its_rows_preset_and_recipe_can_be_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    modules = configs.entry_points(ROOT / "dvc.yaml", ROOT / "stages")
    monkeypatch.setattr(configs, "entry_points", lambda: modules)
    for name in ("dvc.yaml", "stages/presets.yaml", "stages/recipes", "stages/rewards/own"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    path, code = own_reward()
    path.write_text(code, encoding="utf-8")

    content = YAML(typ="safe").load(ROOT / "params.yaml")
    rows = [block for block in yaml_blocks() if block.keys() & tables.TABLES]
    assert len(rows) == 2
    for block in rows:
        for table, added in block.items():
            content[table] |= added
    (preset,) = [block for block in blocks("yaml") if "<<:" in block]
    with Path("stages/presets.yaml").open("a", encoding="utf-8") as file:
        file.write(preset)
    content["policies"]["own"] = content["policies"]["grpo"] | {"preset": preset.split(":")[0]}
    with Path("params.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(content, file)

    (recipes,) = [block["vars"] for block in yaml_blocks() if "vars" in block]
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    text = Path("dvc.yaml").read_text(encoding="utf-8")
    Path("dvc.yaml").write_text(re.sub(r"(?m)^vars: .*$", f"vars: {recipes}", text))
    paths, problems = plan.switched_on()
    assert paths[1:] == [Path(recipe) for recipe in recipes]
    assert problems + plan.check(paths)[1] == []
