import csv
import json
from pathlib import Path

import pytest

from stages import compare_policies, params
from stages.records import lines
from stages.records.pools import Rollout
from stages.records.results import ProblemResult
from stages.reports import policy_metrics, stage_times

PARAMS = """
seed: 0
compare_policies: {num_bootstrap: 300, confidence: 0.95}
plan:
  train_sft:
    sft: {preset: sft, start: prepare_data/tokenizer, demonstrations: prepare_data}
  sample_candidates:
    sft-preference: {policy: train_sft/sft/policy, split: preference}
    sft-dev: {policy: train_sft/sft/policy, split: dev}
    sft-test: {policy: train_sft/sft/policy, split: test}
    dpo-test: {policy: train_dpo/dpo/policy, split: test}
    ppo-test: {policy: train_ppo/ppo/policy, split: test}
    grpo-test: {policy: train_grpo/grpo/policy, split: test}
  select_demonstrations: {}
  label_preferences:
    sft: {train: sft-preference, heldout: sft-dev}
  judge_preferences: {}
  revise_answers: {}
  import_preferences: {}
  train_reward_model:
    sft: {start: train_sft/sft/policy, pairs: label_preferences/sft, heldout: label_preferences/sft,
      ensemble: sft, member: 0, flip: 0}
  train_outcome_reward: {}
  label_steps: {}
  import_steps: {}
  train_process_reward: {}
  evaluate_process_reward: {}
  compute_ref_logprobs:
    sft: {policy: train_sft/sft/policy, pairs: label_preferences/sft}
  train_dpo:
    dpo: {preset: dpo, start: train_sft/sft/policy, pairs: label_preferences/sft, reference: sft}
  train_ppo:
    ppo: {preset: p, start: train_sft/sft/policy, reward: m, scorer: train_reward_model/sft, own: x}
  train_grpo:
    grpo: {preset: grpo, start: train_sft/sft/policy, reward: rule, scorer: no_model, own: none}
  score_candidates: {}
  choose_aggregation: {}
  search_solutions: {}
  evaluate_checkpoints: {}
  evaluate_best_of_n: {}
  probe_policy: {}
  evaluate_policy:
    sft: {pool: sft-test, scores: no_scores, aggregation: no_choice}
    dpo: {pool: dpo-test, scores: no_scores, aggregation: no_choice}
    ppo: {pool: ppo-test, scores: no_scores, aggregation: no_choice}
    grpo: {pool: grpo-test, scores: no_scores, aggregation: no_choice}
  baseline: sft
"""
ACCURACY = {"sft": 0.25, "dpo": 0.5, "ppo": 0.5, "grpo": 0.75}
COSTS = {
    "train_sft/sft": (0, 1000, 10.0),
    "sample_candidates/sft-preference": (500, None, 5.0),
    "train_reward_model/sft": (0, 300, 3.0),
    "compute_ref_logprobs/sft": (0, 0, 0.5),
    "train_dpo/dpo": (0, 400, 4.0),
    "train_ppo/ppo": (700, 800, 20.5),
    "train_grpo/grpo": (600, 650, 15.25),
}


def result(number: int, accuracy: float) -> ProblemResult:
    return ProblemResult(
        id=f"p{number}",
        num_samples=4,
        num_correct=round(4 * accuracy),
        greedy_correct=number % 2 == 0,
        greedy_strict=number % 2 == 0,
        greedy_lenient=number % 2 == 0,
        mean_accuracy=accuracy,
        mean_strict=accuracy - 0.25,
        mean_lenient=accuracy,
        accuracy_at={
            "pass": {"1": accuracy, "4": 1.0},
            "majority": {"1": accuracy, "4": accuracy},
            "best_of/outcome": {"1": accuracy, "4": accuracy + 0.125 * (number % 2)},
            "weighted/outcome": {"1": accuracy, "4": accuracy - 0.125},
            "best_of/format": {"1": accuracy, "4": accuracy},
            "weighted/format": {"1": accuracy, "4": accuracy},
        },
        readable_rate=1.0,
        format_rate=1.0,
        truncation_rate=0.0,
        mean_tokens=20.0,
    )


