"""What an environment returns, how its episodes are played, closed and limited, and its definition.

A rule of an episode is a test over `Guess`; what no method may return is in cases.yaml.
"""

import argparse
import asyncio
import json
import random
import re
import signal
import threading
import time
from asyncio import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

from stages import own_modules
from stages.environments import definition, own, scripts
from stages.environments.checks import check_replay
from stages.environments.closing import close_environment
from stages.environments.definition import EnvironmentFile, EnvironmentPreset
from stages.environments.environment import MAX_REWARD, Reply, check_reply, check_start
from stages.environments.isolated_calls import IsolatedCalls
from stages.environments.limits import EpisodeLimits
from stages.environments.time_limit import TimeLimitError, call_within
from stages.environments.tool_functions import write_call
from stages.own_modules import describe_error
from stages.runtime.process import Stopped

CASES: Any = YAML(typ="safe").load(Path(__file__).with_name("cases.yaml"))
ASKED = {"role": "user", "content": "Guess."}
ROW = {"id": "a", "secret": 2}
SIZES = {"train": 2, "dev": 1, "test": 1}
NUMBER = {"number": {"type": "integer"}, "why": {"type": "string"}}
TOOL = {"type": "function", "function": {"name": "guess", "parameters": {"properties": NUMBER}}}


class Guess:
    """Pays 1 for the secret number, -0.25 for another; its demonstration counts up to it."""

    def start(self, row, seed: int):
        self.secret = row["secret"]
        return [{"role": "user", "content": "Guess."}], [TOOL]

    def demonstrate(self, row, seed: int):
        numbers = range(1, row["secret"] + 1)
        return [{"role": "assistant", "content": f"{number}"} for number in numbers]

    def step(self, message):
        if message["content"] == f"{self.secret}":
            return Reply(reward=1.0, done=True)
        return Reply(messages=({"role": "user", "content": "no"},), reward=-0.25)


def make(**methods):
    """`Guess` with other methods."""
    return type("Other", (Guess,), methods)


def preset(**changes) -> EnvironmentPreset:
    return EnvironmentPreset.model_validate({"starts": SIZES, "success_reward": 0.75, **changes})


def play(environment, secret: int = 2, **changes):
    """The episode of the demonstration."""
    row = {"id": "a", "secret": secret}
    script = scripts.demonstrate(Guess(), row, 7)
    return scripts.play_script(environment, row, 7, preset(**changes), script)


@pytest.mark.parametrize(("method", "value", "word"), CASES["refused"])
def test_a_value_of_another_form_is_refused(method, value, word):
    value = json.loads(value) if isinstance(value, str) else value
    value = Reply(**value) if method == "step" and value is not None else value
    with pytest.raises(ValueError, match=f"{method}.*{word}") as error:
        check_replay(make(**{method: lambda *_: value}), [ROW], preset(), 0)
    assert method == "demonstrate" or f"{method} of row 'a'" in str(error.value)


def test_what_is_checked_is_a_copy_as_json_has_it():
    message = {"role": "user", "content": ("a", {"b": 1})}
    assert check_start(((message,), [])) == ([{"role": "user", "content": ["a", {"b": 1}]}], None)
    reply = check_reply(Reply(reward=np.int64(2) == 2, done=np.bool_(True)))  # pyright: ignore
    assert (reply.reward, reply.done) == (1.0, True)
    assert check_reply(Reply(reward=-MAX_REWARD, done=True)).reward == -MAX_REWARD
    for reward in (float("nan"), float("inf"), MAX_REWARD * 1.001, "1", None):
        with pytest.raises(ValueError, match="reward"):
            check_reply(Reply(reward=reward, done=True))  # pyright: ignore


# --- episodes


def test_a_demonstration_is_an_episode():
    episode = play(Guess())
    assert [message["content"] for message in episode.messages] == ["Guess.", "1", "no", "2"]
    assert (episode.rewards, episode.reward, episode.success) == ([-0.25, 1.0], 0.75, True)
    assert (episode.ending, episode.num_start_messages, episode.env_seed) == ("done", 1, 7)
    assert (episode.tools, episode.error) == ([TOOL], None)


