r"""The form in which a model writes calls of tools: written, and read from what a model wrote.

It is that of the model's chat template, found by rendering two calls: what stands before, between
and after the JSON objects, and the keys of name and arguments in them.

    <tool_call>\n{"name": .., "arguments": {..}}\n</tool_call>               Hermes, Qwen
    {"name": .., "parameters": {..}}                                      Llama 3: one call alone
    [TOOL_CALLS] [{"name": .., "arguments": {..}, "id": ..}, {..}]         Mistral
    <tool>{"name": .., "arguments": {..}}</tool>           `turn_rendering.make_episode_template`

Nothing that a model wrote is evaluated: it is JSON or an error.
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

_DECODER = json.JSONDecoder(strict=False)  # a text may have a newline as it is
ARGUMENTS_KEYS = ("arguments", "parameters")
"""Of a call, in the usual forms; a model may write another than its template does."""


class ReplyError(ValueError):
    """A message of the assistant starts a call that cannot be read: expected and found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallForm:
    """What stands around the JSON objects of calls, and their keys."""

    before: str
    between: str | None
    """None: a turn has one call at most."""
    after: str
    name_key: str
    arguments_key: str

    @property
    def spelling(self) -> str:
        """All text around the objects."""
        return " ".join((self.before, self.between or "", self.after))

    def read(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """Content around the calls, and the calls.

        Spaces and newlines around the objects are as the model likes. As other projects' parsers
        do, it takes a call without arguments, either usual key of these, and newlines in a text.

        Raises:
            ReplyError: a call is started, and cannot be read.
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
        """Where the next call starts; -1: nowhere."""
        if words := self.before.split():
            return text.find(words[0])
        # Calls begin with the first object, which has to be the beginning of the turn. Text of a
        # model may be JSON with a name, too: arguments tell a call from it.
        search = re.match if is_first else re.search
        name, arguments = re.escape(self.name_key), "|".join({self.arguments_key, *ARGUMENTS_KEYS})
        match = search(rf'\s*\{{\s*"{name}"\s*:\s*"[^"]*"\s*,\s*"({arguments})"\s*:', text)
        return -1 if match is None else match.start()

    def _read_calls(self, text: str, start: int, calls: list[ToolCall]) -> int | None:
        """Add the calls that start at a place of `text`, and return their end; None: unreadable."""
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
        """End of `expected` at a position of `text`, whatever the spaces; None: it is not there."""
        pattern = r"\s*".join(["", *map(re.escape, expected.split()), ""])
        match = re.compile(pattern).match(text, position)
        return None if match is None else match.end()


def read_call(entry: Any, index: int) -> ToolCall | None:
    """Call number `index` of a turn, in OpenAI's form; None: it is none."""
    function = entry.get("function", entry) if isinstance(entry, dict) else None
    if not isinstance(function, dict):
        return None
    places = [key for key in ARGUMENTS_KEYS if key in function]
    if len(places) != 1 and (places or not function.keys() <= {"name", "id", "type", "index"}):
        return None  # without `arguments`, what else it says would be dropped
    arguments = function[places[0]] if places else None
    return make_call(function.get("name"), arguments, entry.get("id"), index)


def make_call(name: Any, arguments: Any, number: Any, index: int) -> ToolCall | None:
    """Call number `index` of a turn; None: it has no name, or its arguments are no JSON object.

    `arguments` None: a call without any. Without an id of the model's own it gets one, of nine
    characters, as Mistral's templates ask.
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
        (name + text + (number or "")).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        return None
    return ToolCall(name, text, number or f"call{index:05d}")


@once_per_template
def find_form(tokenizer: PreTrainedTokenizerBase) -> CallForm | None:
    """The form of the model's calls; None: its chat template writes no JSON object for them."""
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
