"""Guess a number: the answer is `higher` or `lower` until it is right.

Options: `highest`, the largest number; with 15, four guesses are enough for any number.
"""

import re

from stages.environments.environment import Message, Reply, Row, Start, write_message
from stages.environments.problem_draws import draw_problem


class GuessNumber:
    """A number to guess."""

    def __init__(self, *, highest: int = 15) -> None:
        self.numbers = range(1, highest + 1)

    def start(self, row: Row, seed: int) -> Start:
        """First message; the number depends only on the row."""
        (self.number,) = draw_problem(row, self.numbers)
        return [write_message("user", f"Guess a number from 1 to {self.numbers[-1]}.")], None

    def step(self, message: Message) -> Reply:
        """Reward 1 for the number, which ends the game; else a hint."""
        if (guess := int([0, *re.findall(r"[0-9]{1,9}", message["content"])][-1])) == self.number:
            return Reply(reward=1.0, done=True)
        return Reply(messages=[write_message("user", "higher" if guess < self.number else "lower")])

    def demonstrate(self, row: Row, seed: int) -> list[Message]:
        """Guesses by bisection."""
        self.start(row, seed)
        guesses, numbers = [0], list(self.numbers)
        while guesses[-1] != self.number:
            guesses.append(numbers[len(numbers) // 2])
            numbers = [n for n in numbers if (n < guesses[-1]) == (self.number < guesses[-1])]
        return [write_message("assistant", str(guess)) for guess in guesses[1:]]
