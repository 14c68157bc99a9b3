import pytest
import torch

from stages.algorithms.soft_overlong import soft_overlong


def test_hand_worked_numbers():
    # From 100 - 20 = 80 on: (80 - 85) / 20 = -0.25, (80 - 100) / 20 = -1, and no further.
    lengths = torch.tensor([0, 79, 80, 85, 99, 100, 101, 10_000])
    found = soft_overlong(lengths, max_length=100, buffer=20)
    assert found.tolist() == pytest.approx([0.0, 0.0, 0.0, -0.25, -0.95, -1.0, -1.0, -1.0])


def test_a_buffer_of_all_lengths_penalises_from_the_first_token_on():
    found = soft_overlong(torch.tensor([0, 1, 4]), max_length=4, buffer=4)
    assert found.tolist() == [0.0, -0.25, -1.0]


def test_a_longer_completion_is_never_penalised_less():
    found = soft_overlong(torch.arange(200), max_length=100, buffer=37)
    assert (found.diff() <= 0).all()


@pytest.mark.parametrize("buffer", [0, -1, 101])
def test_a_buffer_that_does_not_fit_is_refused(buffer):
    with pytest.raises(ValueError, match="expected a buffer from 1 to max_length 100"):
        soft_overlong(torch.tensor([5]), max_length=100, buffer=buffer)


def test_no_completion_gives_nothing():
    assert soft_overlong(torch.tensor([], dtype=torch.long), max_length=9, buffer=3).shape == (0,)
