"""Adapters of environments with the real packages: episodes that are played twice, in turn."""

import json
import random
from types import SimpleNamespace

import pytest
from environments_installed import needs_environments

from stages.environments.catalogue import import_adapter, make_factory
from stages.environments.closing import finish_environment
from stages.environments.environment import Environment

GAMES = (
    "GuessTheNumber-v0", "TowerOfHanoi-v0", "Sudoku-v0", "Mastermind-v0", "Minesweeper-v0",
    "FrozenLake-v0", "Blackjack-v0", "Bandit-v0", "LightsOut-v0", "FifteenPuzzle-v0", "PegJump-v0",
    "Sokoban-v0", "RushHour-v0", "Crosswords-v0", "LogicPuzzle-v0", "Secretary-v0",
)  # fmt: skip
PROBLEM = {"id": "p", "question": "2+2?", "answer": "4", "message": "What is 2+2?"}


class Count:
    """A class of TRL's form: asynchronous in parts, and with a random start."""

    def reset(self, message, **_):
        self.value = random.randint(0, 10**9)
        return f" Start at {self.value}."

    async def get_reward(self):
        return float(self.value % 2 == 0)

    def add(self, step: int) -> int:
        """
        Adds to the counter.

        Args:
            step: What to add.
        """
        self.value += step + random.randint(0, 99)
        return self.value


class Guess:
    """A class of the form of Tinker's MessageEnv: it holds the conversation."""

    def __init__(self, row, largest):
        self.number, self.said = random.randint(1, largest), []

    async def initial_observation(self):
        self.said = [{"role": "user", "content": "Guess."}]
        return [*self.said]

    async def step(self, message):
        right = str(self.number) in message["content"]
        self.said = [*self.said, message, {"role": "user", "content": f"no {random.random()}"}]
        return SimpleNamespace(reward=float(right), episode_done=right, next_messages=self.said)


class Forgetful(Guess):
    """It shortens what was said."""

    async def step(self, message):
        result = await super().step(message)
        result.next_messages = result.next_messages[-1:]
        return result


def call(name, **arguments):
    function = {"name": name, "arguments": arguments}
    calls = [{"type": "function", "function": function}]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def say(text):
    return {"role": "assistant", "content": text}


def play(factory, replies, row=PROBLEM, seed=7):
    """Messages and tools of the start, then each reply of the environment until it is done."""
    environment = factory()
    assert isinstance(environment, Environment)
    log = [environment.start(row, seed)]
    yield log
    for message in replies:
        reply = environment.step(message)
        log.append((list(reply.messages), reply.reward, reply.done))
        yield log
        if reply.done:
            return


def play_three(factory, replies, row=PROBLEM):
    """The log of an episode, which is that of a second one stepped in turn, but not of another."""
    logs = [json.dumps(list(play(factory, replies, row))[-1])]
    for steps in zip(play(factory, replies, row), play(factory, replies, row), strict=True):
        random.random()
        assert steps[0] == steps[1]
    assert json.dumps(steps[0]) == logs[0]
    return steps[0]


def final(log):
    return log[-1][1:]


def test_every_kind_has_an_adapter():
    assert all(isinstance(import_adapter(kind), type) for kind in ("trl", "tinker"))
    with pytest.raises(ValueError, match="options"):
        make_factory("tinker", {})


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "textarena", None)
    monkeypatch.delitem(__import__("sys").modules, "stages.environments.textarena", raising=False)
    with pytest.raises(ValueError, match="environments"):
        make_factory("textarena", {"name": "Bandit-v0"})


def test_trl():
    factory = make_factory("trl", {}, Count)
    log = play_three(factory, [call("add", step=2), call("add", stop=2), call("ad"), say("done")])
    (start, tools), added, wrong, unknown, end = log
    assert start[0]["content"].startswith("What is 2+2? Start at ")
    assert [tool["function"]["name"] for tool in tools] == ["add"]
    assert int(added[0][0]["content"]) >= 2
    assert "stop" in wrong[0][0]["content"]
    assert "ad" in unknown[0][0]["content"]
    assert end[0] == []
    assert end[1] in (0.0, 1.0)
    assert end[2]


