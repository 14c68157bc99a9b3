import pytest

from stages.loops.preference_run import BOTH_FELL, late_mean, summarise


def step(chosen, rejected, tokens):
    return {
        "log_ratios/chosen": chosen,
        "log_ratios/rejected": rejected,
        "margin/accuracy": 0.75,
        "tokens/trained": tokens,
    }


def test_tokens_are_summed_and_the_rest_is_of_the_end():
    found = summarise([step(0.0, 0.0, 7), step(1.0, -1.0, 5), step(-1.0, -2.5, 3)])
    assert found == {
        "generated_tokens": 0,
        "trained_tokens": 15,
        "final_margin_accuracy": 0.75,
        "final_chosen_log_ratio": -1.0,
        "final_rejected_log_ratio": -2.5,
        "both_logprobs_fell": True,
    }
    assert "mean log-ratios -1.00 and -2.50 over" in BOTH_FELL % found


@pytest.mark.parametrize("rejected", [-3.0, 3.0])
def test_a_chosen_completion_that_rose_is_no_displacement(rejected):
    assert summarise([step(0.5, rejected, 1)])["both_logprobs_fell"] is False


def test_a_side_that_no_step_had_is_none():
    found = summarise([{"log_ratios/chosen": -1.0, "margin/accuracy": 1.0, "tokens/trained": 2}])
    assert found["final_rejected_log_ratio"] is None
    assert found["both_logprobs_fell"] is False


def both_fell(steps):
    return summarise(steps)["both_logprobs_fell"]


def history(chosen, rejected):
    return [
        {"log_ratios/chosen": c, "log_ratios/rejected": r}
        for c, r in zip(chosen, rejected, strict=True)
    ]


@pytest.mark.parametrize(
    ("chosen", "rejected", "expected"),
    [
        (-2.0, -5.0, True),
        (2.0, -5.0, False),
        (-2.0, 5.0, False),
        (2.0, 5.0, False),
        (-0.05, -5.0, False),  # less than a tenth of a nat
    ],
)
def test_it_is_told_only_where_both_end_below_the_reference(chosen, rejected, expected):
    assert both_fell(history([0.0, 0.5 * chosen, chosen], [0.0, 0.5, rejected])) is expected


def test_only_the_end_counts():
    fell_and_rose = [-3.0] * 18 + [1.0, 1.0]
    assert not both_fell(history(fell_and_rose, [-3.0] * 20))


def test_the_late_mean_is_of_the_last_tenth_of_the_steps_that_have_it():
    steps = [{"a": float(i)} for i in range(20)]
    assert late_mean(steps, "a") == 18.5
    assert late_mean([*steps, {"b": 7.0}], "a") == 18.5
    assert late_mean([*steps, {"b": 7.0}], "b") == 7.0


def test_without_a_number_nothing_is_told():
    assert late_mean([], "a") is None
    assert not both_fell([])
    assert not both_fell([{"log_ratios/chosen": -2.0}])
