"""Prompts and demonstrations of problems and conversations, as text and as tokens.

Text is tokenised once, here. A prompt and its completion are tokenised separately, as they are when
the model samples, so demonstrations have the tokens that sampling would have.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages import meter
from stages.models import chat_template
from stages.models.chat_template import begin_reply, render_chat
from stages.models.model_tokenizer import end_id, is_of_thought, make_decode
from stages.records.problems import (
    THOUGHTS,
    Demonstration,
    Exchange,
    Problem,
    Prompt,
    Turn,
    find_begun_thought,
    find_open_thought,
)
from stages.records.transcripts import earlier_turns, render_transcript
from stages.rewards.feedback.prompts import defuse

TASK, CHAT = "solve", "chat"
PLACEHOLDER = "{question}"
UNREADABLE = "unreadable solution"
NEWLINE, LETTER = "\n", "a"
TOKENIZED_AT_ONCE = 1000
"""Problems tokenised in one call: the tokenizer keeps much more of a text than its ids."""
MAX_TOKENIZER_PROBLEMS = 20_000
"""Problems whose texts train the tokenizer of the tiny model."""


class EncodedProblem(NamedTuple):
    """A tokenised problem, or the reason why it cannot be used."""

    problem: Problem
    split: str | None
    """None: an earlier turn of a conversation, which is a demonstration and no prompt."""
    prompt: Prompt | None = None
    demonstration: Demonstration | None = None
    """Demonstration of the solution, or of an assistant's earlier turn, in the train split."""
    reason: str | None = None


def tokenizer_texts(
    problems: Sequence[Problem], template: str, exchanges: Sequence[Exchange] = ()
) -> Iterator[str]:
    """Training texts of a tokenizer: prompts followed by their solutions, then other tasks.

    Only of the first problems: these are enough to find the most frequent pairs of letters.
    """
    for problem in problems[:MAX_TOKENIZER_PROBLEMS]:
        yield fill_template(template, problem.question) + (problem.solution or "")
    for exchange in exchanges:
        yield exchange.message + exchange.reply


def fill_template(template: str, question: str) -> str:
    """`template` with the question; a ValueError if it has no `{question}`."""
    if PLACEHOLDER not in template:
        raise ValueError(f"expected a template with {PLACEHOLDER} in it, found {template!r}")
    return template.replace(PLACEHOLDER, question)


def render_prompts(
    questions: Sequence[str], tokenizer: PreTrainedTokenizerBase, template: str
) -> list[str]:
    """Texts of prompts, by the tokenizer's chat template if it has one.

    With a chat template the filled `template` is the user's message. Without one it is the prompt,
    after the begin-of-sequence token if the tokenizer adds one to any text.
    """
    messages = [fill_template(template, question) for question in questions]
    if not messages:
        return []
    if tokenizer.chat_template is None:
        start = get_bos_text(tokenizer)
        return [start + message for message in messages]
    return [render_chat([Turn("user", message.strip())], tokenizer) for message in messages]


def render_conversation(
    turns: Sequence[Turn], tokenizer: PreTrainedTokenizerBase
) -> tuple[str, str]:
    """Prompt of a conversation, and the lead: text before the reply, empty with a chat template.

    Without one the prompt is a transcript, and the lead the space after its `Assistant:`.
    """
    if tokenizer.chat_template is not None:
        return render_chat(turns, tokenizer), ""
    return get_bos_text(tokenizer) + render_transcript(turns), " "


@functools.lru_cache(maxsize=8)
def get_bos_text(tokenizer: PreTrainedTokenizerBase) -> str:
    """Text of the begin-of-sequence token if the tokenizer begins texts with it, else empty."""
    with_special = tokenizer("1", add_special_tokens=True)["input_ids"]
    starts = bool(with_special) and with_special[0] == tokenizer.bos_token_id
    return str(tokenizer.bos_token) if starts else ""


def get_text_start(tokenizer: PreTrainedTokenizerBase) -> str:
    """Begin-of-sequence text with which every prompt starts; empty if the template has none."""
    start = get_bos_text(tokenizer)
    if tokenizer.chat_template is None or render_chat([Turn("user", "Hi")], tokenizer).startswith(
        start
    ):
        return start
    return ""


