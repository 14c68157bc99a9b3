"""Each kind of environment, shipped or of a package: episodes, tools, problems and their digests.

`EPISODES` has a script for each kind of `definition.Kind`; whoever adds a kind adds a row.
"""

import json
import random
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_args

import pytest
from environments_installed import needs_environments
from ruamel.yaml import YAML

from stages.environments import definition, own, trl
from stages.environments.arithmetic import calculate
from stages.environments.catalogue import make_factory
from stages.environments.closing import finish_environment
from stages.environments.environment import Environment
from stages.environments.limits import EpisodeLimits
from stages.environments.own import calculator, guess_number, lookup, problem_file
from stages.environments.problem_digest import digest_problem
from stages.environments.problem_draws import draw_problem
from stages.environments.replay import replay_together
from stages.environments.scripts import play_script
from stages.environments.tool_functions import Tools, write_call
from stages.models.model_tokenizer import train_tokenizer
from stages.models.turn_rendering import TurnRenderer
from stages.records.conversations import split_exchanges
from stages.records.episodes import FAILED

CASES: Any = YAML(typ="safe").load(Path(__file__).with_name("cases.yaml"))
LARGE = {"9" * 99 + "*" + "9" * 99: str((10**99 - 1) ** 2), "1 " * 150: None, "()" * 100: None}


@pytest.mark.parametrize(("expression", "result"), (CASES["arithmetic"] | LARGE).items())
def test_arithmetic_is_exact_and_nothing_else_is_computed(expression, result):
    if result is not None:
        assert calculate(expression) == result
        return
    with pytest.raises(ValueError, match="zero" if "/ (2 - 2)" in expression else "expected"):
        calculate(expression)


# --- tools


def add(a: int, b: float = 1.0, unit: Literal["m", "s"] | None = None) -> dict[str, Any]:
    """Adds two numbers.

    Args:
        a: The first.
        b: The second.
        unit: Of both.
    """
    if a in (13, 14):
        raise ValueError("unlucky") if a == 13 else KeyError("14")
    return {"sum": a + b, "unit": unit}


@pytest.mark.parametrize(("arguments", "words"), CASES["tools"])
def test_a_call_is_answered_with_its_result_or_what_does_not_fit(arguments, words):
    (result,) = Tools(add).answer(write_call("add", **arguments))
    text = result.pop("content")
    assert [word for word in words if word not in text] == []
    assert text.startswith("error: ") == ("error" in result) == (not words[0].startswith("{"))
    assert result.pop("error", text) == text.removeprefix("error: ")
    assert result == {"role": "tool", "name": "add", "tool_call_id": "call00000"}


def test_calls_are_answered_in_order_and_other_errors_are_failures():
    calls = [write_call("add", a=number)["tool_calls"][0] for number in (2, 3)]
    results = Tools(add).answer({"tool_calls": calls})
    assert [json.loads(result["content"])["sum"] for result in results] == [3.0, 4.0]
    assert Tools(add).answer({"role": "assistant", "content": "2"}) == []
    with pytest.raises(KeyError):
        Tools(add).answer(write_call("add", a=14))


def starred(*numbers: int) -> int:
    """Adds.

    Args:
        numbers: A.
    """
    return sum(numbers)


async def waiting() -> int:
    """Waits."""
    return 1


@pytest.mark.parametrize(("function", "word"), [(starred, r"\*numbers"), (waiting, "async def")])
def test_a_function_that_no_call_can_fit_is_refused(function, word):
    with pytest.raises(ValueError, match=f"tool {function.__name__}: .*{word}"):
        Tools(function)


# --- shipped environments

