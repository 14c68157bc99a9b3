import numpy as np
import pytest

from stages.studies import token_verdict
from stages.studies.token_verdict import SeedResult


def rows(policy, table, num_samples=4):
    """A table of right samples, seed x problem, as rows; greedy is right where any sample is."""
    return [
        SeedResult(
            policy=policy, seed=seed, id=f"p{place}", num_samples=num_samples,
            num_correct=int(number), greedy_correct=bool(number),
        )
        for seed, numbers in enumerate(table)
        for place, number in enumerate(numbers)
    ]  # fmt: skip


def tables(**policies):
    return {name: token_verdict.make_table(rows(name, values)) for name, values in policies.items()}


def compare(**policies):
    return token_verdict.compare_policies(tables(**policies), "sft", confidence=0.95)


def test_a_table_is_of_seeds_and_problems():
    result = token_verdict.make_table(rows("a", [[4, 2, 0], [1, 3, 0]]))
    np.testing.assert_array_equal(result["mean"], [[1.0, 0.5, 0.0], [0.25, 0.75, 0.0]])
    np.testing.assert_array_equal(result["greedy"], [[1, 1, 0], [1, 1, 0]])


def test_seeds_that_met_other_problems_are_refused():
    mixed = [*rows("a", [[4, 2]]), *(rows("a", [[0, 0], [4, 2, 1]])[2:])]
    with pytest.raises(ValueError, match="the same test problems for every seed"):
        token_verdict.make_table(mixed)


def test_the_larger_mean_is_first_and_its_difference_is_paired():
    result = compare(sft=[[0, 0, 1]] * 2, a=[[1, 2, 3]] * 2, b=[[2, 3, 4]] * 2)
    (pair,) = result["pairs"]["mean"]
    # b is right once more of four on every problem: no spread at all
    assert (pair["first"], pair["second"]) == ("b", "a")
    assert (pair["value"], pair["low"], pair["high"]) == (0.25, 0.25, 0.25)
    assert pair["resolved"]
    assert "more_problems" not in pair
    assert [(row["first"], row["second"]) for row in result["gains"]["mean"]] == [
        ("a", "sft"),
        ("b", "sft"),
    ]
    assert result["num_seeds"] == 2
    assert result["num_problems"] == 3


def test_policies_that_are_the_same_differ_by_nothing_that_could_be_resolved():
    same = np.random.default_rng(0).integers(0, 5, (3, 30))
    (pair,) = compare(sft=same * 0, a=same, b=same)["pairs"]["mean"]
    assert (pair["value"], pair["p"], pair["resolved"]) == (0.0, 1.0, False)
    assert "more_problems" not in pair


def test_p_values_of_a_family_are_adjusted_together():
    stream = np.random.default_rng(0)
    drawn = {
        name: stream.integers(0, most, (3, 40)) for name, most in zip("abc", (5, 5, 4), strict=True)
    }
    pairs = compare(sft=np.zeros((3, 40)), **drawn)["pairs"]["mean"]
    least = min(pairs, key=lambda row: row["p"])
    assert least["p_holm"] == pytest.approx(3 * least["p"], abs=1e-5)
    assert all(row["p_holm"] >= row["p"] for row in pairs)


def test_an_unresolved_difference_says_what_it_takes():
    stream = np.random.default_rng(1)
    # problems differ alike under every seed, and seeds by chance alone
    right = 2 + stream.integers(-1, 2, (4, 60))
    other = 2 + stream.integers(-1, 2, (4, 60)) + stream.integers(-1, 2, 60)
    other = np.clip(other, 0, 4)
    (pair,) = compare(sft=right * 0, a=right, b=other)["pairs"]["mean"]
    assert not pair["resolved"]
    assert pair["more_problems"] > 0
    assert pair["more_seeds"] is None, "these 60 problems hide it from any number of seeds"
    assert pair["detectable"] > pair["value"]


def test_one_seed_says_nothing_of_the_spread_of_seeds():
    stream = np.random.default_rng(1)
    right, other = stream.integers(0, 5, (2, 1, 60))
    (pair,) = compare(sft=right * 0, a=right, b=other)["pairs"]["mean"]
    assert pair["seed_deviation"] is None
    assert pair["more_seeds"] is None
    assert pair["degrees"] == 59


def test_accuracies_stay_between_0_and_1():
    result = compare(sft=[[0, 0, 1], [0, 0, 4]], a=[[4, 4, 4], [4, 4, 0]], b=[[0, 1, 0], [0, 0, 0]])
    for measure in ("mean", "greedy"):
        for policy in result["policies"].values():
            assert 0 <= policy[measure]["low"] <= policy[measure]["high"] <= 1