def encode_problems(
    splits: Mapping[str, Sequence[Problem]],
    tokenizer: PreTrainedTokenizerBase,
    *,
    template: str,
    max_prompt_tokens: int,
    max_completion_tokens: int,
    readable: Callable[[str, str], bool],
) -> Iterator[EncodedProblem]:
    """Prompts of every split, and the solutions of the train split as demonstrations.

    The assistant's earlier turns in conversations are demonstrations, too (`earlier_turns`), and
    come last. A problem is rejected if it is too long or spells a special token, or if the chat
    template refuses its turns or loses some of their text. It is also rejected if its solution ends
    within a thought, or if it has a gold answer and its solution, encoded and decoded, is not
    `readable` to the answer checker.
    """
    specials, in_answers = special_token_texts(tokenizer), answer_special_texts(tokenizer)
    decode, end = make_decode(tokenizer), end_id(tokenizer)
    parts = [*splits.items(), (None, earlier_turns(splits.get("train", ())))]
    for split, problem, text in _render_parts(parts, tokenizer, template):
        completion_ids = [*text.solution_ids, end] if text.solution else []
        # No text by people may spell a special token; nor may reasoning, the reply's included:
        # it would end where it spells the end of a thought.
        turns = (*(problem.turns or ()), *([] if problem.reply is None else [problem.reply]))
        context = [problem.question, problem.tools or "", *(turn.reasoning for turn in turns)]
        written = problem.solution or "" if text.solution else ""
        reason = text.refused or find_special_token(specials, *context)
        reason = reason or find_special_token(in_answers, written)
        if not reason and text.solution and problem.answer is not None:
            shown = find_begun_thought(text.prompt) + decode(text.solution_ids)
            if not readable(shown, problem.answer):
                reason = f"{UNREADABLE}: no final answer at the end of {shown[-60:]!r}"
        if not reason and (begin := find_open_thought(written)):
            ending = THOUGHTS[begin]
            reason = f"truncated reply: expected {ending!r} after the thought that {begin!r} begins"
        reason = reason or _find_over_long("prompt", text.prompt_ids, max_prompt_tokens)
        reason = reason or _find_over_long("solution", completion_ids, max_completion_tokens)
        if reason:
            yield EncodedProblem(problem, split, reason=reason)
            continue
        row: dict[str, Any] = {
            "id": problem.id, "task": TASK if problem.turns is None else CHAT,
            "prompt": text.prompt, "prompt_ids": text.prompt_ids,
        }  # fmt: skip
        prompt = demonstration = None
        if split is not None:
            prompt = Prompt(**row, question=problem.question, answer=problem.answer)
        if text.solution:
            demonstration = Demonstration(
                **row, completion=text.solution, completion_ids=completion_ids
            )
        yield EncodedProblem(problem, split, prompt, demonstration)


@dataclass(kw_only=True, slots=True)
class RenderedProblem:
    """Prompt and solution of a problem, as texts and as tokens."""

    prompt: str = ""
    solution: str = ""
    """Empty if it is not to be imitated."""
    refused: str | None = None
    """Reason why the chat template refuses the problem; None: it does not."""
    prompt_ids: list[int] = field(default_factory=list)
    solution_ids: list[int] = field(default_factory=list)


def _render_parts(
    parts: Iterable[tuple[str | None, Iterable[Problem]]], tokenizer: PreTrainedTokenizerBase,
    template: str,
) -> Iterator[tuple[str | None, Problem, RenderedProblem]]:  # fmt: skip
    """The problems of all parts, rendered and tokenised in chunks."""
    for split, problems in parts:
        rest = iter(problems)
        while batch := list(itertools.islice(rest, TOKENIZED_AT_ONCE)):
            solve = split in ("train", None)
            texts = [_render(problem, tokenizer, template, solve=solve) for problem in batch]
            prompt_ids = tokenize([text.prompt for text in texts], tokenizer)
            solution_ids = tokenize_continuation([text.solution for text in texts], tokenizer)
            for problem, text, *ids in zip(batch, texts, prompt_ids, solution_ids, strict=True):
                text.prompt_ids, text.solution_ids = ids
                yield split, problem, text


def _find_over_long(name: str, token_ids: Sequence[int], limit: int) -> str | None:
    length = len(token_ids)
    return f"over-long {name}: {length} tokens, at most {limit}" if length > limit else None


def _render(
    problem: Problem, tokenizer: PreTrainedTokenizerBase, template: str, *, solve: bool
) -> RenderedProblem:
    """The texts of a problem; `solve`: with its solution."""
    lead, turns, reply = "", problem.turns or (), problem.reply
    if problem.is_text and problem.turns is None:
        (prompt,) = render_prompts([problem.question], tokenizer, template)
    else:
        try:
            if not problem.is_text:  # more than text: only by the chat template
                if reply is None and problem.solution:
                    reply = Turn("assistant", problem.solution)
                spoken = turns if reply is None else (*turns, reply)
                if refused := chat_template.find_unrendered(spoken, tokenizer, problem.tools):
                    return RenderedProblem(refused=refused)
                if reply is None or not solve:
                    return RenderedProblem(prompt=render_chat(turns, tokenizer, problem.tools))
                texts = chat_template.render_reply(turns, reply, tokenizer, problem.tools)
                return RenderedProblem(prompt=texts[0], solution=texts[1])
            prompt, lead = render_conversation(turns, tokenizer)
        except chat_template.FAILURES as error:
            return RenderedProblem(refused=f"chat template: it refuses these turns: {error}")
    solution = problem.solution or "" if solve else ""
    if solution:
        solution = begin_reply(prompt, lead + solution, tokenizer)
    return RenderedProblem(prompt=prompt, solution=solution)


