"""The table of forecasts, worked by hand."""

from tests.benchmarks.forecasts import format_table


def test_a_forecast_is_near_within_a_factor_of_one_and_a_half_either_way():
    compared = {"a": (20.0, 30.0), "b": (150.0, 100.0), "c": (10.0, 20.0)}
    assert format_table(compared).splitlines()[2:] == [
        "| b | 150 | 100 | 1.50 |",
        "| a | 20 | 30 | 0.67 |",
        "| c | 10 | 20 | 0.50 |",
        "| all | 180 | 150 | 1.20 |",
        "",
        "2 of 3 forecasts are within a factor of 1.5 of the time; the median ratio is 0.67.",
    ]
