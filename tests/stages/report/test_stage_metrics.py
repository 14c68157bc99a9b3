import pytest
import report_inputs

from stages.report import stage_metrics

POLICY = {
    "parameters": 1000, "trained_parameters": 1000, "body": 800, "output": 150,
    "trained_body": 800, "trained_output": 150,
}  # fmt: skip
FROZEN = {"trained_parameters": 0, "trained_body": 0, "trained_output": 0}
PPO = {
    "generated_tokens": 60,
    "trained_tokens": 60,
    "work": {
        "policy": POLICY
        | {
            "sampled": {"positions": 90, "outputs": 60},
            "trained": {"positions": 100, "outputs": 60},
        },
        "scorer": POLICY | FROZEN | {"output": 0, "read": {"positions": 100, "outputs": 0}},
    },
}


def test_the_operations_of_a_hand_worked_stage():
    sampled = 2 * (800 * 90 + 150 * 60)
    trained = 6 * (800 * 100 + 150 * 60)
    result = stage_metrics.sum_cost(PPO)
    assert result["flops"] == sampled + trained + 2 * 800 * 100
    assert (result["generated_tokens"], result["trained_tokens"]) == (60, 60)


def test_tokens_that_are_told_for_each_side_are_added():
    assert stage_metrics.sum_cost(
        {"train": {"generated_tokens": 5}, "heldout": {"generated_tokens": 2}, "work": {}}
    ) == {"generated_tokens": 7, "trained_tokens": 0, "flops": 0}


def test_a_row_costs_the_mean_over_seeds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, tokens in enumerate((10, 20, 60)):
        report_inputs.write_json(f"pools/sft/{seed}/metrics.json", {"generated_tokens": tokens})
    result = stage_metrics.read_row_cost(tmp_path / "data/pools/sft", [0, 1, 2])
    assert result == {"generated_tokens": 30.0, "trained_tokens": 0.0, "flops": 0.0}
    assert stage_metrics.read_row_cost(tmp_path / "data/rewards/rule", [0, 1]) == dict.fromkeys(
        stage_metrics.COSTS, 0.0
    )


def test_what_was_made_for_a_policy_beyond_the_baseline():
    plan = report_inputs.PLAN | {
        "policies": report_inputs.PLAN["policies"]
        | {
            "ppo": {"train": "ppo", "preset": "p", "from": "sft", "on": "rewards/preference"},
            "second": {"train": "dpo", "preset": "p", "from": "dpo", "on": "pairs/verifier"},
        }
    }
    rows = [f"{table}/{name}" for table, names in plan.items() for name in names]
    costs = {row: dict.fromkeys(stage_metrics.COSTS, 1.0) for row in rows}
    result = stage_metrics.sum_policy_costs(plan, "sft", costs)
    assert {name: cost["rows"] for name, cost in result.items()} == {
        "sft": ["policies/sft"],
        "dpo": ["pools/sft", "pairs/verifier", "policies/dpo"],
        "grpo": ["rewards/rule", "policies/grpo"],
        "ppo": ["pools/sft", "pairs/verifier", "rewards/preference", "policies/ppo"],
        "second": ["pools/sft", "pairs/verifier", "policies/dpo", "policies/second"],
    }
    assert result["ppo"]["flops"] == pytest.approx(4.0)


def test_means_over_seeds_of_what_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, share in enumerate((0.5, 0.75)):
        judged = {"train": {"pairs": 10, "agreement": {"averaged": {"value": share, "low": 0.0}}}}
        report_inputs.write_json(f"pairs/judge/{seed}/metrics.json", judged)
        report_inputs.write_json(f"rewards/outcome/{seed}/metrics.json", {"completions": 8})
    report_inputs.write_json("pairs/half/0/metrics.json", {"train": {"pairs": 1}})
    plan = {"pairs": {"judge": {}, "half": {}}, "steps": {}, "rewards": {"rule": {}, "outcome": {}}}
    assert stage_metrics.read_quality(tmp_path / "data", plan, [0, 1]) == {
        "pairs": {
            "judge": {
                "pairs": {"value": 10.0, "seeds": {"0": 10.0, "1": 10.0}},
                "agree with the answer checker": {"value": 0.625, "seeds": {"0": 0.5, "1": 0.75}},
            }
        },
        "rewards": {
            "outcome": {"learned from": {"value": 8.0, "seeds": {"0": 8.0, "1": 8.0}}},
        },
    }
