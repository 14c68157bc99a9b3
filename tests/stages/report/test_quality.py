import report_inputs

from stages.report import quality


def test_means_over_seeds_of_what_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, share in enumerate((0.5, 0.75)):
        judged = {"train": {"pairs": 10, "agreement": {"averaged": {"value": share, "low": 0.0}}}}
        report_inputs.write_json(f"pairs/judge/{seed}/metrics.json", judged)
        report_inputs.write_json(f"rewards/outcome/{seed}/metrics.json", {"completions": 8})
    report_inputs.write_json("pairs/half/0/metrics.json", {"train": {"pairs": 1}})
    plan = {"pairs": {"judge": {}, "half": {}}, "steps": {}, "rewards": {"rule": {}, "outcome": {}}}
    assert quality.measure(tmp_path / "data", plan, [0, 1]) == {
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


def test_the_first_place_with_a_number_counts():
    metrics = {"heldout": {"auc": None, "labels": {"auroc_within_problem": 0.6}}}
    places = ["heldout/auc", "heldout/labels/auroc_within_problem"]
    assert quality.number(metrics, places) == 0.6
    assert quality.number({"heldout": 3}, places) is None
