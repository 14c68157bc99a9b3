"""Episodes without a policy: an environment's demonstration or canned replies, played in it."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from stages.environments.closing import close_environment, finish_environment
from stages.environments.environment import (
    Environment,
    Message,
    Reply,
    check_reply,
    check_reward,
    check_start,
    to_json,
)
from stages.environments.limits import EpisodeLimits
from stages.environments.time_limit import FAILURES, TimeLimitError, call_within
from stages.own_modules import describe_error
from stages.records.episodes import FAILED, LIMITED, Ending, Episode

CANNED = {
    "string": "1", "integer": 1, "number": 1.0, "boolean": True, "array": list[Any](),
    "object": dict[str, Any](), "null": None,
}  # fmt: skip
"""JSON schema type of a tool's argument -> its value in a canned call."""


def demonstrate(
    environment: Environment, row: Mapping[str, Any], seed: int, *, seconds: float = 10.0
) -> list[Message]:
    """The assistant's messages in the environment's demonstration.

    A ValueError if it has none, or makes none within `seconds`. The environment is closed.
    """
    able: Any = environment
    if not callable(getattr(able, "demonstrate", None)):
        raise ValueError(
            f"{type(environment).__name__} has no method `demonstrate(row, seed)`, the assistant's "
            f"messages of an episode that succeeds: write it, or play `by: policy`"
        )
    copied: Any = copy.deepcopy(dict(row))
    try:
        messages: list[Message] = call_within(
            seconds, lambda: [*(able.demonstrate(copied, seed) or ())]
        )
    except TimeLimitError:
        raise ValueError(
            f"demonstrate of row '{row['id']}' did not return within {seconds:g} s: correct it, or "
            f"raise timeout_seconds in the environment's preset"
        ) from None
    finally:
        close_environment(environment, seconds)
    wrong = [message for message in messages if not _is_reply(message)]
    if wrong or not messages:
        shown = f"{wrong[0]!r:.200}" if wrong else "none"
        raise ValueError(
            f"demonstrate: expected messages of role assistant, the arguments of their calls "
            f"objects (`write_call` of tool_functions makes one), found {shown}"
        )
    return messages


def _is_reply(message: Any) -> bool:
    if not isinstance(message, Mapping) or message.get("role") != "assistant":
        return False
    functions = [call.get("function") or {} for call in message.get("tool_calls") or ()]
    return all(isinstance(function.get("arguments"), Mapping) for function in functions)


def make_canned_replies(
    tools: Sequence[Mapping[str, Any]] | None, num_turns: int
) -> Iterator[Message]:
    """Replies that fit no task: the text `1`, and if there are tools, a call of each in turn.

    Each argument of a call has a value of its type.
    """
    schemas = [tool.get("function", tool) for tool in tools or ()]
    for turn in range(num_turns):
        message: dict[str, Any] = {"role": "assistant", "content": "1"}
        if turn < len(schemas):
            arguments = {
                name: CANNED.get(str(argument.get("type", "string")), "1")
                for name, argument in schemas[turn]
                .get("parameters", {})
                .get("properties", {})
                .items()
            }
            function = {"name": schemas[turn]["name"], "arguments": arguments}
            message["tool_calls"] = [{"type": "function", "function": function}]
        yield message


def play_script(
    environment: Environment,
    row: Mapping[str, Any],
    seed: int,
    limits: EpisodeLimits,
    script: Sequence[Message] | None = None,
) -> Episode:
    """The episode in which the assistant writes `script` (None: canned replies), without tokens.

    It ends with the environment, with the script, or at the limit of turns or tool calls. It also
    ends if `step` raises an exception, or a reward is not a number. A ValueError if `start` fails,
    or `step` does not return a Reply with messages. The environment is closed.
    """
    seconds, rewards, num_calls = limits.timeout_seconds, list[float](), 0
    ending: Ending = "turns"
    problem: str | None = None
    try:
        try:
            begin = partial(environment.start, copy.deepcopy(dict(row)), seed)
            start, tools = check_start(call_within(seconds, begin))
        except FAILURES as error:
            text = f"start of row '{row['id']}' failed: {describe_error(error)}"
            raise ValueError(text) from error
        messages: list[Message] = list(start)
        for message in make_canned_replies(tools, limits.max_turns) if script is None else script:
            num_calls += len(message.get("tool_calls") or ())
            if len(rewards) == limits.max_turns:
                break
            if num_calls > limits.max_tool_calls:
                ending = "tool_calls"
                break
            messages.append(message)
            rewards.append(0.0)
            try:
                value: Any = call_within(seconds, partial(environment.step, to_json(message)))
                if isinstance(value, Reply):
                    check_reward(value.reward)
            except FAILURES as error:
                ending, problem = FAILED, describe_error(error)
                break
            try:
                reply = check_reply(value)
            except ValueError as error:  # whatever the message was, the class is wrong
                text = f"step of row '{row['id']}', turn {len(rewards)}: {error}"
                raise ValueError(text) from error
            messages += reply.messages
            rewards[-1] = reply.reward
            if reply.done:
                ending = "done"
                break
        if ending in LIMITED and rewards:
            try:
                rewards[-1] += call_within(seconds, partial(finish_environment, environment)) or 0.0
            except FAILURES as error:
                ending, problem = FAILED, describe_error(error)
    finally:
        close_environment(environment, seconds)
    reward = math.fsum(rewards)
    return Episode(
        id=str(row["id"]), index=0, env_seed=seed, messages=to_json(messages),
        num_start_messages=len(start), tools=tools, prompt_ids=[], token_ids=[], sampled=[],
        rewards=rewards, reward=reward, success=limits.is_success(reward),
        ending=ending, error=problem,
    )  # fmt: skip