def test_trl_pays_for_an_episode_that_a_limit_ends():
    environment = make_factory("trl", {}, Count)()
    environment.start(PROBLEM, 7)
    reply = environment.step(call("add", step=2))
    assert (reply.reward, reply.done) == (0.0, False)
    even = int(reply.messages[0]["content"]) % 2 == 0
    assert finish_environment(environment) == float(even)


def test_tinker():
    factory = make_factory("tinker", {"largest": 1}, Guess)
    log = play_three(factory, [say("0"), say("0"), say("1")])
    assert log[0] == ([{"role": "user", "content": "Guess."}], None)
    assert [len(step[0]) for step in log[1:]] == [1, 1, 0]
    assert log[1] != log[2]
    assert final(log) == (1.0, True)


@pytest.mark.parametrize("observation", [None, "", ["Start."]])
def test_trl_starts_with_a_text(observation):
    class Silent(Count):
        def reset(self, **_):
            return observation

    with pytest.raises(ValueError, match="expected a text from reset, or None where rows have a"):
        make_factory("trl", {}, Silent)().start({"id": "train-0", "index": 0}, 7)
    if observation is None:
        (message,), _ = make_factory("trl", {}, Silent)().start(PROBLEM, 7)
        assert message["content"] == "What is 2+2?"


def test_tinker_refuses_a_message_that_was_changed_in_place():
    class Correcting(Guess):
        async def step(self, message):
            result = await super().step(message)
            message["content"] = "something else"
            return result

    with pytest.raises(ValueError, match="expected next_messages to begin with all that was said"):
        list(play(make_factory("tinker", {"largest": 9}, Correcting), [say("x"), say("x")]))


def test_tinker_refuses_a_conversation_that_was_rewritten():
    with pytest.raises(ValueError, match="next_messages"):
        list(play(make_factory("tinker", {"largest": 9}, Forgetful), [say("x"), say("x")]))


@needs_environments
def test_aviary():
    from aviary.core import DummyEnv

    class Story(DummyEnv):
        def __init__(self, row):
            super().__init__(task=row["question"], end_immediately=False)

    log = play_three(
        make_factory("aviary", {}, Story),
        [call("get_random_int"), say("hm"), call("nothing"), call("print_story", story="once")],
    )
    (start, tools), number, text, unknown, story = log
    assert start[0]["content"].endswith("2+2?")
    assert {tool["function"]["name"] for tool in tools} >= {"print_story", "cast_int"}
    assert tools[0]["function"]["parameters"]["required"] == ["story"]
    assert 1 <= int(number[0][0]["content"]) <= 10
    assert number[0][0]["tool_call_id"] == "call-1"
    assert "No tool calls" in text[0][0]["content"]
    assert unknown[0][0]["content"].startswith("Invalid")
    assert story[1:] == (1.0, False)


@needs_environments
@pytest.mark.parametrize(
    ("name", "replies", "expected"),
    [
        ("gsm8k", ["#### 4"], (1.0, True)),
        ("gsm8k", ["#### 5"], (0.0, True)),
        ("gsm8k_multi_turn", ["I think", "#### 4"], (1.0, True)),
    ],
)
def test_skyrl_gym(name, replies, expected):
    factory = make_factory("skyrl_gym", {"name": name, "extras": {"max_turns": 3}})
    log = play_three(factory, [say(text) for text in replies])
    assert log[0][0][-1]["content"] == "What is 2+2?"
    assert final(log) == expected


@needs_environments
def test_skyrl_gym_runs_no_code_of_a_model():
    with pytest.raises(ValueError, match="runs code"):
        make_factory("skyrl_gym", {"name": "lcb"})


