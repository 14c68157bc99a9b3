"""Which starts pose the same problem."""

from collections.abc import Callable
from typing import Any

from stages.environments.own import calculator, guess_number
from stages.environments.problem_digest import digest_problem

ROWS = [{"id": f"train-{at}", "index": at} for at in range(12)]


class Hidden:
    """A number to guess, drawn by the seed, without a demonstration."""

    def start(self, row: Any, seed: int) -> tuple[list[dict[str, str]], None]:
        return [{"role": "user", "content": "Guess."}], None


def digest(factory: Callable[[], Any], rows: list[dict[str, Any]], seed: int = 7) -> list[str]:
    return [digest_problem(factory, row, seed, 5.0) for row in rows]


def test_a_hidden_problem_is_seen_by_its_demonstration() -> None:
    environment, numbers = guess_number.GuessNumber(), list[int]()
    for row in ROWS:
        environment.start(row, 7)
        numbers.append(environment.number)
    digests = digest(guess_number.GuessNumber, ROWS)
    assert len(set(numbers)) == len(set(digests)) == len(set(zip(numbers, digests, strict=True)))
    assert len(set(numbers)) < len(ROWS)
    assert digest(guess_number.GuessNumber, ROWS, seed=8) == digests
    assert len(set(digest(calculator.Calculator, ROWS))) == len(ROWS)


def test_without_it_by_the_row_or_not_at_all() -> None:
    assert len(set(digest(Hidden, ROWS))) == len(ROWS)
    problems = [{"id": f"{at}", "question": f"{at % 3}", "answer": "1"} for at in range(6)]
    assert len(set(digest(Hidden, problems))) == 3