SPLITS = ("train", "dev", "test")
SHIPPED: dict[str, dict[str, Any]] = CASES["shipped"]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [f"Land {number},City {number}" for number in range(40)]
    Path("capitals.csv").write_text("\n".join(["country,capital", *rows]) + "\n")
    problems = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in (3, 4)]
    Path("problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in problems))
    lookup.read_table.cache_clear()
    return tmp_path


def say(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def test_every_shipped_environment_has_its_row():
    paths = Path(own.__file__).parent.glob("[a-z]*.py")
    assert {path.stem for path in paths} == SHIPPED.keys()


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(("name", "changes", "num_turns"), CASES["demonstrations"])
def test_a_demonstration_succeeds_and_is_read_back(name, changes, num_turns, split, folder):
    options = SHIPPED[name] | changes
    make: Any = partial(definition.load_own_class(name, ("start", "step")), **options)
    renderer = TurnRenderer(train_tokenizer(["What is 2?"], 700))
    for number in range(6):
        row, environment = {"id": f"{split}-{number}"}, make()
        script = make().demonstrate(row, 3)
        start, tools = environment.start(row, 3)
        assert (start, tools) == make().start(row, 5)
        replies = [environment.step(message) for message in script]
        ends = [(bool(reply.messages), reply.reward, reply.done) for reply in replies]
        assert ends == [(True, 0.0, False)] * (len(script) - 1) + [(False, 1.0, True)]
        assert len(script) <= num_turns
        for message in script:
            ids = renderer.render_reply(start, message, tools)
            assert renderer.read_reply(ids, tools) == message


@pytest.mark.parametrize(("name", "text", "expected"), CASES["replies"])
def test_an_answer_is_paid_or_gets_a_hint(name, text, expected, folder):
    row, options = {"id": "test-3", "index": 1}, SHIPPED[name]
    environment: Any = definition.load_own_class(name, ("start", "step"))(**options)
    environment.start(row, 0)
    reply = environment.step(say(text))
    hints = [message["content"] for message in reply.messages]
    assert (hints, reply.done) == (([expected], False) if isinstance(expected, str) else ([], True))
    assert reply.reward == (0 if isinstance(expected, str) else expected)


def test_a_problem_of_a_file_is_that_at_the_index(folder):
    make = partial(problem_file.ProblemFile, **SHIPPED["problem_file"])
    (message,), tools = make().start({"index": 1}, 0)
    assert (message["content"], tools) == ("What is 4 + 1? Think.", None)
    with pytest.raises(ValueError, match="3 problems"):
        make().start({"index": 2}, 0)


def test_results_of_products_are_small_and_a_share_is_guessed():
    rows = [{"id": f"train-{number}"} for number in range(200)]
    messages = [calculator.Calculator(largest=4).start(row, 0)[0][0]["content"] for row in rows]
    tasks = [message.partition(" =")[0] for message in messages]
    assert {int(calculate(task)) for task in tasks} == {*range(1, 21)}
    assert {re.sub(r"\d+", "n", task) for task in tasks} == {"n * n - n", "n * n + n"}
    environment = calculator.Calculator(guess_share=0.5)
    scripts = [environment.demonstrate(rows[0], seed) for seed in range(100)]
    assert [len(script) for script in scripts].count(1) == 50


def test_splits_share_no_problem():
    numbers = range(1, 60)
    drawn = {
        split: {draw_problem({"id": f"{split}-{i}"}, numbers) for i in range(400)}
        for split in SPLITS
    }
    assert sum(map(len, drawn.values())) == len(set().union(*drawn.values())) == len(numbers)
    for row, parts, word in (("test-0", drawn["train"].pop(), "test"), ("17", numbers, "17")):
        with pytest.raises(ValueError, match=word):
            draw_problem({"id": row}, parts)


@pytest.mark.parametrize(("second", "words"), CASES["tables_refused"])
def test_a_table_names_the_row_that_does_not_fit(tmp_path, second, words):
    first, path = {"a": "x", "b": 1}, tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, (first, second))) + "\n")
    with pytest.raises(ValueError, match=f"row 2.*{words}"):
        lookup.Lookup(path=str(path), key="a", value="b")
    path = tmp_path / "same.jsonl"  # the same value of two names
    path.write_text("\n".join(json.dumps(first | {"a": name}) for name in "xy1"))
    assert lookup.read_table(str(path), "a", "b").texts == {"x": "1", "y": "1", "1": "1"}


# --- digests of problems


class Hidden:
    """A number to guess, drawn by the seed, without a demonstration."""

    def start(self, row: Any, seed: int) -> Any:
        return [{"role": "user", "content": "Guess."}], None


def digest(factory: Callable[[], Any], rows: Any, seed: int = 7) -> list[str]:
    return [digest_problem(factory, row, seed, 5.0) for row in rows]


def test_starts_of_the_same_problem_have_the_same_digest():
    rows = [{"id": f"train-{at}", "index": at} for at in range(12)]
    environment, numbers = guess_number.GuessNumber(), list[int]()
    for row in rows:
        environment.start(row, 7)
        numbers.append(environment.number)
    digests = digest(guess_number.GuessNumber, rows)  # its demonstration shows the number
    assert len({*numbers}) == len({*digests}) == len({*zip(numbers, digests, strict=True)}) < 12
    assert digest(guess_number.GuessNumber, rows, seed=8) == digests
    problems = [{"id": f"{at}", "question": f"{at % 3}", "answer": "1"} for at in range(6)]
    numbers_of = [(calculator.Calculator, rows), (Hidden, rows), (Hidden, problems)]
    assert [len({*digest(*each)}) for each in numbers_of] == [12, 12, 3]
    assert digest(Hidden, rows) != digest(Hidden, rows, seed=8)