@needs_environments
@pytest.mark.parametrize("name", GAMES)
def test_textarena(name):
    factory = make_factory("textarena", {"name": name})
    log = play_three(factory, [say(f"[{number}]") for number in (3, 4, 5, 6)])
    texts = [message["content"] for messages, *_ in log for message in messages]
    assert all(texts)
    assert len(set(texts[0])) > 10
    assert not any(text.startswith(texts[0]) for text in texts[1:])  # what is new alone


@needs_environments
def test_textarena_pays_for_a_number_that_is_guessed():
    factory = make_factory("textarena", {"name": "GuessTheNumber-v0"})
    rewards = [final(list(play(factory, [say(f"[{n}]")]))[-1]) for n in range(1, 21)]
    assert rewards.count((1.0, True)) == 1


@needs_environments
def test_textarena_refuses_games_of_two_and_unknown_ones():
    with pytest.raises(ValueError, match="one player"):
        list(play(make_factory("textarena", {"name": "TicTacToe-v0"}), []))
    with pytest.raises(ValueError, match="registered"):
        make_factory("textarena", {"name": "Chess960"})


@needs_environments
def test_reasoning_gym():
    families = {"chain_sum": {"min_terms": 2, "max_terms": 2}, "graph_color": {}}
    factory = make_factory("reasoning_gym", {"families": families})
    row = {"id": "train-4", "index": 4}
    (right,) = factory().demonstrate(row, 0)
    number = right["content"].removeprefix("#### ")
    for text, paid in {
        right["content"]: 1.0, f"so <answer>{number}</answer>": 1.0, number: 1.0,
        f"perhaps {number} or not": 0.0, "#### no": 0.0, "": 0.0,
    }.items():  # fmt: skip
        assert final(play_three(factory, [say(text)], row)) == (paid, True)
    partial = make_factory("reasoning_gym", {"families": families, "partial_credit": True})
    assert 0 < final(play_three(partial, [say(f"perhaps {number} or not")], row))[0] < 1
    other = factory().start({"id": "x", "index": 5}, 0)
    assert "color" in other[0][0]["content"]
    with pytest.raises(ValueError, match="graph_color"):
        factory().demonstrate({"id": "x", "index": 5}, 0)


@needs_environments
def test_reasoning_gym_puts_the_question_in_a_template_and_reads_the_last_number():
    families = {"chain_sum": {"min_terms": 2, "max_terms": 2, "min_digits": 4, "max_digits": 4}}
    row, template = {"id": "train-0", "index": 0}, "Q: {question}\nWrite one number."
    options = {"families": families, "template": template, "last_number": True}
    factory = make_factory("reasoning_gym", options)
    plain = make_factory("reasoning_gym", {"families": families})
    (question,), _ = plain().start(row, 0)
    assert factory().start(row, 0)[0][0]["content"] == template.replace(
        "{question}", question["content"]
    )
    (right,) = factory().demonstrate(row, 0)
    number = int(right["content"].removeprefix("#### "))
    for text, paid in {
        f"1 + 6 = {number} apples.": 1.0, f"The answer is {number} apples.": 1.0,
        f"It is {number:,}.": 1.0, f"<answer>{number} or 1</answer>": 0.0,
        f"#### {number}\nI have used 2 numbers": 1.0, f"{number} or 3": 0.0, "no": 0.0, "": 0.0,
    }.items():  # fmt: skip
        assert final(play_three(factory, [say(text)], row)) == (paid, True), text
    for refused, mentions in (
        (options | {"template": "Question"}, r"\{question\}"),
        (options | {"families": {"graph_color": {}}}, "last_number: .* numbers"),
        (options | {"families": {"fraction_simplification": {}}}, "last_number: .* none of them a"),
    ):
        with pytest.raises(ValueError, match=mentions):
            make_factory("reasoning_gym", refused)().start(row, 0)
