"""What holds for every advantage, over random groups of any sizes, in any order.

Rewards are whole numbers and so are shifts: sums of them are exact, and a group of equal
rewards stays one of equal rewards.
"""

from dataclasses import dataclass, replace

import objective_choices
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_grids import examples
from tiny_rollouts import make_rollouts

from stages.loops.method import Method
from stages.loops.rl import compute_reward_advantages
from stages.rewards.completion_rewards import CompletionRewards

CHOICES = {
    "group_zscore": {"ddof": 1, "eps": 1e-4},
    "group_zscore ddof 0": {"ddof": 0, "eps": 1e-6},
    "group_centred": {},
    "mean_normalised": {"eps": 1e-6},
    "batch_std": {"ddof": 1, "eps": 1e-4},
    "leave_one_out": {},
    "greedy_baseline": {},
    "batch_whitened": {"gamma": 1.0, "whiten_eps": 1e-8},
    "batch_whitened gamma": {"gamma": 0.9, "whiten_eps": 1e-8},
    "step_zscore": {"step_weight": 1.0, "ddof": 1, "eps": 1e-4},
}
ADVANTAGES = {
    name: Method(advantage=name.split()[0], **numbers) for name, numbers in CHOICES.items()
}
BATCH_WIDE = {name for name in ADVANTAGES if name.startswith("batch")}
SHIFTED_WITH_ITS_GROUP = set(ADVANTAGES) - BATCH_WIDE
every_advantage = pytest.mark.parametrize("name", ADVANTAGES)


@dataclass(frozen=True)
class Drawn:
    rewards: torch.Tensor
    penalties: torch.Tensor
    mask: torch.Tensor
    groups: torch.Tensor
    counted: torch.Tensor
    greedy: torch.Tensor

    def rows(self, index: torch.Tensor) -> "Drawn":
        fields = self.__dataclass_fields__
        return Drawn(**{name: getattr(self, name)[index] for name in fields})

    def advantages(self, name: str) -> torch.Tensor:
        """Where rewards of steps are needed, half of each reward is paid at the first token.

        Halves of whole numbers are exact; `test_token_advantages` has steps anywhere.
        """
        lengths, longest = self.mask.sum(1), int(self.mask.sum(1).max())
        result = torch.zeros_like(self.penalties)
        penalties, steps, first = self.penalties[:, :longest], None, None
        if name == "mean_normalised":  # of rewards that are never negative
            penalties = 0 * penalties
        if name == "step_zscore":
            first = (torch.arange(longest) == 0).expand(len(self.rewards), -1)
            steps = torch.where(first, self.rewards[:, None] / 2, 0.0)
        rewards = self.rewards if steps is None else self.rewards / 2
        result[:, :longest] = compute_reward_advantages(
            ADVANTAGES[name],
            CompletionRewards(totals=rewards.tolist(), step_rewards=steps, step_ends=first),
            penalties,
            make_rollouts(lengths.tolist(), self.groups.tolist()),
            self.counted,
            self.greedy.float(),
        )
        return result