# --- environments of packages, and of the shape of theirs

PROBLEM = {"id": "p", "question": "2+2?", "answer": "4", "message": "What is 2+2?"}


class Count:
    """A class of TRL's form: asynchronous in parts, and with a random start."""

    def reset(self, **_: Any) -> Any:
        self.value = random.randint(0, 10**9)
        return f" Start at {self.value}."

    async def get_reward(self) -> float:
        return float(self.value % 2 == 0)

    def add(self, step: int) -> int:
        """Adds to the counter.

        Args:
            step: What to add.
        """
        self.value += step + random.randint(0, 99)
        return self.value


class Talk:
    """A class of the form of Tinker's MessageEnv: it holds the conversation."""

    def __init__(self, row: Any, largest: int) -> None:
        self.number, self.history = random.randint(1, largest), list[Any]()

    async def initial_observation(self) -> Any:
        self.history = [{"role": "user", "content": "Guess."}]
        return [*self.history]

    async def step(self, message: Any) -> Any:
        right = str(self.number) in message["content"]
        answer = {"role": "user", "content": f"no {random.random()}", "images": []}
        self.history = [*self.history, message, answer]
        return SimpleNamespace(reward=float(right), episode_done=right, next_messages=self.history)


def play(factory: Any, replies: Any, row: Any = PROBLEM) -> list[Any]:
    """The start with its tools, then each answer, of an episode that can be played in turns."""
    assert isinstance(factory(), Environment)
    limits = EpisodeLimits(max_turns=9, max_tool_calls=9)
    episode = play_script(factory(), row, 7, limits, [*replies])
    assert replay_together(factory, [(episode, row)] * 2) == [None, None]
    if episode.ending == FAILED:
        raise ValueError(episode.error)
    start, *answers = (answer for _, answer in split_exchanges(episode))
    ends = [False] * (len(answers) - 1) + [episode.ending == "done"]
    return [(start, episode.tools), *zip(answers, episode.rewards, ends, strict=True)]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return write_call(name, **arguments) | {"tool_calls": [
        {"type": "function", "function": {"name": name, "arguments": arguments}}]}  # fmt: skip


def test_a_class_of_trl_has_its_methods_as_tools_and_pays_at_the_end(caplog):
    trl._logged.clear()
    factory = make_factory("trl", {}, Count)
    replies = [call("add", step=2), call("add", stop=2), call("ad"), say("done")]
    (start, tools), added, wrong, unknown, end = play(factory, replies)
    assert start[0]["content"].startswith("What is 2+2? Start at ")
    assert [tool["function"]["name"] for tool in tools] == ["add"]
    value, *errors = (reply[0][0]["content"] for reply in (added, wrong, unknown))
    assert "stop" in errors[0]
    assert errors[1] == str({"error": "there is no tool 'ad'; there is add"})
    assert ["error" in reply[0][0] for reply in (added, wrong, unknown)] == [False, True, True]
    assert sum("the policy reads why" in line for line in caplog.messages) == 2  # of four plays
    assert end == ([], float(int(value) % 2 == 0), True)
    environment = factory()
    environment.start(PROBLEM, 7)
    (answer,) = environment.step(replies[0]).messages
    assert finish_environment(environment) == float(int(answer["content"]) % 2 == 0)


@pytest.mark.parametrize("observation", [None, "", ["Start."]])
def test_a_class_of_trl_starts_with_a_text(observation):
    silent = type("Silent", (Count,), {"reset": lambda _, **__: observation})
    with pytest.raises(ValueError, match="reset"):
        make_factory("trl", {}, silent)().start({"id": "train-0", "index": 0}, 7)
    if observation is None:
        (message,), _ = make_factory("trl", {}, silent)().start(PROBLEM, 7)
        assert message["content"] == "What is 2+2?"


def test_a_class_of_tinker_goes_on_with_its_conversation():
    factory = make_factory("tinker", {"largest": 1}, Talk)
    start, first, second, end = play(factory, [say("0"), say("0"), say("1")])
    assert start == ([{"role": "user", "content": "Guess."}], None)
    assert (len(first[0]), len(second[0]), first == second) == (1, 1, False)
    assert end == ([], 1.0, True)
    environment = factory()
    environment.start(PROBLEM, 7)
    (answer,) = environment.step(say("0")).messages
    answer["content"] = "what is done to a reply does not change what was said"
    assert environment.step(say("0")).messages


