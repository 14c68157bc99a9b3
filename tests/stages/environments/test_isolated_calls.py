"""Episodes that draw from global generators, stepped in turn."""

# ruff: noqa: NPY002

import asyncio
import random

import numpy as np
import pytest

from stages.environments.isolated_calls import IsolatedCalls


def draw():
    return random.random(), np.random.random()


async def draw_later():
    await asyncio.sleep(0)
    return draw()


def test_an_episode_draws_what_it_would_draw_alone():
    alone = IsolatedCalls(3)
    expected = [alone(draw) for _ in range(4)]
    first, second = IsolatedCalls(3), IsolatedCalls(4)
    drawn = []
    for index in range(4):
        drawn.append(first(draw_later if index % 2 else draw))
        assert second(draw) != drawn[-1]
        random.random(), np.random.random()
    assert drawn == expected


def test_the_generators_of_others_go_on_as_if_nothing_was_called():
    random.seed(5), np.random.seed(5)
    expected = [draw(), draw()]
    random.seed(5), np.random.seed(5)
    call = IsolatedCalls(0)
    drawn = [draw()]
    call(draw)
    with pytest.raises(ZeroDivisionError):
        call(lambda: draw() and 1 / 0)
    assert [*drawn, draw()] == expected


def test_seeds_of_63_bits_differ():
    assert IsolatedCalls(2**62)(draw) != IsolatedCalls(2**61)(draw)
