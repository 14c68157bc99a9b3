r"""Format of a model's tool calls: writing them, and parsing them from its output.

It is the format of the model's chat template, inferred from a rendering of two calls: the text
before, between and after the JSON objects, and the keys of name and arguments in them.

    <tool_call>\n{"name": .., "arguments": {..}}\n</tool_call>               Hermes, Qwen
    {"name": .., "parameters": {..}}                                      Llama 3: only one call
    [TOOL_CALLS] [{"name": .., "arguments": {..}, "id": ..}, {..}]         Mistral
    <tool>{"name": .., "arguments": {..}}</tool>           `turn_rendering.make_episode_template`

Output of a model is never evaluated as code: it is JSON or an error.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models import chat_template
from stages.models.chat_template import CALL, ID, TOOLS, USER
from stages.models.model_tokenizer import once_per_template
from stages.records.problems import ToolCall, Turn, split_thought

_DECODER = json.JSONDecoder(strict=False)  # a text may contain an unescaped newline
ARGUMENTS_KEYS = ("arguments", "parameters")
"""Usual keys of a call's arguments; a model may write another key than its template."""


class ReplyError(ValueError):
    """A message of the assistant starts a call that cannot be parsed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallForm:
    """Text around the JSON objects of calls, and their keys."""

    before: str
    between: str | None
    """None: a turn has at most one call."""
    after: str
    name_key: str
    arguments_key: str

    @property
    def spelling(self) -> str:
        """All text around the objects."""
        return " ".join((self.before, self.between or "", self.after))

    def read(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """Parse a turn into the content around the calls, and the calls.

        Any spaces and newlines may surround the objects. Like other projects' parsers, it accepts a
        call without arguments, either usual key of arguments, and newlines in a text.

        Raises:
            ReplyError: a call is started but cannot be parsed.
        """
        contents, calls, rest = list[str](), list[ToolCall](), text
        while (start := self._find_start(rest, is_first=not calls)) >= 0:
            end = None if calls and self.between is None else self._read_calls(rest, start, calls)
            if end is None:
                example = f'{{"{self.name_key}": .., "{self.arguments_key}": {{..}}}}'
                raise ReplyError(
                    f"expected {self.before + example + self.after!r} with a name and a JSON "
                    f"object of arguments, found {rest[start:]!r:.200}"
                )
            contents.append(rest[:start])
            rest = rest[end:]
        if not calls:
            return text, ()
        first, *later = *contents, rest
        parts = (first.rstrip(), *(part.strip() for part in later))
        return "\n".join(filter(None, parts)), tuple(calls)

    def _find_start(self, text: str, *, is_first: bool) -> int:
        """Position at which the next call starts; -1: there is none."""
        if words := self.before.split():
            return text.find(words[0])
        # Calls begin with the first object, which must begin the turn. Other text may also be JSON
        # with a name, so only an object with arguments is a call.
        search = re.match if is_first else re.search
        name, arguments = re.escape(self.name_key), "|".join({self.arguments_key, *ARGUMENTS_KEYS})
        match = search(rf'\s*\{{\s*"{name}"\s*:\s*"[^"]*"\s*,\s*"({arguments})"\s*:', text)
        return -1 if match is None else match.start()

    def _read_calls(self, text: str, start: int, calls: list[ToolCall]) -> int | None:
        """Add the calls that start at `start` in `text`, and return their end; None: unparsable."""
        position = self._match(self.before, text, start)
        while position is not None:
            try:
                content, position = _DECODER.raw_decode(text, position)
            except (ValueError, RecursionError):
                return None
            if not isinstance(content, dict):
                return None
            places = {self.arguments_key, *ARGUMENTS_KEYS} & content.keys()
            if len(places) > 1 or not content.keys() <= {self.name_key, "id", "type", *places}:
                return None
            arguments = content[places.pop()] if places else None
            call = make_call(content.get(self.name_key), arguments, content.get("id"), len(calls))
            if call is None:
                return None
            calls.append(call)
            between = None if self.between is None else self._match(self.between, text, position)
            if between is None or not text.startswith("{", between):
                return self._match(self.after, text, position)
            position = between
        return None

    def _match(self, expected: str, text: str, position: int) -> int | None:
        """End of `expected` at a position of `text`, with any spaces; None: it is not there."""
        pattern = r"\s*".join(["", *map(re.escape, expected.split()), ""])
        match = re.compile(pattern).match(text, position)
        return None if match is None else match.end()


def read_call(entry: Any, index: int) -> ToolCall | None:
    """Call number `index` of a turn, in OpenAI's form; None: not a call."""
    function = entry.get("function", entry) if isinstance(entry, dict) else None
    if not isinstance(function, dict):
        return None
    places = [key for key in ARGUMENTS_KEYS if key in function]
    if len(places) != 1 and (places or not function.keys() <= {"name", "id", "type", "index"}):
        return None  # without `arguments`, other keys would be lost
    arguments = function[places[0]] if places else None
    return make_call(function.get("name"), arguments, entry.get("id"), index)


def make_call(name: Any, arguments: Any, number: Any, index: int) -> ToolCall | None:
    """Call number `index` of a turn; None: no name, or arguments that are not a JSON object.

    `arguments` None: a call without any. If the model wrote no id, the call gets one of nine
    characters, as Mistral's templates require.
    """
    if arguments is None:
        arguments = dict[str, Any]()
    if isinstance(arguments, str):
        try:
            arguments = _DECODER.decode(arguments)
        except (ValueError, RecursionError):
            return None
    is_call = isinstance(name, str) and name and isinstance(arguments, dict)
    if not is_call or not isinstance(number, str | None):
        return None
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        (name + text + (number or "")).encode()  # fails for half a surrogate pair
    except (ValueError, RecursionError):
        return None
    return ToolCall(name, text, number or f"call{index:05d}")


@once_per_template
def find_form(tokenizer: PreTrainedTokenizerBase) -> CallForm | None:
    """The format of the model's calls; None: its chat template does not write them as JSON."""
    first = CALL, ToolCall(CALL.name, '{"x": 4}', ID)
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
    """Text of a turn of calls by the chat template; None: the template refuses them."""
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
