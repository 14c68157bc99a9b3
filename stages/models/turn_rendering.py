"""Conversion of an episode's messages to tokens, and of sampled tokens to messages.

Sampled tokens are never changed. After a turn of the assistant come only the tokens of the new
messages: the difference of two renders by the chat template, of which the longer one must begin
with the shorter one, up to the token that ends the assistant's turn. A template that changes
earlier turns when others follow (by dropping their thoughts, as Qwen3's does) is refused: a model
would read other tokens in use than in training (`kept_thoughts` rewrites it). Text that the
template writes after the end of a turn, such as a newline, is kept.

A tokenizer without a chat template gets one of this project (`make_episode_template`): the first
message, after the begin token if there is one, then each later message between newlines. It does
not render tools: messages of the environment, or demonstrations, must describe them.
"""

import copy
import functools
import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models import chat_template
from stages.models.call_form import ReplyError, find_form, read_call
from stages.models.chat_template import CALL, TOOLS, USER
from stages.models.model_tokenizer import (
    end_id,
    end_ids,
    eos_id,
    make_decode,
    once_per_template,
)
from stages.models.prompting import (
    get_bos_text,
    special_token_texts,
    tokenize,
    tokenize_continuation,
)
from stages.records.episodes import Episode
from stages.records.problems import (
    REASONING_KEYS,
    ToolCall,
    Turn,
    find_begun_thought,
    split_thought,
)
from stages.records.transcripts import link_results
from stages.rewards.feedback.prompts import defuse

Message = Mapping[str, Any]
Tools = Sequence[Mapping[str, Any]] | None
ROLES = ("system", "user", "assistant", "tool")
SHOWN = 60
"""Characters of each text that an error shows where two texts differ."""
CACHED_TEXTS = 4096
REMEDY = (
    "If these are thoughts, set model.chat_template: keep_thoughts; else name a chat template "
    "there that renders earlier turns the same whatever follows"
)