def write_json(path: Path, content: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(PARAMS, encoding="utf-8")
    data = compare_policies.DATA
    for policy, accuracy in ACCURACY.items():
        rows = [result(number, accuracy) for number in range(20)]
        lines.write(data / f"evaluate_policy/{policy}/per_problem.jsonl", rows)
        metrics = policy_metrics.summarise(rows, num_resamples=300, confidence=0.95, seed=0)
        write_json(data / f"evaluate_policy/{policy}/metrics.json", metrics)
    for stage, (generated, trained, seconds) in COSTS.items():
        tokens = {"generated_tokens": generated} | (
            {} if trained is None else {"trained_tokens": trained}
        )
        write_json(data / stage / "metrics.json", tokens)
        write_json(data / stage / "run/run.json", {"seconds": seconds})
    for stage in stage_times.entries(params.load(compare_policies.Config).plan):
        record = data / stage / "run/run.json"
        if not record.exists():
            write_json(record, {"seconds": 0.25})
        if not (data / stage / "metrics.json").exists():
            write_json(data / stage / "metrics.json", {"generated_tokens": 0})
    for policy in ("ppo", "grpo"):
        rollouts = [
            Rollout(
                step=step,
                id="p",
                index=0,
                completion="",
                completion_ids=[1],
                finish_reason="stop",
                reward=0.5 * step,
                correct=step > 0,
            )
            for step in range(3)
        ]
        lines.write(data / f"train_{policy}/{policy}/rollouts.jsonl", rollouts)


def test_metrics_hold_accuracies_paired_differences_and_costs():
    compare_policies.main()
    metrics = json.loads(Path("data/compare_policies/metrics.json").read_text(encoding="utf-8"))
    policies = metrics["policies"]
    assert list(policies) == ["sft", "dpo", "grpo", "ppo"]
    assert {name: one["mean_accuracy"] for name, one in policies.items()} == ACCURACY
    assert (policies["sft"]["mean_accuracy_low"], policies["sft"]["mean_accuracy_high"]) == (
        0.25,
        0.25,
    )
    assert policies["grpo"]["greedy_accuracy"] == 0.5
    versus = policies["grpo"]["versus_baseline"]
    gain = versus["mean_accuracy"]
    assert (gain["difference"], gain["low"], gain["high"]) == (0.5, 0.5, 0.5)
    assert (gain["p"], gain["p_holm"], gain["detectable"]) == (0.0, 0.0, 0.0)
    greedy = versus["greedy_accuracy"]
    assert (greedy["difference"], greedy["only_this"], greedy["p_holm"]) == (0.0, 0, 1.0)
    assert versus["best_of/outcome"]["difference"] == 0.5
    assert "versus_baseline" not in policies["sft"]
    assert policies["sft"]["minus_mean"]["best_of/outcome"]["4"]["value"] == 0.0625
    assert [(pair["first"], pair["second"], pair["difference"]) for pair in metrics["pairs"]] == [
        ("sft", "dpo", -0.25), ("sft", "grpo", -0.5), ("sft", "ppo", -0.25),
        ("dpo", "grpo", -0.25), ("dpo", "ppo", 0.0), ("grpo", "ppo", 0.25),
    ]  # fmt: skip
    assert {
        name: (cost["generated_tokens"], cost["trained_tokens"], cost["seconds"])
        for name, cost in metrics["costs"].items()
    } == {
        "sft": (0, 1000, 10.0),
        "dpo": (500, 400, 9.5),
        "ppo": (1200, 1100, 28.5),
        "grpo": (600, 650, 15.2),
    }


def test_the_report_has_every_table_and_links_plots_that_exist():
    compare_policies.main()
    report = Path("data/compare_policies/report.md").read_text(encoding="utf-8")
    assert "| grpo | 50.0 % [29.9, 70.1] | 75.0 % [75.0, 75.0] |" in report
    assert "| train_ppo | 20.5 | ppo 20.5 |" in report
    assert stage_times.LEGEND in report
    assert "| grpo | +0.0 [+0.0, +0.0] | 1.000 | 0 / 0 | **+50.0 [+50.0, +50.0]** |" in report
    assert "| dpo - ppo | +0.0 [+0.0, +0.0] | 1.000 | not resolved |" in report
    assert "| dpo - grpo | **-25.0 [-25.0, -25.0]** | <0.001 | grpo is better |" in report
    assert "the sample that scores best is better than the majority of 4 (**+6.2 [" in report
    assert "the vote weighted by scores is worse than the majority of 4 (**-12.5 [" in report
    assert "| grpo | **+50.0 [+50.0, +50.0]** | **+50.0 [+50.0, +50.0]** |" in report
    assert (
        "ppo: sample_candidates/sft-preference, train_reward_model/sft, train_ppo/ppo | 1,200 |"
        in report
    )
    for name in ("mean_accuracy", "accuracy_by_n", "learning_curves"):
        assert f"(plots/{name}.png)" in report
        content = Path(f"data/compare_policies/plots/{name}.png").read_bytes()
        assert content.startswith(b"\x89PNG")
        assert b"matplotlib" not in content.lower()


def test_the_plots_numbers_are_in_csv_files():
    compare_policies.main()
    plots = Path("data/compare_policies/plots")
    tables = {
        path.stem: list(csv.DictReader(path.open(encoding="utf-8"))) for path in plots.glob("*.csv")
    }
    assert tables["mean_accuracy"][0] == {
        "policy": "sft", "value": "0.25", "low": "0.25", "high": "0.25",
    }  # fmt: skip
    by_n = tables["accuracy_by_n"]
    assert [(row["policy"], row["n"]) for row in by_n[:3]] == [
        ("sft", "1"), ("sft", "4"), ("dpo", "1"),
    ]  # fmt: skip
    assert (by_n[1]["best_of/outcome"], by_n[1]["mean"]) == ("0.3125", "0.25")
    assert by_n[1]["best_of/reward_model"] == ""
    curves = {name: [] for name in ("ppo", "grpo")}
    for row in tables["learning_curves"]:
        curves[row["policy"]].append((row["reward"], row["accuracy"]))
    assert curves["ppo"] == curves["grpo"] == [("0.0", "0.0"), ("0.5", "1.0"), ("1.0", "1.0")]


def test_a_plan_without_rollouts_has_the_same_files_and_another_baseline():
    text = PARAMS
    for name in ("ppo", "grpo"):
        text = "\n".join(line for line in text.split("\n") if f"    {name}: " not in line)
        text = text.replace(f"  train_{name}:", f"  train_{name}: {{}}")
    text = text.replace("baseline: sft", "baseline: dpo")
    Path("params.yaml").write_text(text, encoding="utf-8")
    compare_policies.main()
    metrics = json.loads(Path("data/compare_policies/metrics.json").read_text(encoding="utf-8"))
    assert metrics["baseline"] == "dpo"
    assert metrics["policies"]["dpo"]["stage"] == "train_dpo@dpo"
    assert metrics["policies"]["sft"]["versus_baseline"]["mean_accuracy"]["difference"] == -0.25
    assert metrics["costs"]["sft"]["stages"] == []
    assert metrics["costs"]["dpo"]["stages"] == [
        "train_sft/sft", "sample_candidates/sft-preference", "compute_ref_logprobs/sft",
        "train_dpo/dpo",
    ]  # fmt: skip
    plots = Path("data/compare_policies/plots")
    assert (plots / "learning_curves.png").exists()
    assert len((plots / "learning_curves.csv").read_text(encoding="utf-8").splitlines()) == 1


def test_a_second_run_writes_the_same_bytes():
    written = []
    for _ in range(2):
        compare_policies.main()
        folder = Path("data/compare_policies")
        files = [*sorted(folder.glob("plots/*")), folder / "report.md", folder / "metrics.json"]
        written.append([path.read_bytes() for path in files])
    assert written[0] == written[1]
