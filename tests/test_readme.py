"""Rows, presets, recipe, commands and files of one's own on pages work as they stand there."""

import importlib.util
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from ruamel.yaml import YAML

from flows.command_line import COMMANDS
from stages import own_modules, plan, plan_checks
from stages.environments.checks import check_replay
from stages.environments.definition import EnvironmentPreset
from stages.loops import own_method
from stages.records.problems import Prompt

ROOT = Path(__file__).parents[1]
PAGES = "\n".join(
    (ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "stages/write_your_own.md")
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGES, re.DOTALL | re.MULTILINE)


def yaml_blocks() -> list[dict[str, Any]]:
    return [YAML(typ="safe").load(block) for block in blocks("yaml")]


OWN_FILES = {
    path: code
    for block in blocks("python")
    for path, code in re.findall(r"\A# (stages/\S+/own/\S+\.py)\n(.*)", block, re.DOTALL)
}
"""Path -> code that stands under it on a page."""
PRESETS = "".join(block for block in blocks("yaml") if block.startswith("# stages/presets.yaml"))


def run_file(path: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(compile(OWN_FILES[path], path, "exec"), namespace)
    return namespace


def test_a_file_of_each_kind_has_at_most_ten_lines_of_code():
    assert {path.split("/")[1] for path in OWN_FILES} == {*own_modules.FOLDERS}
    for path, code in OWN_FILES.items():
        lines = [line for line in code.splitlines() if line.strip() and not line.startswith('"""')]
        assert len(lines) <= 10, path


def test_the_reward_function_rewards():
    namespace = run_file("stages/rewards/own/short.py")
    problem = {"id": "1", "task": "solve", "question": "1 + 1?", "prompt": "1 + 1?\n"}
    prompt = Prompt(prompt_ids=[1], answer="2", **problem)
    texts = "#### 2", "1 + 1 = 2\n#### 2", ""
    assert [namespace["reward"](prompt, text) for text in texts] == [1, 0.5, 1]


def test_the_environment_pays_and_can_be_replayed():
    namespace = run_file("stages/environments/own/higher.py")
    preset = EnvironmentPreset.model_validate({"starts": "prompts"})
    check_replay(namespace["Higher"], [{"id": "a"}], preset, seed=0)
    game = namespace["Higher"]()
    game.start({"id": "a"}, 4)
    replies = [game.step({"content": text}) for text in ("I say 9", "5")]
    assert [(reply.reward, reply.done) for reply in replies] == [(0.0, False), (1.0, True)]
    assert replies[0].messages[0]["content"] == "lower"


def test_the_labeller_prefers_the_shorter_completion():
    prefer = run_file("stages/rewards/own/shorter.py")["prefer"]
    assert [prefer(None, *texts) for texts in (("a", "bb"), ("bb", "a"), ("a", "b"))] == [1, 0, 0.5]


def test_the_surrogate_and_the_advantage_are_what_the_loop_can_learn_with():
    surrogate = run_file("stages/algorithms/own/spo.py")["surrogate"]
    advantage = run_file("stages/algorithms/own/median.py")["advantage"]
    own_method.check("surrogate", surrogate, "spo")
    own_method.check("advantage", advantage, "median")
    new, old, weights = torch.tensor([[0.1]]).log(), torch.tensor([[0.2]]).log(), torch.ones(1, 1)
    losses, _ = surrogate(new, old, weights, torch.tensor([[True]]))
    assert losses.item() == pytest.approx(0.5**2 / 0.4 - 0.5)
    rewards, groups = torch.tensor([1.0, 5.0, 0.0, 9.0]), torch.tensor([0, 0, 0, 1])
    counted = torch.tensor([True, True, True, False])
    assert advantage(rewards, groups, counted=counted).tolist() == [0.0, 4.0, -1.0, 0.0]


def test_the_presets_and_the_recipe_pass_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    modules = plan_checks.load_entry_points()
    monkeypatch.setattr(plan_checks, "load_entry_points", lambda: modules)
    folders = [f"stages/{name}/own" for name in own_modules.FOLDERS]
    for name in ("dvc.yaml", "stages/presets.yaml", "stages/recipes", *folders):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    for path, code in OWN_FILES.items():
        Path(path).write_text(code, encoding="utf-8")

    shutil.copy(ROOT / "params.yaml", "params.yaml")
    (switch,) = re.findall(r"`(vars: .*?)`", PAGES)
    recipes = YAML(typ="safe").load(switch)["vars"]
    text = Path("dvc.yaml").read_text(encoding="utf-8")
    Path("dvc.yaml").write_text(re.sub(r"(?m)^vars: .*$", switch, text))
    paths, problems = plan.list_tables()
    assert paths[1:] == [Path(recipe) for recipe in recipes]
    assert problems + plan.check_plan(paths)[1] == []

    content = YAML(typ="safe").load(ROOT / "params.yaml")
    with Path("stages/presets.yaml").open("a", encoding="utf-8") as file:
        file.write(PRESETS)
    presets = YAML(typ="safe").load(PRESETS)
    assert {"grpo_no_kl", "grpo_near", "spo", "median"} == presets.keys()
    for preset in presets:
        content["policies"][preset] = content["policies"]["grpo"] | {"preset": preset}
    with Path("params.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(content, file)
    assert plan.check_plan(paths[:1])[1] == []


def test_commands_and_rows_of_every_page_are_known():
    """Commands that are not run in another test exist, and so do the presets of rows."""
    presets = {*YAML(typ="safe").load(ROOT / "stages/presets.yaml"), *YAML().load(PRESETS)}
    skipped = {".venv", "venv", "report.golden.md", "data"}
    pages = [path for path in ROOT.rglob("*.md") if not skipped & {*path.relative_to(ROOT).parts}]
    unknown = []
    for page in [*pages, ROOT / "data/README.md"]:
        text = page.read_text(encoding="utf-8")
        words = re.findall(r"(?m)(?:^ *|`|&& )posttrain ([a-z]+)", text)
        unknown += [f"{page}: posttrain {word}" for word in words if word not in COMMANDS]
        modules = re.findall(r"python -m ((?:stages|flows|studies|tests)[\w.]*)", text)
        unknown += [f"{page}: {name}" for name in modules
                    if importlib.util.find_spec(name.rstrip(".")) is None]  # fmt: skip
        for block in re.findall(r"(?ms)^```yaml\n(.*?)^```", text):
            yaml = YAML(typ="safe")
            yaml.allow_duplicate_keys = True  # alternatives, one per line
            content = yaml.load(block)
            tables = content.values() if isinstance(content, dict) else ()
            rows = [row for table in tables if isinstance(table, dict) for row in table.values()]
            named = {row["preset"] for row in rows if isinstance(row, dict) and "preset" in row}
            unknown += [f"{page}: preset {name}" for name in named - presets]
    assert unknown == []