@pytest.mark.parametrize(("most", "ending", "turns"), [(0, "tool_calls", 0), (1, "turns", 4)])
def test_canned_replies_call_each_tool_once_within_the_limit(most, ending, turns):
    first, second = scripts.make_canned_replies([TOOL], 2)
    (call,) = first["tool_calls"]
    assert call["function"] == {"name": "guess", "arguments": {"number": 1, "why": "1"}}
    assert "tool_calls" not in second
    row = {"id": "a", "secret": 9}
    episode = scripts.play_script(Guess(), row, 7, preset(max_tool_calls=most))
    assert (episode.ending, len(episode.rewards)) == (ending, turns)


def test_a_demonstration_is_made_in_time_and_changes_no_row():
    with pytest.raises(ValueError, match="demonstrate"):
        scripts.demonstrate(make(demonstrate=None)(), ROW, 7)
    hanging = make(demonstrate=lambda *_: (spin() for _ in "a"))
    with pytest.raises(ValueError, match=r"row 'a' .*0\.1 s"):
        scripts.demonstrate(hanging(), ROW, 7, seconds=0.1)
    row = {"id": "a", "secret": [write_call("guess", number=2)]}
    taking = make(demonstrate=lambda _, row, seed: row.pop("secret"))
    assert scripts.demonstrate(taking(), row, 7) == row["secret"]
    taking = make(start=lambda _, row, seed: (row.pop("secret"), None))
    assert scripts.play_script(taking(), row, 7, preset(), []).messages == row["secret"]


def cancel(*_):
    raise CancelledError


class Paying(Guess):
    """Pays 2 for each message that it has read, if a limit ends the episode."""

    num_read = 0

    def step(self, message):
        self.num_read += 1
        return super().step(message)

    def finish(self):
        return 2.0 * self.num_read


PLAYED = {
    "plain": Guess,
    "paying": Paying,
    "finishes with NaN": make(finish=lambda _: float("nan")),
    "steps with NaN": make(step=lambda *_: Reply(reward=float("nan"))),
    "cancelled": make(step=cancel),
}


@pytest.mark.parametrize("case", CASES["played"])
def test_a_demonstration_is_paid_until_it_ends(case):
    name, secret, limits, ending, rewards, error = case
    episode = play(PLAYED[name](), secret, **limits)
    assert (episode.ending, episode.rewards) == (ending, rewards)
    assert episode.success == (sum(rewards) >= 0.75)
    assert re.search(error, str(episode.error))


@pytest.mark.parametrize("limits", [{"max_turns": 2}, {"max_tool_calls": 1}])
def test_what_finish_pays_is_replayed(limits):
    check_replay(Paying, [ROW], preset(**limits), 0)


def test_limits_of_an_episode_by_hand():
    limits = EpisodeLimits(success_reward=1.0)
    totals = (sum([0.1] * 10), 1.0, 0.999)
    assert [limits.is_success(total) for total in totals] == [True, True, False]
    for limits, most in CASES["limits"]:
        assert EpisodeLimits(**limits).max_sampled_tokens() == most


def test_what_close_raises_is_logged(caplog):
    for close in (lambda _: time.sleep(60), lambda _: {}["a"]):
        close_environment(make(close=close)(), 0.1)
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 2
    close_environment(make(close=None)(), 0.1)


# --- what is random


def draw(*_):
    return random.random(), np.random.random()  # noqa: NPY002


async def draw_later():
    return draw()


def seed_globally():
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002


def test_an_episode_draws_what_it_would_draw_alone_and_so_do_the_others():
    """Something new each time, and the generators of the process go on as without the calls."""
    alone = IsolatedCalls(3)
    expected = [alone(draw) for _ in range(4)]
    assert len({*expected}) == 4
    seed_globally()
    outside = [draw() for _ in range(4)]
    seed_globally()
    first, second = IsolatedCalls(3), IsolatedCalls(4)
    for index in range(4):
        assert first(draw_later if index % 2 else draw) == expected[index]
        assert second(draw) != expected[index]
        with pytest.raises(ZeroDivisionError):
            second(lambda: draw() and 1 / 0)
        assert draw() == outside[index]

    async def notebook():  # whose loop runs
        return IsolatedCalls(3)(draw_later)

    assert asyncio.run(notebook()) == expected[0]
    assert IsolatedCalls(2**62)(draw) != IsolatedCalls(2**61)(draw)


