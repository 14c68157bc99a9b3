"""A sampler of numbers: prompt p's completions are worth what a table says."""

import torch
from stages.loops.group_sampling import dynamic, fixed

from stages.loops.rollouts import Rollouts
from stages.records.problems import Prompt
from stages.rewards.judged import Judged
from stages.sampler import Sample


def prompts(count):
    return [
        Prompt(id=f"p{i}", task="solve", question="", prompt="", prompt_ids=[i], answer="")
        for i in range(count)
    ]


class Game:
    """Sample j of prompt p has reward `table[p][j]`."""

    def __init__(self, table):
        self.table = table
        self.calls = []

    def draw(self, prompts, group_size):
        numbers = [prompt.prompt_ids[0] for prompt in prompts]
        self.calls.append(list(numbers))
        places = [(i, number, j) for i, number in enumerate(numbers) for j in range(group_size)]
        return Rollouts(
            prompts=prompts,
            groups=[i for i, _, _ in places],
            numbers=[j for _, _, j in places],
            samples=[
                Sample(token_ids=[number], logprobs=[0.0], finish_reason="stop")
                for _, number, _ in places
            ],
            texts=[str(self.table[number][j]) for _, number, j in places],
        )

    def judge(self, drawn):
        return Judged(
            totals=[float(text) for text in drawn.texts],
            step_rewards=torch.zeros(len(drawn.texts), 1 + len(self.calls)),
            step_ends=torch.ones(len(drawn.texts), 1 + len(self.calls), dtype=torch.bool),
        )


def every(drawn):
    return torch.ones(len(drawn.texts), dtype=torch.bool)


def test_fixed_sampling_takes_what_it_is_given():
    game = Game([[0, 1], [0, 0]])
    found = fixed(game.draw, game.judge, prompts(2), 2)
    assert game.calls == [[0, 1]]
    assert found.judged.rewards().tolist() == [0, 1, 0, 0]
    assert found.used.all()
    assert found.num_rounds == 1


def test_dynamic_sampling_refills_until_enough_groups_carry_signal():
    # prompts 0 and 3 have a signal, 5 has one too many: two are wanted
    game = Game([[0, 1], [1, 1], [0, 0], [1, 0], [0, 0], [0, 1]])
    found = dynamic(game.draw, game.judge, every, prompts(6), 2, 2, max_rounds=3)
    assert game.calls == [[0, 1], [2, 3]]
    assert found.num_rounds == 2
    assert len(found.judged.totals) == 8, "what was drawn in vain is there to be counted"
    used = [found.rollouts.prompt(i).id for i in range(8) if found.used[i]]
    assert used == ["p0", "p0", "p3", "p3"]


def test_dynamic_sampling_uses_the_first_groups_when_a_round_brings_too_many():
    game = Game([[0, 1], [1, 1], [0, 1], [1, 0]])
    found = dynamic(game.draw, game.judge, every, prompts(4), 2, 2, max_rounds=2)
    used = {found.rollouts.prompt(i).id for i in range(8) if found.used[i]}
    assert used == {"p0", "p2"}


def test_dynamic_sampling_is_bounded_and_goes_on_with_what_it_has():
    game = Game([[0, 0], [1, 1], [0, 0], [1, 0]])
    found = dynamic(game.draw, game.judge, every, prompts(4), 2, 2, max_rounds=2)
    assert len(game.calls) == 2
    assert found.used.tolist() == [*[False] * 6, True, True]
