"""Which problems are shown in full."""

import pytest

from stages.reports.transcript_choice import choose, transitions

IDS = [f"p{number}" for number in range(8)]
# of each problem, who is right: baseline, x, y, z
RIGHT = ["0000", "0100", "0110", "0111", "1000", "1100", "1110", "1111"]
VERDICTS = {
    name: [row[column] == "1" for row in RIGHT] for column, name in enumerate(["b", "x", "y", "z"])
}


def chosen(seed=0, **numbers):
    found = choose(IDS, VERDICTS, "b", **({"disagreeing": 0, "drawn": 0} | numbers), seed=seed)
    return [(one.place, one.reason) for one in found]


def test_gains_and_losses_by_disagreement():
    # min(right, wrong) of four policies: 2 at problems 2 and 5, 1 at 1, 3, 4 and 6, 0 at the ends
    one = chosen(disagreeing=1)
    assert one == [(2, "b wrong, another right"), (5, "b right, another wrong")]
    every = [place for place, _ in chosen(disagreeing=9)]
    assert (every[0], set(every[1:3])) == (2, {1, 3})
    assert (every[3], set(every[4:])) == (5, {4, 6})


def test_random_problems_come_first_and_none_twice():
    for seed in range(20):
        found = chosen(seed, disagreeing=9, drawn=4)
        places = [place for place, _ in found]
        assert len(set(places)) == len(places)
        assert [reason for _, reason in found[:4]] == ["drawn at random"] * 4
        # nothing that was gained or lost is left out
        assert set(places) >= {1, 2, 3, 4, 5, 6}


def test_the_draw_is_of_the_seed_and_of_no_verdict():
    draws = [tuple(place for place, _ in chosen(seed, drawn=2)) for seed in range(40)]
    assert len(set(draws)) > 15
    assert {place for draw in draws for place in draw} == set(range(8))
    turned = {name: [not verdict for verdict in row] for name, row in VERDICTS.items()}
    found = choose(IDS, turned, "b", disagreeing=0, drawn=2, seed=0)
    assert tuple(one.place for one in found) == draws[0]


def test_without_another_policy_nothing_is_gained_or_lost():
    assert choose(IDS, {"b": VERDICTS["b"]}, "b", disagreeing=3, drawn=0, seed=0) == []


def test_transitions_by_hand():
    assert transitions(VERDICTS, "b") == {"x": (3, 3, 1, 1), "y": (2, 2, 2, 2), "z": (1, 1, 3, 3)}


def test_another_number_of_verdicts_is_an_error():
    with pytest.raises(ValueError, match="zip"):
        transitions({"b": [True], "x": [True, False]}, "b")