class TurnRenderer:
    """Converter between messages and tokens, in the format of a tokenizer's model."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self._is_plain = tokenizer.chat_template is None
        if self._is_plain:
            self.tokenizer = copy.copy(tokenizer)
            self.tokenizer.chat_template = make_episode_template(tokenizer)

    def render_start(self, messages: Sequence[Message], tools: Tools) -> list[int]:
        """Tokens of the first messages, ready for the assistant's turn."""
        text = self._render(self._read_turns(messages), tools, is_prompt=True)
        return tokenize([text], self.tokenizer)[0]

    def render_reply(
        self, messages: Sequence[Message], reply: Message, tools: Tools
    ) -> list[int]:  # fmt: skip
        """Tokens of an assistant's message as if sampled, with the end of its turn."""
        turns, turn = self._read_turns(messages), self._read_turns([reply])[0]
        try:
            _, text = chat_template.render_reply(turns, turn, self.tokenizer, self._to_json(tools))
        except chat_template.FAILURES as error:
            raise ValueError(f"chat template: it refuses a message: {error}") from error
        return [*tokenize_continuation([text], self.tokenizer)[0], end_id(self.tokenizer)]

    def render_new(
        self, messages: Sequence[Message], new: Sequence[Message], tools: Tools
    ) -> list[int]:
        """Tokens from the end of the assistant's turn to the beginning of its next one.

        Args:
            messages: earlier messages, the last of them the assistant's.
            new: messages of the environment.
            tools: as in `render_start`.

        Raises:
            ValueError: the render of all messages does not begin with that of `messages`.
        """
        turns = self._read_turns([*messages, *new])
        before = self._render(turns[: len(messages)], tools, is_prompt=False)
        whole = self._render(turns, tools, is_prompt=True)
        stem = self._cut_after_end(before)
        if not whole.startswith(stem):
            pairs = enumerate(zip(stem, whole, strict=False))
            place = next((i for i, (first, second) in pairs if first != second), len(whole))
            end = place + SHOWN
            raise ValueError(
                f"chat template: expected the render of a conversation to begin with that of its "
                f"earlier turns, but they differ at character {place}, after "
                f"{whole[max(0, place - SHOWN) : place]!r}: with the new messages "
                f"{whole[place:end]!r}, without {stem[place:end]!r}. A policy would read other "
                f"tokens in use than in training. {REMEDY}"
            )
        return self._tokenize_after_end(whole[len(stem) :])

    def complete_turn(self, token_ids: Sequence[int]) -> list[int]:
        """Tokens that end a turn, if sampling stopped at an end-of-sequence token; else none."""
        end = end_id(self.tokenizer)
        return [] if token_ids[-1:] == [end] else [end]

    def read_reply(self, token_ids: Sequence[int], tools: Tools) -> Message:
        """Message of sampled tokens: content, thoughts (`reasoning_content`) and calls.

        Without tools, everything except thoughts is content.

        Raises:
            ReplyError: it starts a call that cannot be parsed, or that the chat template refuses.
        """
        if tools and getattr(self.tokenizer, "response_template", None) is not None:
            turn = self._parse(token_ids, tools)
        else:
            form, calls = find_form(self.tokenizer) if tools else None, ()
            decode = _make_decode(self.tokenizer, "" if form is None else form.spelling)
            begun = _find_begun_thought(self.tokenizer)
            reasoning, text = split_thought(begun + decode(token_ids))
            if form is not None:
                text, calls = form.read(text)
            turn = Turn("assistant", text, calls=calls, reasoning=reasoning)
        if turn.calls:
            try:
                self._render([USER, turn], tools, is_prompt=False)
            except ValueError as error:
                raise ReplyError(f"expected calls as the model writes them: {error}") from error
        return _to_message(turn)

    def check(self, tools: Tools) -> None:
        """Raise a ValueError for a chat template that does not fit episodes of several turns.

        It leaves out tools, calls or results; its calls cannot be parsed; or it changes earlier
        turns when results of tools (without tools: messages of the user) follow. Call it before
        training with more than one turn of the assistant.
        """
        if self._is_plain:
            return
        kinds = ("tools", "calls", "results") if tools else ()
        for reason in (chat_template.find_lost_part(self.tokenizer, kind) for kind in kinds):
            if reason is not None:
                raise ValueError(reason)
        thought, begun = "content+reasoning", _find_begun_thought(self.tokenizer)
        if begun and chat_template.find_lost_part(self.tokenizer, thought):
            raise ValueError(
                f"chat template: it begins a thought, {begun!r}, in every prompt, and leaves it "
                f"out of earlier turns. {REMEDY}"
            )
        messages = [_to_message(USER)]
        for reply, answers in self._make_probes(has_tools=bool(tools)):
            new = [_to_message(turn) for turn in answers]
            self.render_new([*messages, _to_message(reply)], new, tools)
            messages += [_to_message(reply), *new]
        if not tools:
            return
        # Parsing a call that the template wrote must give the same call.
        called, tools = _to_message(Turn("assistant", "", calls=(CALL,))), json.loads(TOOLS)
        token_ids = self.render_reply([_to_message(USER)], called, tools)
        calls = self.read_reply(token_ids, tools).get("tool_calls", ())
        functions = [[call["function"] for call in part] for part in (calls, called["tool_calls"])]
        if functions[0] != functions[1]:
            raise ValueError(
                f"expected a chat template that writes calls of tools as JSON objects, or a "
                f"tokenizer with a `response_template` that reads them, found "
                f"{self.tokenizer.decode(token_ids)!r:.200}. Set `response_template` in "
                f"tokenizer_config.json, or take another model"
            )

    def _make_probes(self, *, has_tools: bool) -> list[tuple[Turn, list[Turn]]]:
        """Consecutive turns of the assistant in a conversation, with the turns that follow each."""
        if not has_tools:
            replies = [Turn("assistant", "Four.", reasoning=text) for text in ("", "2 + 2.", "")]
            return [(reply, [USER]) for reply in replies]
        called, result = Turn("assistant", "", calls=(CALL,)), Turn("tool", "4", answers=CALL)
        replies = [called, replace(called, content="I add."), replace(called, reasoning="2 + 2.")]
        probes = [(reply, [result]) for reply in (*replies, called)]
        form = find_form(self.tokenizer)
        if form is None or form.between is not None:
            probes.append((replace(called, calls=(CALL, CALL)), [result, result]))
        return probes

    @property
    def _end(self) -> str:
        return str(self.tokenizer.convert_ids_to_tokens(end_id(self.tokenizer)))

    @functools.cached_property
    def _defuse_text(self) -> Callable[[str], str]:
        """Function that breaks up spelled special tokens; slow if there are hundreds of these."""
        specials = special_token_texts(self.tokenizer)
        return functools.lru_cache(maxsize=CACHED_TEXTS)(lambda text: defuse(text, specials))

    def _render(self, turns: Sequence[Turn], tools: Tools, *, is_prompt: bool) -> str:
        try:
            return chat_template.render_turns(
                turns, self.tokenizer, self._to_json(tools), is_prompt=is_prompt
            )
        except chat_template.FAILURES as error:
            roles = ", ".join(turn.role for turn in turns)
            raise ValueError(f"chat template: it refuses messages of {roles}: {error}") from error

    def _to_json(self, tools: Tools) -> str | None:
        """JSON text of tools, without spelled special tokens."""
        return self._defuse_text(json.dumps(tools, ensure_ascii=False)) if tools else None

    def _read_turns(self, messages: Sequence[Message]) -> list[Turn]:
        """Messages as turns; the environment's are without spelled special tokens."""
        turns = link_results([_to_turn(message) for message in messages])
        return [turn if turn.role == "assistant" else self._defuse_turn(turn) for turn in turns]

    def _defuse_turn(self, turn: Turn) -> Turn:
        answers = turn.answers and replace(
            turn.answers, name=self._defuse_text(turn.answers.name),
            id=turn.answers.id and self._defuse_text(turn.answers.id),
        )  # fmt: skip
        return replace(turn, content=self._defuse_text(turn.content), answers=answers)

    def _cut_after_end(self, text: str) -> str:
        """A render up to the token that ends its last turn, the assistant's, included."""
        stem = text.rstrip()
        if not stem.endswith(self._end):
            # Phi's template writes the end of a turn, a newline, and the end of a sequence.
            eos = str(self.tokenizer.convert_ids_to_tokens(eos_id(self.tokenizer)))
            stem = stem.removesuffix(eos).rstrip()
        if not stem.endswith(self._end):
            raise ValueError(
                f"expected a chat template that ends each turn of the assistant with {self._end!r},"
                f" as a sampled turn ends, found {text[-SHOWN:]!r}. Correct the chat template"
            )
        return stem

    def _tokenize_after_end(self, text: str) -> list[int]:
        """Tokens of a text that follows the end of a turn."""
        (ids,) = tokenize([self._end + text], self.tokenizer)
        assert ids[0] == end_id(self.tokenizer)
        return ids[1:]

    def _parse(self, token_ids: Sequence[int], tools: Tools) -> Turn:
        """A turn, parsed by the tokenizer's `response_template`."""
        prefix = self._render([USER], tools, is_prompt=True)
        ends = end_ids(self.tokenizer)
        text = self.tokenizer.decode([token_id for token_id in token_ids if token_id not in ends])
        try:
            parsed: Any = self.tokenizer.parse_response(
                text, prefix=prefix, tools=[dict(tool) for tool in tools or ()]
            )
        except (ValueError, KeyError, RecursionError) as error:
            raise ReplyError(f"expected calls in the form of response_template: {error}") from error
        return _make_turn("assistant", parsed, ReplyError)


