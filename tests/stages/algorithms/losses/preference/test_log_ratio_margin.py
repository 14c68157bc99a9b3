import torch

from stages.algorithms.losses.preference.log_ratio_margin import finite, log_ratio_margin


def test_it_is_the_gain_of_the_chosen_over_the_gain_of_the_rejected():
    # (-4 + 5) - (-6 + 7) = 0 and (-1 + 3) - (-2 + 1) = 3.
    found = log_ratio_margin(
        torch.tensor([-4.0, -1.0]),
        torch.tensor([-6.0, -2.0]),
        torch.tensor([-5.0, -3.0]),
        torch.tensor([-7.0, -1.0]),
    )
    assert found.tolist() == [0.0, 3.0]


def test_infinities_become_the_largest_numbers_without_gradient_and_numbers_stay():
    values = torch.tensor([-torch.inf, -3.0, 1e30, torch.inf], requires_grad=True)
    bounded = finite(values)
    assert bounded.isfinite().all()
    assert bounded[1:3].tolist() == values[1:3].tolist()
    (0.0 * bounded).sum().backward()
    assert values.grad.tolist() == [0.0] * 4
