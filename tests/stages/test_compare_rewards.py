import copy
import csv
import json
from pathlib import Path

import presets
import pytest

from stages import compare_rewards
from stages.records import lines
from stages.records.pools import Completion, Score
from stages.records.problems import Prompt

RM = "train_reward_model/sft-0/reward_model"
MODEL = {
    "start": "train_sft/sft/policy",
    "pairs": "label_preferences/sft",
    "heldout": "label_preferences/sft",
    "ensemble": "sft",
    "member": 0,
    "flip": 0,
}
QUALITY = {
    "num_bins": 4,
    "binning": "equal_mass",
    "length_tolerance": 2,
    "length_edges": [0],
    "num_bootstrap": 200,
    "confidence": 0.95,
}
ANSWERS = {"a": "7756", "b": "5557", "c": "7777"}
SCORES = {
    "reward_model": {"a": "9810", "b": "0009", "c": "1234"},
    "outcome": dict.fromkeys(ANSWERS, "1111"),
}
BARE = {"sft": {"pool": "sft-test", "scores": "no_scores", "aggregation": "no_choice"}}


def interval(value):
    return {"value": value, "low": value - 0.125, "high": value + 0.125}


def write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def plan(**tables):
    """The comparison's recipe with other tables."""
    content = copy.deepcopy(presets.CONTENT["recipes"]["comparison"])
    content |= {"train_reward_model": {}, "train_outcome_reward": {}, "evaluate_policy": BARE}
    content |= tables
    # JSON is YAML; a dump of the latter would sort the entries.
    write_json(Path("params.yaml"), {"seed": 0, "plan": content, "reward_quality": QUALITY})


def compare():
    compare_rewards.main()
    folder = compare_rewards.OUTPUT
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    return metrics, (folder / "report.md").read_text(encoding="utf-8")


def reward_model(name, accuracy, **changes):
    quality = {
        "accuracy": accuracy and interval(accuracy),
        "tie_rate": interval(0.125),
        "negative_log_likelihood": interval(0.5),
        "label_entropy": interval(0.125),
        "expected_calibration_error": interval(0.25),
        "length_matched_accuracy": None,
    }
    write_json(compare_rewards.DATA / f"train_reward_model/{name}/metrics.json",
               {"heldout": quality})  # fmt: skip
    return {name: MODEL | changes}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines.write(
        compare_rewards.PROMPTS,
        [
            Prompt(id=name, task="solve", question="", prompt="", prompt_ids=[1], answer="7")
            for name in ANSWERS
        ],
    )
    pool = [
        Completion(
            id=name,
            index=index,
            completion=f"#### {answer}",
            completion_ids=[1],
            logprob_sum=-1.0,
            finish_reason="stop",
            seed=0,
        )
        for name, text in ANSWERS.items()
        for index, answer in enumerate(text)
    ]
    lines.write(Path("data/sample_candidates/sft-test/pool.jsonl"), pool)
    rows = [
        Score(
            id=name,
            index=index,
            scores={
                scorer: float(of_problem[name][index]) for scorer, of_problem in SCORES.items()
            },
            disagreement=None,
            steps=None,
        )
        for name, text in ANSWERS.items()
        for index in range(len(text))
    ]
    lines.write(Path("data/score_candidates/sft/scores.jsonl"), rows)
    Path("data/no_scores.jsonl").write_text("", encoding="utf-8")
    write_json(Path("data/no_choice.json"), None)
    of_n = {"1": interval(0.5), "2": interval(0.875)}
    methods = {
        f"{way}/{name}": of_n
        for way in ("best_of", "weighted")
        for name in ("reward_model", "outcome", "mean_logprob", "format")
    }
    methods |= {"best_of/longest": of_n, "best_of/shortest": of_n}
    votes = {f"weighted/{name}": {"2": interval(0.8)} for name in ("reward_model", "outcome")}
    write_json(
        Path("data/evaluate_policy/sft/metrics.json"),
        {
            "num_problems": 3,
            "num_samples": 4,
            "mean_accuracy": interval(0.5),
            "accuracy_at": methods | votes | {"majority": {"2": interval(0.75)}},
            "minus_mean": methods,
            "minus_majority": methods,
        },
    )
    write_json(Path("data/label_preferences/sft/metrics.json"), {"train": {}})
    write_json(
        Path("data/judge_preferences/sft/metrics.json"),
        {"read_tokens": 1200, "generated_tokens": 34},
    )
    write_json(Path("data/revise_answers/sft/metrics.json"), {"generated_tokens": 56})


SCORED = {
    "evaluate_policy": {
        "sft": {"pool": "sft-test", "scores": "score_candidates/sft/scores",
                "aggregation": "no_choice"},
    }
}  # fmt: skip


