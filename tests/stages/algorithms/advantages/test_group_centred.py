import torch

from stages.algorithms.advantages.group_centred import group_centred


def test_hand_worked_numbers():
    # 1.5, 1, 0, 0 have mean 0.625; 2 and 4 have mean 3.
    rewards = torch.tensor([1.5, 2.0, 1.0, 0.0, 4.0, 0.0], dtype=torch.float64)
    groups = torch.tensor([7, 3, 7, 7, 3, 7])
    found = group_centred(rewards, groups, counted=torch.ones(6, dtype=torch.bool))
    assert found.tolist() == [0.875, -1.0, 0.375, -0.625, 1.0, -0.625]
