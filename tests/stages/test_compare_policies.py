import csv
import json
from pathlib import Path

import pytest

from stages import compare_policies
from stages.records import lines
from stages.records.problem_result import ProblemResult
from stages.records.rollout import Rollout
from stages.reports import policy_metrics

PARAMS = "seed: 0\ncompare_policies: {num_bootstrap: 300, confidence: 0.95}\n"
ACCURACY = {"sft": 0.25, "dpo": 0.5, "ppo": 0.5, "grpo": 0.75}
COSTS = {
    "train_sft": (0, 1000, 10.0),
    "sample_candidates/sft-preference": (500, None, 5.0),
    "train_reward_model": (0, 300, 3.0),
    "compute_ref_logprobs": (0, 0, 0.5),
    "train_dpo": (0, 400, 4.0),
    "train_ppo": (700, 800, 20.5),
    "train_grpo": (600, 650, 15.25),
}


def result(number: int, accuracy: float) -> ProblemResult:
    return ProblemResult(
        id=f"p{number}",
        num_samples=4,
        num_correct=round(4 * accuracy),
        greedy_correct=number % 2 == 0,
        mean_accuracy=accuracy,
        pass_at={"1": accuracy, "4": 1.0},
        majority_at={"1": accuracy, "4": accuracy},
        best_of={"1": accuracy, "4": accuracy + 0.125 * (number % 2)},
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
        lines.write(data / f"train_{policy}/rollouts.jsonl", rollouts)


def test_metrics_hold_accuracies_paired_differences_and_costs():
    compare_policies.main()
    metrics = json.loads(Path("data/compare_policies/metrics.json").read_text(encoding="utf-8"))
    policies = metrics["policies"]
    assert list(policies) == ["sft", "dpo", "ppo", "grpo"]
    assert {name: one["mean_accuracy"] for name, one in policies.items()} == ACCURACY
    assert (policies["sft"]["mean_accuracy_low"], policies["sft"]["mean_accuracy_high"]) == (
        0.25,
        0.25,
    )
    assert policies["grpo"]["greedy_accuracy"] == 0.5
    assert policies["grpo"]["versus_sft"] == {"difference": 0.5, "low": 0.5, "high": 0.5}
    assert policies["grpo"]["versus_sft_greedy_accuracy"]["difference"] == 0.0
    assert "versus_sft" not in policies["sft"]
    assert policies["sft"]["best_of_minus_mean"]["4"]["value"] == 0.0625
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
    assert "| grpo | +0.0 [+0.0, +0.0] | **+50.0 [+50.0, +50.0]** |" in report
    assert "- **sft**: the reward model's best of 4 is better than one random sample" in report
    assert (
        "ppo: sample_candidates/sft-preference, train_reward_model, train_ppo | 1,200 |" in report
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
    assert [row["n"] for row in tables["accuracy_by_n_sft"]] == ["1", "4"]
    assert tables["accuracy_by_n_sft"][1]["best_of"] == "0.3125"
    assert tables["accuracy_by_n_sft"][1]["mean"] == "0.25"
    assert [row["reward"] for row in tables["learning_curve_ppo"]] == ["0.0", "0.5", "1.0"]
    assert [row["accuracy"] for row in tables["learning_curve_grpo"]] == ["0.0", "1.0", "1.0"]


def test_a_second_run_writes_the_same_bytes():
    written = []
    for _ in range(2):
        compare_policies.main()
        folder = Path("data/compare_policies")
        files = [*sorted(folder.glob("plots/*")), folder / "report.md", folder / "metrics.json"]
        written.append([path.read_bytes() for path in files])
    assert written[0] == written[1]
