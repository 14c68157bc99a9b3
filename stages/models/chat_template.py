"""Rendering of conversations by a model's chat template: prompts, and replies with tool calls.

The text of a reply is what the template adds to the prompt when the reply is a turn, up to the
token that ends a turn: content, reasoning and calls as the model writes them. Some templates leave
out parts of a turn, tools or their results. So each kind of turn is tried once, with a small
conversation whose words must be in the text.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from jinja2 import TemplateError
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models.model_tokenizer import end_id, eos_id, once_per_template
from stages.records.problems import REASONING_KEYS, THOUGHTS, ToolCall, Turn, find_begun_thought

USER = Turn("user", "How many?")
PARAMETERS = {"type": "object", "properties": {"x": {"type": "integer", "description": "one"}}}
TOOLS = json.dumps([{"type": "function", "function": {
    "name": "add", "description": "Adds one", "parameters": PARAMETERS}}])  # fmt: skip
ID = "abcdefghi"
"""Of nine characters, as Mistral's templates require."""
CALL = ToolCall("add", '{"x": 4711}', ID)
WORDS = {"content": ("Wait.",), "reasoning": ("So it is.",), "calls": (CALL.name, "4711")}
"""Words that the text of each part of an assistant's turn must contain."""
FAILURES = (TemplateError, TypeError, ValueError)
"""Exceptions of a template that cannot render a conversation."""


def render_chat(
    turns: Sequence[Turn], tokenizer: PreTrainedTokenizerBase, tools: str | None = None
) -> str:
    """Text of a conversation that the assistant is to continue; TemplateError if it is refused."""
    return render_turns(turns, tokenizer, tools, is_prompt=True)


def render_reply(
    turns: Sequence[Turn], reply: Turn, tokenizer: PreTrainedTokenizerBase, tools: str | None
) -> tuple[str, str]:
    """Prompt and reply; the reply up to, and without, the end of the turn (`end_id`).

    If the prompt begins a thought that the template does not begin in the reply's turn, the reply
    continues it (`_continue_thought`).

    Raises:
        TemplateError: the template refuses the turns, or renders the reply otherwise than after a
            prompt.
    """
    prompt = render_chat(turns, tokenizer, tools)
    whole = render_turns([*turns, reply], tokenizer, tools, is_prompt=False)
    start, begun = prompt, ""
    if not whole.startswith(prompt) and (begun := find_begun_thought(prompt)):
        start = prompt.rstrip().removesuffix(begun)
    if not whole.startswith(start):
        raise TemplateError("it renders a reply otherwise than after the prompt that asks for it")
    completion = whole[len(start) :].rstrip()
    # Phi's template writes the end of a turn, a newline, and the end of a sequence.
    for token_id in dict.fromkeys((eos_id(tokenizer), end_id(tokenizer))):
        token = str(tokenizer.convert_ids_to_tokens(token_id))
        if completion.rstrip().endswith(token):
            completion = completion.rstrip().removesuffix(token)
    return prompt, _continue_thought(begun, completion, completion) if begun else completion


def close_thinking(prompt: str) -> str:
    """End of the thinking block that a template has begun at the end of `prompt`; else empty.

    A solution in the data is an answer without thinking: it follows an empty block.
    """
    begin = find_begun_thought(prompt)
    return f"\n{THOUGHTS[begin]}\n\n" if begin else ""


ANSWER = "Four it is."


def begin_reply(
    prompt: str, reply: str, tokenizer: PreTrainedTokenizerBase, whole: str | None = None
) -> str:
    """A reply that follows a prompt, with the text that the chat template writes before it.

    Often there is none. Else it is the end of a thought that the prompt has begun, Qwen3's empty
    thought, the channel of gpt-oss, or Llama 2's space. A reply with a thought needs none: a start
    mark that the prompt has, too, is cut, and one that both lack is written.

    Args:
        prompt: It may end in the start mark of a thought.
        reply: A text, or the beginning of one.
        tokenizer: With a chat template or without one.
        whole: The whole text, which shows whether there is a thought; None: `reply` is the whole.
    """
    whole = reply if whole is None else whole
    if begun := find_begun_thought(prompt):
        return _continue_thought(begun, reply, whole)
    if tokenizer.chat_template is None or whole.lstrip().startswith(tuple(THOUGHTS)):
        return reply
    ended = (begin for begin in _find_marks(tokenizer) if _ends_thought(whole, begin))
    begin = next(ended, None)
    return _find_lead(tokenizer) + reply if begin is None else f"{begin}\n{reply.lstrip()}"


def _continue_thought(begun: str, reply: str, whole: str) -> str:
    """A reply after a prompt with the start mark `begun`, so that both have each mark once.

    A reply without a thought follows an empty one. `whole`: as in `begin_reply`.
    """
    if whole.lstrip().startswith(begun):
        return reply.lstrip().removeprefix(begun).lstrip()
    return reply if _ends_thought(whole, begun) else close_thinking(begun) + reply


def _ends_thought(reply: str, begin: str) -> bool:
    """Whether a reply has the end mark of a thought, and no start mark before it."""
    return THOUGHTS[begin] in reply.partition(begin)[0]


