"""Stored completions, rewarded again."""

import dataclasses
import json
import shutil
from itertools import chain
from pathlib import Path

import pytest
import studied_run

from stages import evaluate, rescore
from stages.loops import rescoring
from stages.loops.rollouts import Rollout
from stages.models import pool_scorer
from stages.models.device import setup
from stages.records import lines, pools
from stages.records.problems import Prompt
from stages.records.rescored import Rescored
from stages.report import rescored
from stages.rewards import reward_file
from stages.rewards.composition import Composition
from stages.rewards.reward_file import RewardFile
from stages.rows import DATA
from stages.studies import rescore as study
from stages.studies.study import STUDY_PARAMS

ROOT = Path(__file__).parents[2]
TEXTS = ("2 + 3 = 5\n#### 5", "#### 6", "The answer is 5.", "2 + 3 = 6\n#### 6")
RIGHT = (True, False, True, False)
OLD = [1.2, 0.0, 1.0, 0.2]
"""1 for a right answer, and 0.2 for working that ends in a line of ####."""


def make_rule(**weights: float) -> RewardFile:
    part = {"cap": None, "normalise": "none"}
    components = {
        kind: {"value": {"kind": kind}, "weight": weight, **part}
        for kind, weight in weights.items()
    }
    return RewardFile(
        kind="rule",
        model=None,
        composition=Composition.model_validate({"components": components, "combine": "sum"}),
        aggregate=reward_file.MEAN,
        own=None,
        own_digest=None,
    )


