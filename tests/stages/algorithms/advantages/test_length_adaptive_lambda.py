import pytest
import torch

from stages.algorithms.advantages.length_adaptive_lambda import length_adaptive_lambda


def test_hand_worked_numbers():
    # alpha 0.05: 1 - 1 / (0.05 * 100) = 0.8; 1 - 1 / (0.05 * 1000) = 0.98; at 20 exactly 0.
    found = length_adaptive_lambda(torch.tensor([100, 1000, 20]), alpha=0.05)
    assert found.tolist() == pytest.approx([0.8, 0.98, 0.0])


def test_its_weights_sum_to_alpha_times_the_length():
    lam = length_adaptive_lambda(torch.tensor([200]), alpha=0.05).double().item()
    assert sum(lam**k for k in range(1000)) == pytest.approx(0.05 * 200, rel=1e-5)


def test_short_and_empty_completions_get_zero():
    assert length_adaptive_lambda(torch.tensor([0, 1, 19]), alpha=0.05).tolist() == [0.0, 0.0, 0.0]


def test_an_alpha_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="alpha above 0, found 0"):
        length_adaptive_lambda(torch.tensor([5]), alpha=0.0)
