"""Stored completions rewarded again: by the same reward the same, by another what it would pay."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import stage_inputs
from stage_inputs import ROOT

from stages import rescore
from stages.loops.rollouts import Rollout
from stages.records import lines
from stages.records.rescored import Rescored
from stages.report import rescored
from stages.rewards import reward_file
from stages.rewards.composition import Composition
from stages.rewards.reward_file import RewardFile
from stages.rows import DATA, PROMPTS

TEXTS = ("2 + 3 = 5\n#### 5", "#### 6", "The answer is 5.", "2 + 3 = 6\n#### 6")
RIGHT = (True, False, True, False)
OLD = [1.2, 0.0, 1.0, 0.2]
"""1 for a right answer, and 0.2 for working that ends in a line of ####."""
SEEDS = (0, 1)


def compose(**weights):
    components = {kind: {"value": {"kind": kind}, "weight": weight, "cap": None,
                         "normalise": "none"} for kind, weight in weights.items()}  # fmt: skip
    return {"components": components, "combine": "sum"}


def write_rule(name, **weights):
    content = RewardFile(kind="rule", model=None, own=None, own_digest=None,
                         composition=Composition.model_validate(compose(**weights)),
                         aggregate=reward_file.MEAN)  # fmt: skip
    (DATA / "rewards" / name).mkdir(parents=True)
    reward_file.write_reward(DATA / "rewards" / name, content)


@pytest.fixture(autouse=True)
def finished_run(tmp_path, monkeypatch):
    """A policy that GRPO trained for two steps on one problem, with two seeds."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "stages", tmp_path / "stages", ignore=shutil.ignore_patterns("*.py"))
    params = (ROOT / "params.yaml").read_text().replace("\n- 2\n", "\n")  # as SEEDS
    (tmp_path / "params.yaml").write_text(params)
    plan = {"policies": {"rl": {"train": "grpo", "preset": "dr_grpo", "from": "base",
                                "on": "rewards/rule"}}, "pools": {}}  # fmt: skip
    stage_inputs.write_json(DATA / "plan.json", plan)
    (prompt,) = stage_inputs.make_prompts("train", 1)
    prompt = replace(prompt, id="p", question="2 + 3?", answer="5")
    lines.write_lines(PROMPTS / "train.jsonl", [prompt])
    rows = [
        Rollout(step=step, id="p", index=index, completion=text, completion_ids=[7, 1],
                finish_reason="stop", reward=OLD[index], correct=RIGHT[index])
        for step in range(2) for index, text in enumerate(TEXTS)
    ]  # fmt: skip
    for seed in SEEDS:
        lines.write_lines(DATA / f"policies/rl/training/{seed}/rollouts.jsonl", rows)
    write_rule("rule", answer=1.0, final_line=0.2)
    write_rule("terse", final_line=-1.0)


def run(*words, folder="out"):
    rescore.main("rl", *words, "--out", folder)
    return list(lines.read_lines(Path(folder) / "rescored.jsonl", Rescored))


def test_each_completion_of_each_seed_has_both_rewards():
    rows = run("--reward", "rewards/terse")
    assert [(row.seed, row.step) for row in rows] == [
        (seed, step) for seed in SEEDS for step in (0, 0, 0, 0, 1, 1, 1, 1)
    ]
    assert [row.old for row in rows] == OLD * 4
    assert [row.new for row in rows] == [-1.0, 0.0, 0.0, -1.0] * 4
    assert [row.correct_now for row in rows] == list(RIGHT) * 4
    page = Path("out/report.html").read_text()
    assert [text for text in ("2 + 3?", "1.2 → -1") if text not in page] == []
    with pytest.raises(ValueError, match="out exists"):
        run()
    with Path("stages/presets.yaml").open("a") as file:  # as it is now
        file.write(f"\nhalf: {json.dumps(compose(answer=0.5))}\n")
    rows = run("--reward", "presets/half", folder="half")
    assert [row.new for row in rows] == [0.5, 0.0, 0.5, 0.0] * 4


def test_punishments_of_the_preset_are_paid_with_any_reward():
    """DAPO takes off up to 1 in the last 8 of 32 tokens: of 28 tokens 1/2, of 32 all of it."""
    assert [row.new for row in run(folder="dr_grpo")] == OLD * 4
    content = stage_inputs.read_json(DATA / "plan.json")
    content["policies"]["rl"] |= {"control": "no_effect", "num_steps": 2, "preset": "dapo"}
    stage_inputs.write_json(DATA / "plan.json", content)
    lengths, taken = (24, 28, 28, 32), (0.0, 0.5, 0.5, 1.0)
    for seed in SEEDS:
        path = DATA / f"policies/rl/training/{seed}/rollouts.jsonl"
        stored = list(lines.read_lines(path, Rollout))[:4]
        rows = [
            replace(row, completion_ids=[7] * length, reward=row.reward - less)
            for row, length, less in zip(stored, lengths, taken, strict=True)
        ]
        lines.write_lines(path, rows)
    same = run()
    assert [row.new for row in same] == pytest.approx([1.2, -0.5, 0.5, -0.8] * 2)
    assert [row.new for row in same] == pytest.approx([row.old for row in same])
    other = run("--reward", "rewards/terse", folder="other")
    assert [row.new for row in other] == [-1.0, -0.5, -0.5, -2.0] * 2


def empty_completions():
    (DATA / f"policies/rl/training/{SEEDS[0]}/rollouts.jsonl").write_text("")


@pytest.mark.parametrize(("edit", "words", "mentions"), [
    (list, ("sft",), "sft"), (list, ("rl", "--reward", "unknown"), "unknown"),
    (list, ("rl", "--reward", "presets/judge"), "presets/judge is no preset of `by: rule`"),
    (empty_completions, ("rl",), "empty: `dvc checkout data/policies/rl/training`"),
])  # fmt: skip
def test_what_cannot_be_rewarded_again_is_refused(edit, words, mentions):
    edit()
    with pytest.raises(ValueError, match=mentions):
        rescore.main(*words)


def make_row(index, old, new):
    return Rescored(seed=0, step=0, id="p", index=index, question="<b>?</b>", answer="5",
                    completion="<script>alert(1)</script>\x1b[31m", correct=True,
                    correct_now=index == 0, old=old, new=new)  # fmt: skip


def test_the_page_shows_changed_verdicts_and_escapes_what_models_wrote(tmp_path):
    rows = [make_row(index, index, -index) for index in range(2)]
    rescored.write_page(tmp_path, "it", "that of training", rows)
    page = (tmp_path / "report.html").read_text()
    for text in ("&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m", "&lt;b&gt;?&lt;/b&gt;"):
        assert text in page
    assert "<script>alert" not in page
    assert rescored.summarise(rows) == {
        "completions": 2, "same_reward": 1, "old": 0.5, "new": -0.5, "rank_correlation": -1.0,
        "change_sides": 2, "other_verdicts": 1,
    }  # fmt: skip