@pytest.fixture(autouse=True)
def _float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@st.composite
def completions(draw) -> Drawn:
    """Groups of 1 to 5 completions in any order, some not counted, with costs at their tokens."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    ids = draw(st.lists(st.integers(-3, 2**40), min_size=len(sizes), max_size=8, unique=True))
    of_group = torch.tensor([g for g, size in enumerate(sizes) for _ in range(size)])
    number = len(of_group)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))

    def integers(high: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, high, shape, generator=generator)

    lengths = 1 + integers(5, number)
    mask = torch.arange(5) < lengths[:, None]
    costs = draw(st.sampled_from([1, 3]), label="1: without penalties")
    order = torch.randperm(number, generator=generator)
    return Drawn(
        rewards=integers(draw(st.sampled_from([2, 9])), number).double()[order],
        penalties=(integers(costs, number, 5) * mask).double()[order],
        mask=mask[order],
        groups=torch.tensor(ids)[of_group][order],
        counted=(integers(4, number) > 0)[order],
        greedy=integers(3, len(sizes)).double()[of_group][order],
    )


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_no_advantage_is_left_out_here():
    elsewhere = {"gae", "teacher"}  # no function of rewards alone
    assert {name.split()[0] for name in CHOICES} == objective_choices.kinds("advantage") - elsewhere


@every_advantage
@examples(15)
@given(data=st.data(), drawn=completions())
def test_the_order_of_completions_and_groups_and_the_groups_ids_do_not_matter(name, data, drawn):
    expected = drawn.advantages(name)
    order = torch.tensor(data.draw(st.permutations(range(len(drawn.groups)))))
    close(drawn.rows(order).advantages(name), expected[order])
    labels = data.draw(st.permutations(range(9)))
    places = drawn.groups.unique(return_inverse=True)[1]
    close(replace(drawn, groups=torch.tensor(labels)[places]).advantages(name), expected)


@every_advantage
@examples(15)
@given(drawn=completions())
def test_only_counted_completions_and_their_own_tokens_get_one(name, drawn):
    result = drawn.advantages(name)
    assert result.isfinite().all()
    assert (result[~drawn.mask] == 0).all()
    assert (result[~drawn.counted] == 0).all()
    elsewhere = torch.where(drawn.counted, drawn.rewards, 1e6)
    close(replace(drawn, rewards=elsewhere).advantages(name), result)


@every_advantage
@examples(15)
@given(drawn=completions(), shift=st.integers(-50, 50))
def test_a_constant_for_each_prompt_cancels(name, drawn, shift):
    if name == "mean_normalised":
        pytest.skip("what is divided by the mean changes with it")
    if name == "batch_whitened gamma":
        pytest.skip("a discounted constant is worth less to early tokens: no constant")
    shifts = torch.full_like(drawn.rewards, shift)
    if name in SHIFTED_WITH_ITS_GROUP:
        shifts = shifts * drawn.groups.unique(return_inverse=True)[1]
    shifted = replace(drawn, rewards=drawn.rewards + shifts, greedy=drawn.greedy + shifts)
    close(shifted.advantages(name), drawn.advantages(name))


@every_advantage
@examples(15)
@given(drawn=completions(), value=st.sampled_from([0.1, 1.0, 1e8, 1 / 3, -7.7]))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_rewards_give_exactly_0(name, drawn, value, dtype):
    torch.set_default_dtype(dtype)
    same = torch.full_like(drawn.rewards, value, dtype=dtype)
    if name == "mean_normalised":
        same = same.abs()
    drawn = replace(drawn, rewards=same, greedy=same, penalties=0 * drawn.penalties.to(dtype))
    if name == "batch_whitened gamma":
        pytest.skip("discounted, equal rewards are not equal at early and late tokens")
    assert (drawn.advantages(name) == 0).all()


@every_advantage
@examples(15)
@given(drawn=completions())
def test_a_prompts_only_completion_has_no_baseline_and_an_empty_batch_no_advantage(name, drawn):
    nobody = replace(drawn, counted=torch.zeros_like(drawn.counted))
    assert (nobody.advantages(name) == 0).all()
    alone = replace(drawn, groups=torch.arange(len(drawn.groups)))
    result = alone.advantages(name)
    assert result.isfinite().all()
    if name in SHIFTED_WITH_ITS_GROUP - {"greedy_baseline"} or name == "batch_std":
        assert (result == 0).all()


@pytest.mark.parametrize("name", sorted(SHIFTED_WITH_ITS_GROUP))
@examples(15)
@given(drawn=completions())
def test_a_group_gets_what_it_would_get_alone(name, drawn):
    result = drawn.advantages(name)
    for group in drawn.groups.unique():
        rows = (drawn.groups == group).nonzero()[:, 0]
        close(drawn.rows(rows).advantages(name), result[rows])


@every_advantage
@examples(15)
@given(drawn=completions())
def test_within_a_group_a_better_completion_never_gets_less(name, drawn):
    drawn = replace(drawn, penalties=0 * drawn.penalties[:, :1], mask=drawn.mask[:, :1])
    result = drawn.advantages(name)[:, 0]
    same = (drawn.groups[:, None] == drawn.groups) & drawn.counted & drawn.counted[:, None]
    better = same & (drawn.rewards[:, None] > drawn.rewards)
    assert (result[:, None] >= result)[better].all()