def make_episode_template(tokenizer: PreTrainedTokenizerBase) -> str:
    """Jinja chat template for episodes of a tokenizer without one."""
    ends = get_bos_text(tokenizer), tokenizer.convert_ids_to_tokens(eos_id(tokenizer))
    # Jinja does not support escapes of emoji.
    start, end = (json.dumps(text, ensure_ascii=False) for text in ends)
    return (
        f"{{{{- {start} + messages[0].content }}}}"
        "{%- for m in messages[1:] %}{%- if m.role == 'assistant' %}"
        "{%- if m.reasoning_content %}"
        "{{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{%- endif %}"
        "{{- m.content or '' }}{%- for call in m.tool_calls or [] %}"
        "{{- '<tool>' + {'name': call.function.name, 'arguments': call.function.arguments} | tojson"
        " + '</tool>' }}{%- endfor %}"
        f"{{{{- {end} }}}}"
        "{%- else %}{{- '\\n' + m.content + '\\n' }}{%- endif %}{%- endfor %}"
    )


def render_episode(renderer: TurnRenderer, episode: Episode) -> Episode:
    """An episode that was not sampled, with the tokens that a policy would sample for it.

    A ValueError if parsing a reply does not give the same message: equal calls, and content and
    reasoning that differ in white space or forms of letters at most.
    """
    messages, tools = list(episode.messages), episode.tools
    first = episode.num_start_messages
    ends = [i for i in range(first, len(messages)) if messages[i]["role"] == "assistant"]
    token_ids: list[int] = []
    sampled: list[tuple[int, int]] = []
    for end, following in zip(ends, [*ends[1:], None], strict=True):
        reply = messages[end]
        reply_ids = renderer.render_reply(messages[:end], reply, tools)
        read = renderer.read_reply(reply_ids, tools)
        if _list_parts(read) != _list_parts(reply):
            raise ValueError(
                f"expected a message whose content, reasoning and calls are the same after "
                f"parsing, found {reply!r:.200}, and after parsing {read!r:.200}: name the tools "
                f"that `start` returns, write arguments as an object, and take a chat template "
                f"that renders all of it"
            )
        sampled.append((len(token_ids), len(token_ids) + len(reply_ids)))
        token_ids += reply_ids
        if following is not None:
            new = messages[end + 1 : following]
            token_ids += renderer.render_new(messages[: end + 1], new, tools)
    prompt_ids = renderer.render_start(messages[:first], tools)
    return replace(episode, prompt_ids=prompt_ids, token_ids=token_ids, sampled=sampled)