# --- time


def spin():
    while True:
        pass


def leave():
    argparse.ArgumentParser().parse_args(["--buy", "hat"])


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (spin, TimeLimitError),
        (lambda: threading.Event().wait(60), TimeLimitError),
        (lambda: {}["a"], KeyError),
        (leave, RuntimeError),
    ],
)
def test_a_call_ends_in_time_and_leaves_nothing_behind(call, error, caplog):
    own_modules._changed.clear()
    before = signal.getsignal(signal.SIGALRM)
    assert call_within(60.0, lambda: 5) == 5
    with pytest.raises(error) as raised:
        call_within(0.1, call)
    assert signal.getsignal(signal.SIGALRM) is before
    assert not any(isinstance(thread, threading.Timer) for thread in threading.enumerate())
    assert caplog.messages == []  # the handler of the signal had not to be put back
    if call is leave:
        assert "(test_interface.py, line " in describe_error(raised.value)


def test_what_stops_the_process_goes_through(monkeypatch):
    def stop(*_):
        raise Stopped

    alarms: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: alarms.append(1))
    try:
        call_within(60.0, lambda: signal.raise_signal(signal.SIGALRM))
        assert alarms == [1]  # the alarm of another
        with pytest.raises(Stopped):
            call_within(60.0, stop)
        handler = signal.getsignal(signal.SIGALRM)
        monkeypatch.setattr(threading.Timer, "start", stop)
        with pytest.raises(Stopped):  # not the error of joining a thread that never started
            call_within(60.0, lambda: 5)
        assert signal.getsignal(signal.SIGALRM) is handler
    finally:
        signal.signal(signal.SIGALRM, before)


def test_in_another_thread_the_call_is_given_up():
    results, over = list[Any](), threading.Event()

    def run():
        results.append(call_within(60.0, lambda: 5))
        for call, error in ((over.wait, TimeLimitError), (lambda: {}["a"], KeyError)):
            with pytest.raises(error):
                call_within(0.1, call)
        results.append("late")

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    over.set()
    assert results == [5, "late"]


# --- the definition of an environment


def define(word: str, **changes) -> EnvironmentFile:
    return EnvironmentFile(
        kind="own", preset=preset(**changes), own=word, own_digest=None, packages={}
    )


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(own, "__path__", [str(tmp_path)])
    for name, text in CASES["own_files"].items():
        (tmp_path / name).write_text(text)


def test_a_class_of_the_user_is_made_with_the_options_of_the_preset(own_folder):
    for options, highest in (({}, 3), ({"highest": 9}, 9)):
        factory: Any = definition.load_factory(define("high", options=options))
        assert (factory().highest, factory() is factory()) == (highest, False)


@pytest.mark.parametrize(("word", "options", "refusal"), CASES["own"])
def test_a_file_without_one_such_class_is_refused(word, options, refusal, own_folder):
    with pytest.raises(ValueError, match=refusal):
        definition.load_factory(define(word, options=options))


@pytest.mark.parametrize(("changes", "place"), CASES["presets"])
def test_a_preset_is_refused_by_the_place_in_it(changes, place):
    with pytest.raises(ValueError, match=place):
        preset(**changes)


def test_files_that_options_name_are_digested_however_deep(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data/raw").mkdir(parents=True)
    Path("data/raw/a").write_text("1")
    named = {"path": "data/raw/a", "deep": [{"more": ["data/raw/a", "data/raw/none"]}], "n": 1}
    for options in (named, {"deep": [["data/raw/a"]]}):
        digests = definition.digest_files(options)
        assert [*digests] == ["data/raw/a"]
        assert digests["data/raw/a"].startswith("6b86b273ff34fce1")  # SHA-256 of `1`
    Path("elsewhere").write_text("1")
    with pytest.raises(ValueError, match="elsewhere"):
        definition.digest_files({"deep": {"path": "elsewhere"}})
