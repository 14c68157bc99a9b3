"""Replay of an episode: sends the assistant's messages to the environment again, compares answers.

An environment must be a function of row, seed and messages; if not, a replay reports the first
difference. It draws from the global random generators between two calls, as episodes that are
played at the same time do: an environment must not depend on them. For the same reason several
episodes can be replayed in turns.
"""

import copy
import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

from stages.environments.closing import close_environment, finish_environment
from stages.environments.environment import Environment, Message, check_reply, check_start, to_json
from stages.environments.time_limit import FAILURES, call_within
from stages.records.conversations import split_exchanges
from stages.records.episodes import ERROR, FAILED, LIMITED, Episode

GOES_ON = "none"
UNREAD = ("tokens", "tool_calls", "parse_error")
"""Endings after which the environment may not have received the last message."""
NOTHING = "nothing"
MAX_SHOWN = 80
"""Number of characters of a value that are shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """First difference between an episode and its replay."""

    turn: int
    """Number of the assistant's turn, from 1; 0: the start."""
    place: str
    """Path of the value: `messages[0].content`, `tools`, `reward` or `ending`."""
    expected: Any
    """Value in the episode."""
    actual: Any
    """Value in the replay."""

    def __str__(self) -> str:
        expected, actual, skipped = self.expected, self.actual, 0
        if isinstance(expected, str) and isinstance(actual, str):
            differs = (a != b for a, b in zip_longest(expected, actual))
            equal = next((at for at, different in enumerate(differs) if different), 0)
            skipped = equal if equal > MAX_SHOWN // 2 else 0
            expected, actual = expected[skipped:], actual[skipped:]
        where = f"turn {self.turn}" if self.turn else "start"
        place = f"{self.place} from character {skipped}" if skipped else self.place
        return f"{where}, {place}: expected {show_value(expected)}, found {show_value(actual)}"


def replay_episode(
    environment: Environment,
    episode: Episode,
    row: Mapping[str, Any],
    *,
    timeout_seconds: float = 10.0,
) -> Difference | None:
    """First difference between an episode and its replay; None if there is none.

    Compared are the environment's messages, the tools, the reward of each turn, and whether the
    environment ended the episode or failed there. Messages that answer the last turn are compared
    if the episode has them.

    Args:
        environment: a new one, not started; closed here.
        episode: the episode to replay.
        row: row of the start, with the episode's id.
        timeout_seconds: time limit of one `start` or `step`; one that takes longer fails.
    """
    play = [(episode, row)]
    return replay_together(lambda: environment, play, timeout_seconds=timeout_seconds)[0]


def replay_together(
    factory: Callable[[], Environment],
    plays: Sequence[tuple[Episode, Mapping[str, Any]]],
    *,
    timeout_seconds: float = 10.0,
) -> list[Difference | None]:
    """First difference between each episode and its replay; all are replayed in turns.

    As in training, all are started, then each is stepped once, and so on. `plays`: episodes with
    their rows.
    """
    replays = {
        number: _replay(factory, episode, row, timeout_seconds)
        for number, (episode, row) in enumerate(plays)
    }
    differences: list[Difference | None] = [None] * len(plays)
    try:
        while replays:
            for number, replay in tuple(replays.items()):
                try:
                    next(replay)
                except StopIteration as end:
                    differences[number] = end.value
                    del replays[number]
    finally:
        for replay in replays.values():  # left if a call raised an error that is not in FAILURES
            replay.close()
    return differences


def _replay(
    factory: Callable[[], Environment],
    episode: Episode,
    row: Mapping[str, Any],
    timeout_seconds: float,
) -> Generator[None, None, Difference | None]:
    """First difference; yields after each answer, for the other episodes' turns."""
    environment, exchanges = factory(), list(split_exchanges(episode))
    try:
        for turn, (message, answer) in enumerate(exchanges):
            is_last = turn == len(exchanges) - 1
            is_bad = message is not None and ERROR in message  # a call that could not be parsed
            # If the episode failed although the environment answered, the chat template could not
            # render the answer.
            has_ended = episode.ending == "done" or (episode.ending == FAILED and not answer)
            ending = episode.ending if is_last and has_ended else GOES_ON
            expected: dict[str, Any] = {"ending": ending}
            if ending != FAILED:
                before = {"tools": episode.tools}
                expected |= {"reward": episode.rewards[turn - 1]} if turn else before
            if not is_bad and (answer or not (turn and is_last)):
                expected["messages"] = answer
            is_cut = not answer and bool(turn) and is_last and episode.ending in UNREAD
            is_unread = is_bad or is_cut
            pays_last = is_last and episode.ending in LIMITED and hasattr(environment, "finish")
            if is_unread and not pays_last and not expected["reward"]:
                continue
            try:
                ask = partial(_start, environment, row, episode.env_seed)
                if pays_last:
                    ask = partial(_finish, environment, None if is_unread else message)
                elif message is not None:
                    ask = partial(_step, environment, message)
                actual = call_within(timeout_seconds, ask)
            except FAILURES as error:
                failure = f"{FAILED}: {type(error).__name__}: {error}"
                different = Difference(turn=turn, place="ending", expected=ending, actual=failure)
                return None if ending == FAILED else different
            for key, value in to_json(expected).items():
                if (values := find_difference(key, value, actual[key])) is not None:
                    return Difference(turn=turn, **values)
            yield
        return None
    finally:
        close_environment(environment, timeout_seconds)


def find_difference(place: str, expected: Any, actual: Any) -> dict[str, Any] | None:
    """Place and values of the first difference between two JSON values; None if equal."""
    inner: Iterator[tuple[str, Any, Any]] | None = None
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        keys = sorted({*expected, *actual})
        inner = ((f"{place}.{k}", expected.get(k, NOTHING), actual.get(k, NOTHING)) for k in keys)
    elif isinstance(expected, list) and isinstance(actual, list):
        pairs = enumerate(zip_longest(expected, actual, fillvalue=NOTHING))
        inner = ((f"{place}[{at}]", *pair) for at, pair in pairs)
    if inner is None:
        different = {"place": place, "expected": expected, "actual": actual}
        return None if expected == actual else different
    return next((values for parts in inner if (values := find_difference(*parts))), None)


def show_value(value: Any) -> str:
    """Value on one line, at most its first `MAX_SHOWN` characters."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _start(environment: Environment, row: Mapping[str, Any], seed: int) -> dict[str, Any]:
    messages, tools = check_start(environment.start(copy.deepcopy(dict(row)), seed))
    return {"ending": GOES_ON, "tools": tools, "messages": messages}


def _finish(environment: Environment, message: Message | None) -> dict[str, Any]:
    """Result of a turn that a limit ends; `message` None: the environment did not receive it."""
    answer = {"ending": GOES_ON, "reward": 0.0} if message is None else _step(environment, message)
    return answer | {"reward": answer["reward"] + (finish_environment(environment) or 0.0)}


def _step(environment: Environment, message: Message) -> dict[str, Any]:
    random.random()
    np.random.random()  # noqa: NPY002
    reply = check_reply(environment.step(to_json(message)))
    ending = "done" if reply.done else GOES_ON
    return {"ending": ending, "reward": reply.reward, "messages": reply.messages}