def _list_parts(message: Message) -> tuple[str, str, list[Any]]:
    """Reasoning, content and functions of calls; texts without white space and forms of letters.

    Templates trim texts, and tokenizers normalise letters. A thought within content is reasoning.
    """
    turn = _make_turn("assistant", message, ValueError)
    texts = (turn.reasoning, turn.content) if turn.reasoning else split_thought(turn.content)
    plain = ["".join(unicodedata.normalize("NFKC", text).split()) for text in texts]
    return plain[0], plain[1], [call["function"] for call in message.get("tool_calls") or ()]


@once_per_template
def _find_begun_thought(tokenizer: PreTrainedTokenizerBase) -> str:
    """Text that the template writes before each turn of the assistant to begin a thought."""
    return find_begun_thought(chat_template.render_chat([USER], tokenizer))


_make_decode = once_per_template(make_decode)


def _to_turn(message: Message) -> Turn:
    role, content = message.get("role"), message.get("content")
    if role not in ROLES or not isinstance(content, str | None):
        raise ValueError(
            f"environment: expected messages with a role of {', '.join(ROLES)} and content that is "
            f"text, found {dict(message)!r:.200}. Correct what the environment returns"
        )
    name, number = message.get("name"), message.get("tool_call_id")
    answers = ToolCall(name or "", "{}", number) if role == "tool" and (name or number) else None
    return replace(_make_turn(role, message, ValueError), answers=answers)


def _make_turn(role: str, message: Message, error: type[ValueError]) -> Turn:
    """Content, thoughts and calls of a message; raises `error` for an invalid call."""
    calls = list[ToolCall]()
    for index, entry in enumerate(message.get("tool_calls") or ()):
        call = read_call(entry, index)
        if call is None:
            raise error(
                f"expected a call with a name and an object of arguments, found {entry!r:.200}"
            )
        calls.append(call)
    reasoning = next((message[key] for key in REASONING_KEYS if message.get(key)), "")
    content = message.get("content") or ""
    return Turn(role, content, calls=tuple(calls), reasoning=reasoning)


def _to_message(turn: Turn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": turn.role, "content": turn.content}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.calls:
        message["tool_calls"] = [
            {
                "type": "function",
                "id": call.id,
                "function": {"name": call.name, "arguments": json.loads(call.arguments)},
            }
            for call in turn.calls
        ]
    return message