@pytest.fixture
def finished_run(tmp_path, monkeypatch):
    """A policy that GRPO trained for two steps on one problem, with one seed."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "stages", tmp_path / "stages", ignore=shutil.ignore_patterns("*.py"))
    params = (ROOT / "params.yaml").read_text().replace("seeds: [0, 1, 2]", "seeds: [0]")
    (tmp_path / "params.yaml").write_text(params)
    plan = {"policies": {"rl": {"train": "grpo", "preset": "dr_grpo", "from": "base",
                                "on": "rewards/rule"}}, "pools": {}}  # fmt: skip
    prompt = Prompt(id="p", task="solve", question="2 + 3?", prompt="2 + 3?\n", prompt_ids=[5, 6],
                    answer="5")  # fmt: skip
    rows = [
        Rollout(step=step, id="p", index=index, completion=text, completion_ids=[7, 1],
                finish_reason="stop", reward=OLD[index], correct=RIGHT[index])
        for step in range(2) for index, text in enumerate(TEXTS)
    ]  # fmt: skip
    for folder in ("prompts", "policies/rl/training/0", "rewards/rule", "rewards/terse"):
        (tmp_path / "data" / folder).mkdir(parents=True)
    (tmp_path / "data/plan.json").write_text(json.dumps(plan))
    lines.write_lines(tmp_path / "data/prompts/train.jsonl", [prompt])
    lines.write_lines(tmp_path / "data/policies/rl/training/0/rollouts.jsonl", rows)
    reward_file.write_reward(tmp_path / "data/rewards/rule", make_rule(answer=1.0, final_line=0.2))
    reward_file.write_reward(tmp_path / "data/rewards/terse", make_rule(final_line=-1.0))
    return tmp_path


def test_another_reward_pays_what_it_would_have_paid(finished_run):
    rescore.main("rl", "--reward", "rewards/terse", "--out", "out")
    rows = list(lines.read_lines(Path("out/rescored.jsonl"), Rescored))
    assert [row.step for row in rows] == [0] * 4 + [1] * 4
    assert [row.old for row in rows] == OLD * 2
    assert [row.new for row in rows] == [-1.0, 0.0, 0.0, -1.0] * 2
    report = Path("out/report.md").read_text()
    assert "| 0 | all | 0.6000 | -0.5000 |" in report
    # Of each step the first (1.2 is above 0.6, -1 below -0.5), and the second the other way.
    assert "4 completions change sides" in report
    page = Path("out/report.html").read_text()
    assert "2 + 3?" in page
    assert "1.2 → -1" in page
    assert [row.correct_now for row in rows] == list(RIGHT) * 2


def test_the_punishments_of_the_preset_are_paid_with_any_reward(finished_run):
    """DAPO takes off up to 1 in the last 8 of 32 tokens: of 28 tokens 1/2, of 32 all of it."""
    plan, path = (finished_run / f"data/{name}" for name in (
        "plan.json", "policies/rl/training/0/rollouts.jsonl"))  # fmt: skip
    plan.write_text(plan.read_text().replace("dr_grpo", "dapo"))
    stored = list(lines.read_lines(path, Rollout))[: len(TEXTS)]
    lengths, taken = (24, 28, 28, 32), (0.0, 0.5, 0.5, 1.0)
    rows = [
        dataclasses.replace(row, completion_ids=[7] * length, reward=old - less)
        for row, length, old, less in zip(stored, lengths, OLD, taken, strict=True)
    ]
    lines.write_lines(path, rows)
    rescore.main("rl", "--out", "same")
    same = list(lines.read_lines(Path("same/rescored.jsonl"), Rescored))
    assert [row.new for row in same] == pytest.approx([1.2, -0.5, 0.5, -0.8])
    assert [row.new for row in same] == pytest.approx([row.old for row in same])
    rescore.main("rl", "--reward", "rewards/terse", "--out", "other")
    other = lines.read_lines(Path("other/rescored.jsonl"), Rescored)
    assert [row.new for row in other] == [-1.0, -0.5, -0.5, -2.0]


def test_a_control_is_rewarded_again_as_any_policy(finished_run):
    path = finished_run / "data/plan.json"
    plan = json.loads(path.read_text())
    plan["policies"]["rl"] |= {"control": "no_effect", "num_steps": 2}
    path.write_text(json.dumps(plan))
    rescore.main("rl", "--out", "out")
    rows = lines.read_lines(Path("out/rescored.jsonl"), Rescored)
    assert [row.new for row in rows] == OLD * 2


def test_a_rule_of_the_presets_is_taken_as_it_is_now(finished_run, caplog):
    path = finished_run / "stages/presets.yaml"
    rule = "\nhalf: {components: {answer: {value: {kind: answer}, weight: 0.5, cap: null, " \
        "normalise: none}}, combine: sum}\n"  # fmt: skip
    path.write_text(path.read_text() + rule)
    with caplog.at_level("INFO"):
        rescore.main("rl", "--reward", "presets/half")
    assert "| 0 | all | 0.6000 | 0.2500 |" in caplog.text


def test_completions_that_change_sides_by_hand():
    def make(index: int, old: float, new: float) -> Rescored:
        return Rescored(seed=0, step=0, id="p", index=index, question="", answer=None,
                        completion="", correct=None, correct_now=None,
                        old=old, new=new)  # fmt: skip

    rows = [make(0, 0.0, 3.0), make(1, 1.0, 1.0), make(2, 2.0, 5.0)]
    # Means 1 and 3: the first is at the second mean, the second at the first.
    assert rescored.find_flips(rows) == []
    rows = [make(0, 0.0, 9.0), make(1, 1.5, 0.0), make(2, 1.5, 0.0)]
    assert rescored.find_flips(rows) == rows
    # The mean of three times 0.1 is not 0.1 in floating point, and nobody is above it.
    assert rescored.find_flips([make(n, 0.1, float(n)) for n in range(3)]) == []


def test_texts_of_models_are_escaped_in_the_page_and_verdicts_that_changed_are_shown(tmp_path):
    text = "<script>alert(1)</script>\x1b[31m"
    rows = [
        Rescored(seed=0, step=0, id="p", index=index, question="<b>?</b>", answer="5",
                 completion=text, correct=True, correct_now=index == 0, old=index, new=-index)
        for index in range(2)
    ]  # fmt: skip
    rescored.write_page(tmp_path, "it", "that of training", rows)
    page = (tmp_path / "report.html").read_text()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m" in page
    assert "&lt;b&gt;?&lt;/b&gt;" in page
    assert "<script>alert" not in page
    assert "Other verdicts" in page
    assert rescored.summarise(rows) == {
        "completions": 2, "same_reward": 1, "old": 0.5, "new": -0.5, "rank_correlation": -1.0,
        "change_sides": 2, "other_verdicts": 1,
    }  # fmt: skip


def test_a_row_of_the_study_has_a_page_and_numbers(finished_run):
    rows = {"terse": {"of": "policies/rl", "reward": "rewards/terse"}}
    wrong = {"policy": {"of": "rl", "reward": "rewards/terse"},
             "reward": {"of": "policies/rl", "reward": "presets/rule"},
             "missing": {"of": "policies/rl", "reward": "rewards/none"}}  # fmt: skip
    studied_run.write_yaml(STUDY_PARAMS, {"rescore": {"rows": rows | wrong}})
    study.main("terse")
    folder = DATA / "studies/rescore/terse"
    metrics = json.loads((folder / "metrics.json").read_text())
    assert (metrics["old"], metrics["new"], metrics["change_sides"]) == (0.6, -0.5, 4)
    assert metrics["seeds"]["0"]["completions"] == 8
    assert "2 + 3 = 5" in (folder / "page/report.html").read_text()
    journal = (folder / "journal/journal-seed-0.jsonl").read_text().splitlines()
    assert [json.loads(line)["metrics"]["new"] for line in journal] == [-0.5, -0.5]
    for name in wrong:
        with pytest.raises(ValueError, match=f"rescore.rows.{name}"):
            study.main(name)


@pytest.mark.parametrize(
    "words",
    [("sft",), ("rl", "--reward", "unknown"), ("rl", "--reward", "presets/judge")],
)
def test_what_cannot_be_rewarded_again_is_refused(finished_run, words):
    with pytest.raises(ValueError, match=r"expected|judge"):
        rescore.main(*words)


@pytest.fixture
def default_run(monkeypatch):
    """What `dvc repro` wrote in this folder."""
    if not (ROOT / "data/evaluations/sft").is_dir():
        pytest.skip("no finished default run: `dvc repro` makes it")
    monkeypatch.chdir(ROOT)


@pytest.mark.learning
@pytest.mark.parametrize("policy", ["ppo", "grpo"])
def test_the_same_reward_gives_the_same_numbers(default_run, policy):
    """Of the rewards of the default run that a policy learned from: `preference` and `rule`."""
    config = rescore.load_config(rescore.Config)
    for seed in config.seeds:
        batches = rescoring.rescore(policy, rescoring.find_reward(policy), seed, config.compute)
        rows = [row for batch in batches for row in batch]
        assert len(rows) > 1000
        assert [row.new for row in rows] == [row.old for row in rows]
        assert [row.correct_now for row in rows] == [row.correct for row in rows]


@pytest.mark.learning
@pytest.mark.parametrize("name", ["outcome", "preference", "process"])
def test_the_models_give_the_scores_of_the_evaluation(default_run, name):
    """Of the rewards of the default run that are models, on SFT's samples of the test problems."""
    config = rescore.load_config(evaluate.Config)
    reward = reward_file.read_model_rewards(DATA / "rewards")[name]
    for seed in config.seeds:
        problems = pools.read_split(DATA / f"samples/sft/{seed}", "test")
        grouped = pool_scorer.group_samples(problems, config.compute.row_tokens)
        parts = pool_scorer.score_chunks(
            reward_file.model_path(DATA / "rewards" / name, seed), reward, grouped.chunks,
            config.compute, setup(config.compute), config.evaluation.decimals,
        )  # fmt: skip
        rows = pool_scorer.score_rows(grouped, {name: list(chain.from_iterable(parts))})
        stored = list(
            lines.read_lines(DATA / f"evaluations/sft/{seed}/scores.jsonl", type(rows[0]))
        )
        assert [(row.id, row.index) for row in rows] == [(row.id, row.index) for row in stored]
        kind = "steps" if reward.model == "process" else "scores"
        new, old = ([getattr(row, kind)[name] for row in of_run] for of_run in (rows, stored))
        assert len(new) > 1000
        assert list(map(list, new) if kind == "steps" else new) == list(old)
