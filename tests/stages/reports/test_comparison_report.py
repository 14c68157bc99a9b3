from stages.reports import comparison_report


def interval(value: float, low: float, high: float) -> dict[str, float]:
    return {"value": value, "low": low, "high": high}


def evaluation(against_mean: dict[str, float], against_vote: dict[str, float]) -> dict[str, object]:
    rate = interval(0.5, 0.45, 0.55)
    table = {"2": interval(0.1, 0.1, 0.1), "16": interval(0.7, 0.65, 0.75)}
    return {
        **dict.fromkeys(("greedy_accuracy", "mean_accuracy", "readable_rate"), rate),
        **dict.fromkeys(("format_rate", "truncation_rate"), rate),
        **dict.fromkeys(("majority_at", "best_of", "pass_at"), table),
        "mean_tokens": interval(30.0, 29.5, 30.5),
        "best_of_minus_mean": {"16": against_mean},
        "best_of_minus_majority": {"16": against_vote},
    }


BETTER, SAME, WORSE = (
    interval(0.2, 0.1, 0.3),
    interval(0.01, -0.01, 0.03),
    interval(-0.2, -0.3, -0.1),
)


def test_the_accuracy_table_shows_percent_with_the_interval_at_the_largest_n():
    table = comparison_report.accuracy_table({"sft": evaluation(BETTER, SAME)})
    header, _, row = table.splitlines()
    assert header == "| policy | greedy | mean | majority@16 | best-of-16 | pass@16 |"
    assert row.startswith("| sft | 50.0 % [45.0, 55.0] | 50.0 % [45.0, 55.0] | 70.0 % [65.0, 75.0]")


def test_the_verdict_on_reranking_follows_from_the_paired_interval():
    text = comparison_report.reranking(
        {"sft": evaluation(BETTER, SAME), "ppo": evaluation(BETTER, WORSE)}
    )
    sft, ppo = text.splitlines()
    assert "better than one random sample (**+20.0 [+10.0, +30.0]** points)" in sft
    assert "not resolved from the majority of 16 (+1.0 [-1.0, +3.0] points)" in sft
    assert "worse than the majority of 16 (**-20.0 [-30.0, -10.0]** points)" in ppo
