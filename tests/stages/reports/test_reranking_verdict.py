from stages.reports import reranking_verdict


def interval(value: float, low: float, high: float) -> dict[str, float]:
    return {"value": value, "low": low, "high": high}


BETTER, SAME, WORSE = (
    interval(0.2, 0.1, 0.3),
    interval(0.01, -0.01, 0.03),
    interval(-0.2, -0.3, -0.1),
)
AT = {"8": interval(0.7, 0.65, 0.75)}
EVALUATIONS = {
    "sft": {
        "accuracy_at": {
            "majority": AT,
            **{
                f"{way}/{name}": AT
                for way in ("best_of", "weighted")
                for name in ("outcome", "format")
            },
        },
        "minus_majority": {"best_of/outcome": {"8": WORSE}, "weighted/outcome": {"8": BETTER}},
        "minus_format": {"best_of/outcome": {"8": SAME}, "weighted/outcome": {"8": WORSE}},
    },
    "ppo": {
        "accuracy_at": {"majority": AT, "best_of/outcome": AT},
        "minus_majority": {"best_of/outcome": {"8": SAME}},
    },
}


def test_the_verdict_follows_from_the_paired_interval():
    best_of, weighted = reranking_verdict.sentences(EVALUATIONS, "sft").splitlines()
    assert (
        "scores best is worse than the majority of 8 (**-20.0 [-30.0, -10.0]** points)" in best_of
    )
    assert "is better than the majority of 8 (**+20.0 [+10.0, +30.0]** points)" in weighted
    (alone,) = reranking_verdict.sentences(EVALUATIONS, "ppo").splitlines()
    assert "not resolved from the majority of 8 (+1.0 [-1.0, +3.0] points)" in alone


def test_a_policy_without_a_way_has_none_in_the_table():
    *_, sft, ppo = reranking_verdict.table(EVALUATIONS, "weighted").splitlines()
    assert sft == "| sft | **+20.0 [+10.0, +30.0]** | none |"
    assert ppo == "| ppo | none | none |"


def test_what_a_check_of_the_format_would_do_stands_beside():
    text = reranking_verdict.why(EVALUATIONS, "sft")
    assert "is right 70.0 % [65.0, 75.0] of the time, the majority of those 70.0 %" in text
    row = "| the outcome reward model | +1.0 [-1.0, +3.0] | **-20.0 [-30.0, -10.0]** |"
    assert text.splitlines()[-1] == row