def encode_exchanges(
    exchanges: Sequence[Exchange], tokenizer: PreTrainedTokenizerBase, max_prompt_tokens: int
) -> list[Demonstration]:
    """Messages and replies of any task as demonstrations; a ValueError if one is too long."""
    problems = [
        Problem(
            id=row.id, question=row.message, solution=row.reply, answer=None, split=None, line=1
        )
        for row in exchanges
    ]  # fmt: skip
    rendered = _render_parts([("train", problems)], tokenizer, PLACEHOLDER)
    demonstrations = [
        Demonstration(
            id=row.id, task=row.task, prompt=text.prompt, prompt_ids=text.prompt_ids,
            completion=text.solution, completion_ids=[*text.solution_ids, end_id(tokenizer)],
        )
        for row, (_, _, text) in zip(exchanges, rendered, strict=True)
    ]  # fmt: skip
    longest = max(demonstrations, key=lambda row: len(row.prompt_ids), default=None)
    if longest is not None and len(longest.prompt_ids) > max_prompt_tokens:
        raise ValueError(
            f"expected prompts of at most {max_prompt_tokens} tokens, found "
            f"{len(longest.prompt_ids)} in a '{longest.task}' of problem '{longest.id}': raise "
            f"data.mixture.max_prompt_tokens, or take shorter problems"
        )
    return demonstrations


def tokenize(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """Token ids of rendered texts: no tokens are added, special tokens in them are read as such."""
    if not texts:
        return []
    meter.COUNTS["texts"] += len(texts)
    encoded: Any = tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False)
    return encoded["input_ids"]


def tokenize_continuation(
    texts: Sequence[str], tokenizer: PreTrainedTokenizerBase
) -> list[list[int]]:
    """Token ids of texts that follow another text, as a completion follows its prompt.

    Tokenizers like SentencePiece's (Llama 2, Mistral 0.1, Zephyr) put a space before a text. After
    a prompt it would be a token that neither the chat template nor the model writes there.
    """
    if not _begins_with_space(tokenizer):
        return tokenize(texts, tokenizer)
    # Two newlines are one token in some vocabularies.
    starts = [LETTER if text.startswith(NEWLINE) else NEWLINE for text in texts]
    lengths = [len(ids) for ids in tokenize(starts, tokenizer)]
    rows = tokenize([start + text for start, text in zip(starts, texts, strict=True)], tokenizer)
    return [row[length:] for row, length in zip(rows, lengths, strict=True)]


@functools.lru_cache(maxsize=8)
def _begins_with_space(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the start of a text has other tokens than the same text after a newline."""
    texts = [NEWLINE, LETTER, NEWLINE + LETTER]
    encoded = tokenizer(texts, add_special_tokens=False)["input_ids"]
    newline, letter, both = map(list, encoded)  # pyright: ignore[reportArgumentType]
    return newline + letter != both


def special_token_texts(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The spelling of every special token."""
    added = tokenizer.added_tokens_decoder.values()
    return sorted(
        {token.content for token in added if token.special} | set(tokenizer.all_special_tokens)
    )


def answer_special_texts(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """`special_token_texts` that an answer may not spell: it may have a thought, as sampled."""
    return [text for text in special_token_texts(tokenizer) if not is_of_thought(text)]


def find_special_token(specials: Sequence[str], *texts: str) -> str | None:
    """Reason to refuse texts that spell a special token, and would be read as that; else None."""
    spelled = next((token for token in specials if any(token in text for text in texts)), None)
    return None if spelled is None else f"special token: the text contains {spelled!r}"


def tokenize_messages(
    messages: Sequence[str], tokenizer: PreTrainedTokenizerBase
) -> list[list[int]]:
    """Token ids of messages as prompts; texts that spell a special token are defused."""
    specials = special_token_texts(tokenizer)
    plain = [defuse(message, specials) for message in messages]
    return tokenize(render_prompts(plain, tokenizer, PLACEHOLDER), tokenizer)
