"""Numbers that are equal, with units and words that are or are not."""

import pytest

from stages.rewards.answer_checker import is_correct
from stages.rewards.units import ABBREVIATIONS, unit_name, units_differ

ROWS = [
    ("5 pm", "5 p.m.", True), ("5 pm", "5 am", False), ("5 pm", "5", True), ("5", "5 pm", True),
    ("12 hours", "12 hr", True), ("12 hours", "12 minute", False), ("12 hrs", "12 mins", False),
    ("1 hour", "1 minute", False), ("12", "12 hours", True), ("12 hours", "12", True),
    ("12 hours", "12 more hours", True), ("12 day", "12 days", True), ("12 day", "12 week", False),
    ("12 days", "12 days this week", True), ("12 years", "12 years old", True),
    ("12 kilometer", "12 km", True), ("12 kilometer", "12 meter", False),
    ("12 metres", "12 meters", True), ("12 metres", "12 km", False), ("12 feet", "12 ft", True),
    ("12 lbs", "12 pounds", True), ("12 lbs", "12 oz", False), ("5 ounces", "5 grams", False),
    ("12 litres", "12 L", True), ("12 litres", "12 ml", False), ("5 mile", "5 km", False),
    ("12 cm", "12 in total", True), ("12 cm", "12 in", False), ("12 cm", "12 inches", False),
    ("60 mph", "60 miles per hour", True), ("60 mph", "60 km/h", False), ("60 mph", "60", True),
    ("60 km/h", "60 km", False), ("60 km/h", "60 km per hour", True),
    ("8 hours", "8 hours a day", True), ("8 hours a day", "8 hours a week", False),
    ("9.8 m/s", "9.8 m/s^2", False), ("5 N", "5 J", False), ("5 kJ", "5 J", False),
    ("20°C", "20°F", False), ("20°C", r"20^\circ\text{C}", True), ("20°C", "20°", True),
    ("20°C", "20 degrees Celsius", True), ("20 degrees Celsius", "20 degrees Fahrenheit", False),
    ("20% increase", "20% decrease", False), ("20% increase", "20%", True),
    ("20% increase", r"20\% increase", True), ("20% increase", "20 percent increase", True),
    ("10 meters north", "10 meters south", False), ("10 meters north", "10 m", True),
    ("$5 profit", "$5 loss", False), ("$5 profit", "$5 gain", True), ("$5 profit", "$5", True),
    ("5 clockwise", "5 counterclockwise", False), ("5 clockwise", "5 anti-clockwise", False),
    ("$5", "5 dollars", True), ("$5", "5 cents", False), ("$5 per hour", "$5", True),
    ("500", "₹500", True), ("500", "Rs. 500", True), ("500", "₹5000", False),
    ("₹500", "500 rupees", True), ("₹500", "$500", False),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answer", "is_right"), ROWS)
def test_an_equal_number_is_right_unless_its_unit_is_another(gold, answer, is_right):
    assert is_correct(f"#### {answer}", gold) is is_right
    assert is_correct(f"The answer is {answer}.", gold) is is_right
    assert is_correct(rf"\boxed{{{answer}}}", gold) is is_right


@pytest.mark.parametrize(("one", "other", "is_right"), ROWS)
def test_units_differ_whichever_is_gold(one, other, is_right):
    assert units_differ(one, other) == units_differ(other, one)
    assert not units_differ(one, one)
    assert not (is_right and units_differ(one, other))


@pytest.mark.parametrize(
    ("word", "name"),
    [("inches", "inch"), ("Feet", "foot"), ("kilometres", "kilometer"), ("hrs", "hour"),
     ("N", "newton"), ("n", None), ("ms", None), ("apples", None)],
)  # fmt: skip
def test_every_spelling_of_a_unit_has_one_name(word, name):
    assert unit_name(word) == name


def test_abbreviations_have_units_but_no_product_of_variables_is_one():
    assert all(map(unit_name, ABBREVIATIONS))
    assert ABBREVIATIONS.isdisjoint(("xy", "ab", "rs", "MN", "KN"))