@pytest.mark.parametrize("change", [
    lambda result, message: message.update(content="something else"),
    lambda result, message: vars(result).update(next_messages=result.next_messages[-1:]),
    lambda result, message: result.next_messages[3:] and (
        result.next_messages[2]["images"].append("a.png")),
])  # fmt: skip
def test_a_class_of_tinker_that_rewrites_its_conversation_is_refused(change):
    class Rewriting(Talk):
        async def step(self, message: Any) -> Any:
            result = await super().step(message)
            change(result, message)
            return result

    with pytest.raises(ValueError, match="next_messages"):
        play(make_factory("tinker", {"largest": 9}, Rewriting), [say("x"), say("x")])


def test_wrong_options_and_a_missing_package_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "textarena", None)
    monkeypatch.delitem(sys.modules, "stages.environments.textarena", raising=False)
    for kind, options in (("tinker", {}), ("chess", {}), ("textarena", {"name": "Bandit-v0"})):
        with pytest.raises(ValueError, match=kind):
            make_factory(kind, options)


def make_story(row: Any, **options: Any) -> Any:
    from aviary.core import DummyEnv  # pyright: ignore

    class Story(DummyEnv):
        async def step(self, action: Any) -> Any:
            messages, reward, done, truncated = await super().step(action)
            return messages, reward, done, truncated or options.get("truncated", False)

    return Story(task=row["question"], end_immediately=False)


START = PROBLEM | {"id": "train-4", "index": 4}


def test_every_kind_has_its_episodes():
    kinds = {case["kind"] for case in CASES["episodes"]}
    assert kinds | {"own", "trl", "tinker"} == {*get_args(definition.Kind)}


@needs_environments
@pytest.mark.parametrize("case", CASES["episodes"], ids=lambda case: f"{case['options']}")
def test_an_episode_of_a_package_can_be_replayed(case):
    make = (make_story,) if case["kind"] == "aviary" else ()
    factory = make_factory(case["kind"], case["options"], *make)
    log = play(factory, map(say, case["says"]), START)
    if "pays" in case:
        assert log[-1][1:] == (case["pays"], True)
    texts = [message["content"] for messages, *_ in log for message in messages]
    assert len({*texts[0]}) > 3
    assert not any(text.startswith(texts[0]) for text in texts[1:])  # what is new alone


@needs_environments
def test_an_environment_of_aviary_has_its_tools():
    replies = [call("get_random_int"), say("hm"), call("nothing"), call("print_story", story="a")]
    log = play(make_factory("aviary", {}, make_story), replies)
    (start, tools), number, text, unknown, story = log
    assert start[0]["content"].endswith("2+2?")
    assert {tool["function"]["name"] for tool in tools} >= {"print_story", "cast_int"}
    assert tools[0]["function"]["parameters"]["required"] == ["story"]
    assert 1 <= int(number[0][0]["content"]) <= 10
    assert number[0][0]["tool_call_id"] == "call-1"
    assert text[0]
    assert unknown[0][0]["content"].startswith("Invalid")
    assert story[1:] == (1.0, False)


@needs_environments
def test_a_game_pays_for_its_number_alone():
    factory = make_factory("textarena", {"name": "GuessTheNumber-v0"})
    rewards = [play(factory, [say(f"[{n}]")])[-1][1:] for n in range(1, 21)]
    assert rewards.count((1.0, True)) == 1


@needs_environments
@pytest.mark.parametrize(("options", "text", "paid"), CASES["sums"])
def test_reasoning_gym_pays_the_stored_answer_in_each_form(options, text, paid):
    """`<n>` is the answer, `<n,>` with commas."""
    factory: Any = make_factory("reasoning_gym", options)
    number = factory().demonstrate(START, 0)[0]["content"].removeprefix("#### ")
    text = text.replace("<n>", number).replace("<n,>", f"{int(number):,}")
    assert play(factory, [say(text)], START)[-1][1:] == (pytest.approx(paid), True)
    plain: Any = make_factory("reasoning_gym", {"families": options["families"]})
    (question,), (shown,) = (make().start(START, 0)[0] for make in (plain, factory))
    template = options.get("template", "{question}")
    assert shown["content"] == template.replace("{question}", question["content"])


@needs_environments
@pytest.mark.parametrize(("kind", "options", "row", "words"), CASES["packages_refused"])
def test_what_a_package_cannot_play_is_refused_by_name(kind, options, row, words):
    def begin(environment: Any) -> Any:
        return environment.start(PROBLEM | row, 0), environment.demonstrate(PROBLEM | row, 0)

    with pytest.raises(ValueError, match=words):
        begin(make_factory(kind, options)())
