import pytest

from stages.loops.preference_summary import BOTH_FELL, summarise


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