@once_per_template
def _find_marks(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """Start marks of the thoughts whose end mark is in the chat template or the vocabulary.

    Other marks are plain text to the model, which an answer may mention.
    """
    text = str(tokenizer.chat_template)
    tokens = {token.content for token in tokenizer.added_tokens_decoder.values()}
    return tuple(begin for begin, end in THOUGHTS.items() if end in text or end in tokens)


@once_per_template
def _find_lead(tokenizer: PreTrainedTokenizerBase) -> str:
    try:
        _, reply = render_reply([USER], Turn("assistant", ANSWER), tokenizer, None)
    except FAILURES:
        return ""
    lead, answer, _ = reply.partition(ANSWER)
    return lead if answer else ""


def find_unrendered(
    turns: Iterable[Turn], tokenizer: PreTrainedTokenizerBase, tools: str | None
) -> str | None:
    """Reason to refuse a conversation: a part that the template leaves out; None: there is none."""
    if tokenizer.chat_template is None:
        return (
            "chat template: the model has none, and nothing else renders tools, their calls and "
            "results, or reasoning. Take a model with one that does, or name the keys to drop "
            "under `ignore`"
        )
    kinds = ["tools"] if tools is not None else []
    kinds += ["results" for turn in turns if turn.role == "tool"]
    kinds += [
        "+".join(part for part in ("content", "reasoning", "calls") if getattr(turn, part))
        for turn in turns if turn.calls or turn.reasoning
    ]  # fmt: skip
    reasons = (find_lost_part(tokenizer, kind) for kind in dict.fromkeys(kinds))
    return next((reason for reason in reasons if reason is not None), None)


@once_per_template
def find_lost_part(tokenizer: PreTrainedTokenizerBase, kind: str) -> str | None:
    """Reason to refuse a chat template: a part of a conversation that it leaves out; else None.

    Args:
        tokenizer: It has a chat template.
        kind: `tools`, `results`, or the parts of an assistant's turn, joined by +.
    """
    parts = kind.split("+")
    called = Turn("assistant", "", calls=(CALL,))
    try:
        if kind == "tools":
            text, words = render_chat([USER], tokenizer, TOOLS), {kind: ("Adds one",)}
        elif kind == "results":
            result, words = Turn("tool", "Nine.", answers=CALL), {kind: ("Nine.",)}
            text = render_turns([USER, called, result], tokenizer, TOOLS, is_prompt=False)
        else:
            words = {part: WORDS[part] for part in parts}
            turn = Turn(
                "assistant", " ".join(words.get("content", ())),
                calls=(CALL,) if "calls" in parts else (),
                reasoning=" ".join(words.get("reasoning", ())),
            )  # fmt: skip
            _, text = render_reply([USER], turn, tokenizer, TOOLS)
    except FAILURES as error:
        return f"chat template: it takes no {' and '.join(parts)}: {error}"
    lost = next((part for part in words if any(word not in text for word in words[part])), None)
    if lost is None:
        return None
    where = f" of a turn of {' and '.join(parts)}" if len(parts) > 1 else ""
    name = f"tool {lost}" if lost in ("calls", "results") else lost
    drop = "" if lost in ("content", "results") else ", or drop them (`ignore`)"
    return (
        f"chat template: it does not render {name}{where}. Take a model whose template renders "
        f"them{drop}"
    )


def render_turns(
    turns: Sequence[Turn], tokenizer: PreTrainedTokenizerBase, tools: str | None, *,
    is_prompt: bool,
) -> str:  # fmt: skip
    """Text of a conversation; with `is_prompt`, ready for the assistant's next turn.

    TemplateError if the template refuses it, or leaves out a turn of a prompt.
    """
    roles = tuple(turn.role for turn in turns if turn.is_text)
    if is_prompt and (lost := find_lost_turn(tokenizer, roles)):
        raise TemplateError(lost)
    are_texts = takes_text_arguments(tokenizer) if any(turn.calls for turn in turns) else False
    text = tokenizer.apply_chat_template(
        [_to_message(turn, are_texts=are_texts) for turn in turns],
        tools=None if tools is None else json.loads(tools),
        add_generation_prompt=is_prompt,
        tokenize=False,
    )
    return str(text)


@once_per_template
def find_lost_turn(tokenizer: PreTrainedTokenizerBase, roles: tuple[str, ...]) -> str | None:
    """Reason to refuse a prompt of turns with these roles: one that its text lacks; else None.

    Many templates ignore a system turn; those of models that read images may ignore content that is
    a text and not a list of parts.
    """
    messages = [{"role": role, "content": f"Words {i}."} for i, role in enumerate(roles)]
    try:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    except FAILURES:
        return None  # an error of the conversation itself
    lost = next((message for message in messages if message["content"] not in str(text)), None)
    if lost is None:
        return None
    return (
        f"it renders nothing of a turn of the {lost['role']}. Take a model whose template renders "
        f"it, or put its text into the user's last turn"
    )


@once_per_template
def takes_text_arguments(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the template takes arguments of calls as JSON text, and not as an object.

    It does if it cannot render an object, or prints it as Python does.
    """
    message = _to_message(Turn("assistant", "", calls=(CALL,)), are_texts=False)
    messages = [_to_message(USER, are_texts=False), message]
    try:
        text = tokenizer.apply_chat_template(messages, tools=json.loads(TOOLS), tokenize=False)
    except FAILURES:
        return True
    return str(json.loads(CALL.arguments)) in str(text)


def _to_message(turn: Turn, *, are_texts: bool) -> dict[str, Any]:
    """A turn as a message for chat templates."""
    message: dict[str, Any] = {"role": turn.role, "content": turn.content}
    if turn.reasoning:
        message |= dict.fromkeys(REASONING_KEYS, turn.reasoning)
    if turn.calls:
        message["tool_calls"] = [
            ({} if call.id is None else {"id": call.id}) | {"type": "function", "function": {
                "name": call.name,
                "arguments": call.arguments if are_texts else json.loads(call.arguments),
            }}
            for call in turn.calls
        ]  # fmt: skip
    if turn.answers is not None:
        message |= {"name": turn.answers.name} if turn.answers.name else {}
        message |= {"tool_call_id": turn.answers.id} if turn.answers.id is not None else {}
    return message
