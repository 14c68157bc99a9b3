"""Shipped environments: demonstrations succeed, splits share nothing, 20 lines suffice."""

import ast
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stages.environments import own
from stages.environments.definition import load_own_class
from stages.environments.environment import Environment, Message
from stages.environments.own import calculator, guess_number, lookup, problem_file
from stages.environments.problem_draws import draw_problem
from stages.environments.tool_functions import write_call
from stages.models.model_tokenizer import train_tokenizer
from stages.models.turn_rendering import TurnRenderer

FOLDER = Path(own.__file__).parent
SPLITS = ("train", "dev", "test")


@pytest.fixture
def table(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "capitals.csv"
    rows = [f"Land {number},City {number}" for number in range(40)]
    path.write_text("\n".join(["country,capital", *rows]) + "\n")
    return {"path": str(path), "key": "country", "value": "capital"}


def play(environment: Environment, row: dict[str, Any], script: Sequence[Message]) -> float:
    """Sum of the rewards of a script that ends the episode."""
    environment.start(row, 0)
    replies = [environment.step(message) for message in script]
    assert [reply.done for reply in replies] == [False] * (len(script) - 1) + [True]
    assert all(reply.messages for reply in replies[:-1])
    return sum(reply.reward for reply in replies)


@pytest.mark.parametrize(
    ("name", "options", "num_turns"),
    [("calculator", {}, 2), ("calculator", {"largest": 4, "tools": False}, 1),
     ("guess_number", {}, 4), ("lookup", None, 2)],
)  # fmt: skip
def test_demonstrations_succeed_and_are_read_back(
    name: str, options: dict[str, Any] | None, num_turns: int, table: dict[str, str]
):
    make = load_own_class(name, ("start", "step"))
    options = table if options is None else options
    renderer = TurnRenderer(train_tokenizer(["What is 2?"], 700))
    for split in SPLITS:
        for number in range(8):
            row, environment = {"id": f"{split}-{number}"}, make(**options)
            script = make(**options).demonstrate(row, 3)
            assert len(script) <= num_turns
            assert play(environment, row, script) == 1.0
            start, tools = make(**options).start(row, 5)
            assert (start, tools) == environment.start(row, 3)
            for message in script:
                ids = renderer.render_reply(start, message, tools)
                assert renderer.read_reply(ids, tools) == message


def test_problems_of_a_file_are_those_at_the_index_and_the_last_number_counts(tmp_path: Path):
    path = tmp_path / "problems.jsonl"
    rows = [{"question": f"What is {number} + 1?", "answer": str(number + 1)} for number in (3, 4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"path": str(path), "template": "{question} Think."}
    (message,), tools = problem_file.ProblemFile(**options).start({"index": 1}, 0)
    assert (message["content"], tools) == ("What is 4 + 1? Think.", None)
    for text, reward in {"#### 5": 1, "It is 5.": 1, "5 or 6": 0, "": 0}.items():
        reply = [{"role": "assistant", "content": text}]
        assert play(problem_file.ProblemFile(**options), {"index": 1}, reply) == reward
    with pytest.raises(ValueError, match="expected 3 problems or more"):
        problem_file.ProblemFile(**options).start({"index": 2}, 0)


def test_wrong_answers_are_paid_nothing(table: dict[str, str]):
    row, wrong = {"id": "test-3"}, [{"role": "assistant", "content": "#### 5"}]
    assert play(calculator.Calculator(), row, wrong) == 0
    assert play(lookup.Lookup(**table), row, wrong) == 0
    game = guess_number.GuessNumber()
    game.start(row, 0)
    for guess, hint in (("1", "higher"), ("I say 15.", "lower"), ("nothing", "higher")):
        reply = game.step({"role": "assistant", "content": guess})
        assert (reply.messages[0]["content"], reply.reward, reply.done) == (hint, 0.0, False)


def test_results_of_products_are_small_and_numbers_positive():
    tasks = list[str]()
    for number in range(200):
        environment = calculator.Calculator(largest=4)
        ((message,), _) = environment.start({"id": f"train-{number}"}, 0)
        tasks.append(message["content"].partition(" =")[0])
    assert {int(calculator.calculate(task)) for task in tasks} == set(range(1, 21))
    forms = {re.sub(r"\d+", "n", task) for task in tasks}
    assert forms == {"n * n - n", "n * n + n"}


def test_a_share_of_demonstrations_answers_without_a_call():
    environment = calculator.Calculator(largest=12, guess_share=0.5)
    scripts = [environment.demonstrate({"id": "train-0"}, seed) for seed in range(100)]
    assert [len(script) for script in scripts].count(1) == 50
    assert play(environment, {"id": "train-0"}, scripts[0]) == 1.0


def test_tools_answer_wrong_calls():
    environment = calculator.Calculator()
    environment.start({"id": "train-0"}, 0)
    for call in (write_call("calculate", expression="2 ** 99"), write_call("calculate")):
        (result,) = environment.step(call).messages
        assert result["content"].startswith("error: ")


def test_splits_share_no_problem():
    numbers = range(1, 60)
    drawn = {
        split: {draw_problem({"id": f"{split}-{i}"}, numbers) for i in range(400)}
        for split in SPLITS
    }
    assert sum(map(len, drawn.values())) == len(set().union(*drawn.values())) == len(numbers)
    with pytest.raises(ValueError, match="too few"):
        draw_problem({"id": "test-0"}, drawn["train"].pop())
    with pytest.raises(ValueError, match="id begins with its split"):
        draw_problem({"id": "17"}, numbers)


def test_a_table_names_the_row_that_does_not_fit(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    for second, part in (({"a": "x", "b": 2}, "two rows"), ({"a": "y"}, "'a' and 'b'")):
        path.write_text("\n".join(map(json.dumps, ({"a": "x", "b": 1}, second))) + "\n")
        lookup.read_table.cache_clear()
        with pytest.raises(ValueError, match=f"row 2.*{part}"):
            lookup.Lookup(path=str(path), key="a", value="b")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_an_environment_has_20_lines_at_most(path: Path):
    """Beside docstrings and empty lines."""
    source, documented = path.read_text(), set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            documented |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(source.splitlines(), 1)
    assert sum(bool(line.strip()) for place, line in lines if place not in documented) <= 20