def test_scorers_of_one_pool_worked_by_hand():
    plan(**SCORED)
    metrics, report = compare()
    pool = metrics["pools"]["sft"]
    assert (pool["num_problems"], pool["num_samples"], pool["n"]) == (3, 4, 2)
    assert pool["majority"] == interval(0.75)
    good, flat = (pool["scorers"][name] for name in ("reward_model", "outcome"))
    assert (good["auc"]["value"], flat["auc"]["value"]) == (1.0, 0.5)
    assert good["problems_with_both"] == flat["problems_with_both"] == 2
    # Accuracies are those of evaluate_policy, at its largest n.
    assert good["best_of"] == interval(0.875)
    assert (good["weighted"], pool["scorers"]["longest"]["weighted"]) == (interval(0.8), None)
    assert "| reward_model | 1.000 [" in report
    assert "| outcome | 0.500 [0.500, 0.500] | none | 87.5 % [75.0, 100.0] |" in report


def test_models_stand_by_what_they_are_tested_on_and_by_who_labelled():
    models = (
        reward_model("z-ai", 0.75, pairs="judge_preferences/sft")
        | reward_model("noisy", 0.5, flip=25)
        | reward_model("sft-0", 0.875)
        | reward_model("revised", 0.625, pairs="revise_answers/sft")
        | reward_model("own-truth", 0.625, heldout="judge_preferences/sft")
    )
    plan(train_reward_model=models)
    metrics, report = compare()
    found = metrics["reward_models"]
    assert list(found) == ["own-truth", "sft-0", "noisy", "z-ai", "revised"]
    assert found["z-ai"]["source"] == "AI judge"
    tokens = [found[name]["label_tokens"] for name in ("sft-0", "z-ai", "revised")]
    assert tokens == [0, 1200 + 34, 56]
    assert "| z-ai | AI judge | judge_preferences/sft | label_preferences/sft | 0 % |" in report
    assert "| none | 1,234 |" in report  # no pairs of matched lengths
    assert "Tokens: read or generated by the stage that made the labels" in report
    assert "at 0 % the ensemble's members" in report
    with (compare_rewards.OUTPUT / "plots/noise.csv").open(encoding="utf-8") as file:
        points = [(row["model"], row["flip"], row["value"]) for row in csv.DictReader(file)]
    assert points == [("sft-0", "0", "0.875"), ("noisy", "25", "0.5")]


def test_outcome_models_have_a_table():
    quality = {
        "auc": None,
        "accuracy": interval(0.75),
        "one_verdict_accuracy": 0.625,
        "negative_log_likelihood": interval(0.5),
        "expected_calibration_error": interval(0.25),
    }
    write_json(Path("data/train_outcome_reward/sft/metrics.json"), {"heldout": quality})
    entry = {"start": "train_sft/sft/policy", "pool": "sft-preference", "heldout": "sft-dev"}
    plan(train_outcome_reward={"sft": entry})
    _, report = compare()
    assert "| sft | sft-preference | sft-dev | none | 75.0 % [62.5, 87.5] | 62.5 % |" in report
    _, _, legend = report.partition("## Outcome models")
    assert "had both been equally likely beforehand" in legend


def test_a_recipe_without_reward_models_says_none_and_has_the_same_files():
    plan()
    metrics, report = compare()
    assert metrics["reward_models"] == metrics["outcome_models"] == {}
    assert set(metrics["pools"]["sft"]["scorers"]) == {
        "mean_logprob",
        "format",
        "longest",
        "shortest",
    }
    assert report.count("\nnone\n") == 2
    plots = compare_rewards.OUTPUT / "plots"
    assert {path.name for path in plots.iterdir()} == {
        "auc.csv", "auc.png", "noise.csv", "noise.png",
    }  # fmt: skip
    assert len((plots / "auc.csv").read_text(encoding="utf-8").splitlines()) == 1 + 4


def test_a_model_without_a_decided_pair_is_in_the_table_and_on_no_curve():
    models = reward_model("sft-0", None) | reward_model("noisy", 0.5, flip=25)
    plan(train_reward_model=models)
    _, report = compare()
    assert (
        "| sft-0 | verifier | label_preferences/sft | label_preferences/sft | 0 % | none |"
        in report
    )
    text = (compare_rewards.OUTPUT / "plots/noise.csv").read_text(encoding="utf-8")
    assert len(text.splitlines()) == 1


def test_a_second_run_writes_the_same_bytes_whatever_the_order_of_entries():
    models = reward_model("sft-0", 0.875) | reward_model("noisy", 0.5, flip=25)
    written = []
    for turn in (1, -1):
        plan(
            train_reward_model=dict(list(models.items())[::turn]),
        )
        compare()
        folder = compare_rewards.OUTPUT
        files = [*sorted(folder.glob("plots/*")), folder / "report.md", folder / "metrics.json"]
        written.append([path.read_bytes() for path in files])
    assert written[0] == written[1]
    assert not any(b"matplotlib" in content.lower() for content in written[0])
