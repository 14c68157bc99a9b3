"""Surrogates and advantages of the user's own: what the loop relies on, and no more."""

import re
import sys

import pytest
import torch

import stages.algorithms.own as folder
from stages.algorithms.losses import surrogates
from stages.loops import own_method, rl
from stages.loops.method import Method

SURROGATE = """
import torch

def surrogate(logprobs, old_logprobs, advantages, mask):
    ratio = torch.exp(logprobs - old_logprobs)
    clipped = torch.clamp(ratio, 0.8, 1.2)
    losses = -torch.minimum(ratio * advantages, clipped * advantages)
    is_clipped = clipped * advantages < ratio * advantages
    return torch.where(mask, losses, 0.0), is_clipped & mask
"""
ADVANTAGE = """
import torch

def advantage(rewards, groups, *, counted):
    means = torch.stack([rewards[(groups == group) & counted].mean() for group in groups])
    return torch.where(counted, rewards - means, 0.0)
"""
WRONG = {
    "losses alone": (SURROGATE, "torch.where(mask, losses, 0.0), ", "", "clipped, found a Tensor"),
    "a sum": (SURROGATE, "torch.where(mask, losses, 0.0)", "losses.sum()", "[2, 4]"),
    "whole numbers": (SURROGATE, "is_clipped & mask", "(is_clipped & mask).int()", "int32"),
    "no gradient": (SURROGATE, "logprobs -", "logprobs.detach() -", "gradient into logprobs"),
    "infinite": (SURROGATE, "torch.exp(", "torch.log(", "infinity"),
    "outside of the mask": (SURROGATE, "torch.where(mask, losses, 0.0)", "losses", "mask"),
    "clipped outside": (SURROGATE, "is_clipped & mask", "is_clipped | ~mask", "mask"),
    "of the others": (SURROGATE, "losses, 0.0", "losses - advantages.mean(), 0.0", "other compl"),
    "an error": (SURROGATE, "0.8, 1.2", "1 / 0, 1.2", "ZeroDivisionError.*mine.py, line 6"),
    "an exit": (SURROGATE, "import torch\n", "import torch, sys\n", "sys.exit"),
    "another name": (SURROGATE, "def surrogate", "def loss", "no function `surrogate("),
    "of equal rewards": (ADVANTAGE, "rewards - means", "(rewards - means) / 0", "equal rewards"),
    "not counted": (ADVANTAGE, "counted, rewards - means", "rewards > 0, rewards", "not counted"),
    "by place": (ADVANTAGE, "rewards - means", "rewards - rewards[0]", "order"),
    "of a group": (ADVANTAGE, "0.0)\n", "0.0)[:1]\n", "[8]"),
}
"""What is replaced in which file, by what, and words of the refusal."""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """A file `mine.py` in the folder of own algorithms, as far as imports can tell."""
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    own_method.load.cache_clear()
    yield (tmp_path / "mine.py").write_text
    own_method.load.cache_clear()
    sys.modules.pop("stages.algorithms.own.mine", None)


def test_a_surrogate_of_the_users_is_the_built_in_one_with_its_formula(write):
    write(SURROGATE)
    chance = torch.Generator().manual_seed(1)
    grids = [torch.randn(3, 5, generator=chance) for _ in range(3)]
    mask = torch.rand(3, 5, generator=chance) < 0.7
    results = []
    for function in (
        lambda *inputs: rl.apply_choice("surrogate", Method(surrogate="own/mine"), *inputs),
        lambda *inputs: surrogates.clipped_surrogate(*inputs, low=0.2, high=0.2),
    ):
        inputs = [grid.clone().requires_grad_() for grid in grids]
        losses, is_clipped = function(*inputs, mask)
        losses.sum().backward()
        results.append([losses, is_clipped, inputs[0].grad])
        assert [grid.grad for grid in inputs[1:]] == [None, None]
    for mine, built_in in zip(*results, strict=True):
        assert torch.equal(mine, torch.where(mask, built_in, torch.zeros_like(built_in)))


def test_an_advantage_of_the_users_is_one_of_the_choice(write):
    write(ADVANTAGE)
    rewards, groups = torch.tensor([1.0, 0.0, 2.0, 5.0]), torch.tensor([3, 1, 3, 1])
    counted = torch.tensor([True, True, True, False])
    method = Method(advantage="own/mine")
    result = rl.apply_choice("advantage", method, rewards, groups, counted=counted)
    assert result.tolist() == [-0.5, 0.0, 0.5, 0.0]
    assert method.compares_completions()


@pytest.mark.parametrize("case", WRONG)
def test_what_the_loop_could_not_learn_with_is_refused(case, write):
    source, old, new, words = WRONG[case]
    text = source.replace(old, new, 1)
    assert text != source
    write(text + "sys.exit()\n" if case == "an exit" else text)
    choice = "surrogate" if source is SURROGATE else "advantage"
    pattern = words if ".*" in words else re.escape(words)
    with pytest.raises((ValueError, RuntimeError), match=pattern):
        own_method.load(choice, "mine")
