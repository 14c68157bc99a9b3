r"""The form in which a model writes calls of tools: written, and read from what a model wrote.

It is that of the model's chat template, found by rendering two calls: what stands before, between
and after the JSON objects, and the keys of name and arguments in them.

    <tool_call>\n{"name": .., "arguments": {..}}\n</tool_call>               Hermes, Qwen
    {"name": .., "parameters": {..}}                                      Llama 3: one call alone
    [TOOL_CALLS] [{"name": .., "arguments": {..}, "id": ..}, {..}]         Mistral
    <tool>{"name": .., "arguments": {..}}</tool>                           without a chat template

Nothing that a model wrote is evaluated: it is JSON or an error.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models import chat_template
from stages.models.chat_template import CALL, OTHER_CALLS, TOOLS, USER
from stages.models.model_tokenizer import once_per_template
from stages.records.problems import ToolCall, Turn, split_thought

_DECODER = json.JSONDecoder()


class ReplyError(ValueError):
    """A message of the assistant starts a call that cannot be read: expected and found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallForm:
    """What stands around the JSON objects of calls, and their keys."""

    before: str = "<tool>"
    between: str | None = "</tool><tool>"
    """None: a turn has one call at most."""
    after: str = "</tool>"
    name_key: str = "name"
    arguments_key: str = "arguments"

    @property
    def spelling(self) -> str:
        """All text around the objects."""
        return " ".join((self.before, self.between or "", self.after))

    def write(self, calls: Sequence[ToolCall]) -> str:
        """Text of calls; empty without any."""
        objects = [
            json.dumps(
                {self.name_key: call.name, self.arguments_key: json.loads(call.arguments)},
                ensure_ascii=False,
            )
            for call in calls
        ]
        assert self.between is not None, "of a form with several calls"
        return self.before + self.between.join(objects) + self.after if calls else ""

    def read(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """Content before the calls, and the calls.

        Spaces and newlines around the objects are as the model likes. Raises:
            ReplyError: a call is started, and cannot be read.
        """
        words = self.before.split()
        if words:
            start = text.find(words[0])
        else:  # calls begin with the first object
            first_key = rf'\s*\{{\s*"{re.escape(self.name_key)}"\s*:'
            start = 0 if re.match(first_key, text) else -1
        if start < 0:
            return text, ()
        calls, rest = list[ToolCall](), text[start:]
        position, keys = (
            self._match(self.before, rest, 0),
            (self.name_key, self.arguments_key, "id"),
        )
        while position is not None:
            try:
                content, position = _DECODER.raw_decode(rest, position)
            except (ValueError, RecursionError):
                break
            if not isinstance(content, dict) or not content.keys() <= {*keys, "type"}:
                break
            name, arguments, number = map(content.get, keys)
            call = make_call(name, arguments, number, len(calls))
            if call is None:
                break
            calls.append(call)
            end = self._match(self.after, rest, position)
            if end is not None and not rest[end:].strip():
                return text[:start].rstrip(), tuple(calls)
            position = None if self.between is None else self._match(self.between, rest, position)
        example = f'{{"{self.name_key}": .., "{self.arguments_key}": {{..}}}}'
        several = "" if self.between is None else f", or several with {self.between!r} between"
        raise ReplyError(
            f"expected {self.before + example + self.after!r} with a name and a JSON object of "
            f"arguments{several}, and nothing after it, found {rest!r:.200}"
        )

    def _match(self, expected: str, text: str, position: int) -> int | None:
        """End of `expected` at a position of `text`, whatever the spaces; None: it is not there."""
        pattern = r"\s*".join(["", *map(re.escape, expected.split()), ""])
        match = re.compile(pattern).match(text, position)
        return None if match is None else match.end()


def read_call(entry: Any, index: int) -> ToolCall | None:
    """Call number `index` of a turn, in OpenAI's form; None: it is none."""
    function = entry.get("function", entry) if isinstance(entry, dict) else None
    if not isinstance(function, dict):
        return None
    return make_call(function.get("name"), function.get("arguments"), entry.get("id"), index)


def make_call(name: Any, arguments: Any, number: Any, index: int) -> ToolCall | None:
    """Call number `index` of a turn; None: it has no name, or its arguments are no JSON object.

    Without an id of the model's own it gets one, of nine characters, as Mistral's templates ask.
    """
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    is_call = isinstance(name, str) and name and isinstance(arguments, dict)
    if not is_call or not isinstance(number, str | None):
        return None
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        (name + text + (number or "")).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        return None
    return ToolCall(name, text, number or f"call{index:05d}")


@once_per_template
def find_form(tokenizer: PreTrainedTokenizerBase) -> CallForm | None:
    """The form of the model's calls; None: its chat template writes no JSON object for them."""
    if tokenizer.chat_template is None:
        return CallForm()
    first = CALL, OTHER_CALLS[1]
    text = _write(tokenizer, first[:1])
    objects = [] if text is None else list(_find_objects(text, first[:1]))
    if text is None or not objects:
        return None
    start, end, name_key, arguments_key = objects[0]
    several, between = _write(tokenizer, first), None
    if several is not None:
        places = list(_find_objects(several, first))
        between = several[places[0][1] : places[1][0]] if len(places) == len(first) else None
    return CallForm(
        before=text[:start], between=between, after=text[end:],
        name_key=name_key, arguments_key=arguments_key,
    )  # fmt: skip


def _write(tokenizer: PreTrainedTokenizerBase, calls: Sequence[ToolCall]) -> str | None:
    """Text of a turn of calls, by the chat template; None: it refuses them."""
    try:
        turn = Turn("assistant", "", calls=tuple(calls))
        _, reply = chat_template.render_reply([USER], turn, tokenizer, TOOLS)
    except chat_template.FAILURES:
        return None
    return split_thought(reply)[1]


def _find_objects(text: str, calls: Sequence[ToolCall]) -> Iterator[tuple[int, int, str, str]]:
    """Start and end of the JSON object of each call in order, with its keys."""
    position = 0
    for call in calls:
        while (position := text.find("{", position)) >= 0:
            try:
                content, end = _DECODER.raw_decode(text, position)
            except ValueError:
                position += 1
                continue
            values = json.loads(call.arguments), call.arguments
            keys = {key for key, value in content.items() if value == call.name}
            places = {key for key, value in content.items() if value in values}
            if keys and places:
                yield position, end, keys.pop(), places.pop()
                position = end
                break
            position += 1
