import pytest
import torch

from stages.algorithms import ensemble

# Three members on two completions: they agree on the second.
SCORES = torch.tensor([[1.0, 2.0], [4.0, 2.0], [7.0, 2.0]], dtype=torch.float64)


def test_hand_worked_numbers():
    # First column: mean 4, deviations -3, 0, 3: variance 18 / 3 = 6, not 18 / 2 = 9.
    assert ensemble.mean(SCORES).tolist() == [4.0, 2.0]
    assert ensemble.minimum(SCORES).tolist() == [1.0, 2.0]
    assert ensemble.std(SCORES).tolist() == pytest.approx([6**0.5, 0.0])
    assert ensemble.mean_minus_std(SCORES, k=2.0).tolist() == pytest.approx([4 - 2 * 6**0.5, 2.0])
    assert ensemble.mean_minus_variance(SCORES, k=0.5).tolist() == pytest.approx([1.0, 2.0])


def every(scores):
    return {
        "mean": ensemble.mean(scores),
        "minimum": ensemble.minimum(scores),
        "std": ensemble.mean_minus_std(scores, k=0.7),
        "variance": ensemble.mean_minus_variance(scores, k=0.7),
    }


def test_one_member_or_several_equal_ones_are_that_member_to_the_bit():
    scores = torch.randn(1, 50, generator=torch.Generator().manual_seed(0))
    for result in every(scores).values():
        assert torch.equal(result, scores[0])
    assert torch.equal(ensemble.std(scores), torch.zeros(50))
    for result in every(scores.expand(4, -1)).values():
        torch.testing.assert_close(result, scores[0])


def test_the_order_of_the_members_does_not_matter_and_a_shift_of_all_is_kept():
    scores = torch.randn(4, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    other, shifted = every(scores[[2, 0, 3, 1]]), every(scores + 3.0)
    for name, result in every(scores).items():
        torch.testing.assert_close(other[name], result)
        torch.testing.assert_close(shifted[name], result + 3.0)


def test_caution_never_pays_more_than_the_mean_and_k_of_0_is_the_mean():
    scores = torch.randn(4, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    result = every(scores)
    for name in ("minimum", "std", "variance"):
        assert (result[name] < result["mean"]).all()
    for cautious in (ensemble.mean_minus_std, ensemble.mean_minus_variance):
        torch.testing.assert_close(cautious(scores, k=0.0), result["mean"])
