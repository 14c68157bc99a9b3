"""Prompts and demonstrations of problems and conversations, as text and as tokens.

Text is tokenised once, here. A prompt and its completion are tokenised separately, as they are when
the model samples, so demonstrations have the tokens that sampling would have.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jinja2 import TemplateError
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages import meter
from stages.auto import Facts
from stages.models.model_tokenizer import end_id, is_of_thought, make_decode
from stages.records.problems import (
    THOUGHTS,
    Demonstration,
    Exchange,
    Problem,
    Prompt,
    Turn,
    find_begun_thought,
)
from stages.records.transcripts import earlier_turns, render_transcript
from stages.rewards.feedback.prompts import defuse

TASK, CHAT = "solve", "chat"
PLACEHOLDER = "{question}"
UNREADABLE = "unreadable solution"
TOKENIZED_AT_ONCE = 1000
"""Texts."""


@dataclass(kw_only=True, slots=True)
class EncodedProblems:
    """Tokenised problems; each list in the order of the problems."""

    prompts: dict[str, list[Prompt]] = field(default_factory=dict)
    """By split."""
    demonstrations: list[Demonstration] = field(default_factory=list)
    """Solutions of the train split, and the assistant's earlier turns there."""
    rejected: list[tuple[Problem, str]] = field(default_factory=list)
    """Problems that cannot be used, each with the reason."""

    @property
    def unreadable(self) -> list[str]:
        """Reasons of the problems whose solution states no readable answer."""
        return [reason for _, reason in self.rejected if reason.startswith(UNREADABLE)]


def tokenizer_texts(
    problems: Sequence[Problem], template: str, exchanges: Sequence[Exchange] = ()
) -> list[str]:
    """Training texts of a tokenizer: prompts followed by their solutions, then other tasks."""
    solutions = [
        template.replace(PLACEHOLDER, problem.question) + (problem.solution or "")
        for problem in problems
    ]
    return [*solutions, *(exchange.message + exchange.reply for exchange in exchanges)]


def render_prompts(
    questions: Sequence[str], tokenizer: PreTrainedTokenizerBase, template: str
) -> list[str]:
    """Texts of prompts, by the tokenizer's chat template if it has one.

    With a chat template the filled `template` is the user's message. Without one it is the
    prompt itself, after the begin-of-sequence token where the tokenizer adds one to any text.
    """
    messages = [template.replace(PLACEHOLDER, question) for question in questions]
    if not messages:
        return []
    if tokenizer.chat_template is None:
        start = get_bos_text(tokenizer)
        return [start + message for message in messages]
    return [render_chat([Turn("user", message.strip())], tokenizer) for message in messages]


def render_chat(turns: Sequence[Turn], tokenizer: PreTrainedTokenizerBase) -> str:
    """Text of a conversation that the assistant is to continue, by the chat template."""
    messages = [{"role": turn.role, "content": turn.content} for turn in turns]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return str(text)


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
    """Text of the begin-of-sequence token if the tokenizer starts a text with it, else empty."""
    with_special = tokenizer("1", add_special_tokens=True)["input_ids"]
    starts = bool(with_special) and with_special[0] == tokenizer.bos_token_id
    return str(tokenizer.bos_token) if starts else ""


def get_text_start(tokenizer: PreTrainedTokenizerBase) -> str:
    """Begin-of-sequence text with which every prompt starts; empty where the template has none."""
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
) -> EncodedProblems:
    """Prompts of every split, and the solutions of the train split as demonstrations.

    Of a conversation the assistant's earlier turns are demonstrations, too (`earlier_turns`). A
    problem is rejected if it is longer than allowed, spells a special token, if the chat template
    refuses its turns, or if its solution, once encoded and decoded, is not `readable` to the answer
    checker, though the problem has a gold answer.
    """
    encoded = EncodedProblems(prompts={split: [] for split in splits})
    specials, in_answers = special_token_texts(tokenizer), answer_special_texts(tokenizer)
    decode, end = make_decode(tokenizer), end_id(tokenizer)
    parts = [*splits.items(), (None, list(earlier_turns(splits.get("train", ()))))]
    for split, problems in parts:
        prompts, leads, refused = _render_problems(problems, tokenizer, template)
        has_demonstrations = split in ("train", None)
        solutions = [
            close_thinking(prompt) + lead + problem.solution
            if has_demonstrations and problem.solution
            else ""
            for problem, prompt, lead in zip(problems, prompts, leads, strict=True)
        ]
        token_ids = tokenize(prompts, tokenizer), tokenize(solutions, tokenizer)
        rows = zip(problems, prompts, solutions, *token_ids, strict=True)
        for problem, prompt, solution, prompt_ids, solution_ids in rows:
            completion_ids = [*solution_ids, end] if solution else []
            text = decode(solution_ids)
            reason = refused.get(problem.id)
            reason = reason or find_special_token(specials, problem.question)
            reason = reason or find_special_token(in_answers, solution)
            if reason:
                pass
            elif solution and problem.answer is not None and not readable(text, problem.answer):
                reason = f"{UNREADABLE}: no final answer at the end of {text[-60:]!r}"
            else:
                reason = _find_over_long("prompt", prompt_ids, max_prompt_tokens)
                reason = reason or _find_over_long(
                    "solution", completion_ids, max_completion_tokens
                )
            if reason:
                encoded.rejected.append((problem, reason))
                continue
            task = TASK if problem.turns is None else CHAT
            row: dict[str, Any] = {"id": problem.id, "task": task}
            row |= {"prompt": prompt, "prompt_ids": prompt_ids}
            # An earlier turn of a conversation is a demonstration, and no prompt.
            encoded.prompts.get(split or "", []).append(
                Prompt(**row, question=problem.question, answer=problem.answer)
            )
            if solution:
                encoded.demonstrations.append(
                    Demonstration(**row, completion=solution, completion_ids=completion_ids)
                )
    return encoded


def _find_over_long(name: str, token_ids: Sequence[int], limit: int) -> str | None:
    length = len(token_ids)
    return f"over-long {name}: {length} tokens, at most {limit}" if length > limit else None


def close_thinking(prompt: str) -> str:
    """End of the thinking block that a template has begun at the end of `prompt`; else empty.

    A solution in the data is an answer without thinking: it follows an empty block.
    """
    begin = find_begun_thought(prompt)
    return f"\n{THOUGHTS[begin]}\n\n" if begin else ""


def measure_data(encoded: EncodedProblems, facts: Facts) -> Facts:
    """`facts` with the lengths and counts of the data."""
    prompts = [row for rows in encoded.prompts.values() for row in rows]
    lengths = [len(row.completion_ids) for row in encoded.demonstrations]
    # The length of a few solutions says nothing about the others.
    are_known = len(lengths) >= 0.01 * len(encoded.prompts["train"])
    return replace(
        facts,
        prompt_tokens=max(len(row.prompt_ids) for row in prompts),
        completion_tokens=max(lengths, default=0) if are_known else 0,
        train_prompts=len(encoded.prompts["train"]),
        demonstrations=len(lengths),
        thinks=facts.thinks or bool(close_thinking(prompts[0].prompt)),
    )


def _render_problems(
    problems: Sequence[Problem], tokenizer: PreTrainedTokenizerBase, template: str
) -> tuple[list[str], list[str], dict[str, str]]:
    """Prompts, the lead of each reply, and for those refused the reason by the problem's id."""
    plain = [problem.question for problem in problems if problem.turns is None]
    rendered = iter(render_prompts(plain, tokenizer, template))
    prompts, leads, refused = list[str](), list[str](), dict[str, str]()
    for problem in problems:
        prompt, lead = "", ""
        if problem.turns is None:
            prompt = next(rendered)
        else:
            try:
                prompt, lead = render_conversation(problem.turns, tokenizer)
            except TemplateError as error:
                refused[problem.id] = f"chat template: it refuses these turns: {error}"
        prompts.append(prompt)
        leads.append(lead)
    return prompts, leads, refused


def encode_exchanges(
    exchanges: Sequence[Exchange], tokenizer: PreTrainedTokenizerBase, max_prompt_tokens: int
) -> list[Demonstration]:
    """Messages and replies of any task as demonstrations; a ValueError for a too long one."""
    prompts = render_prompts([row.message for row in exchanges], tokenizer, PLACEHOLDER)
    pairs = zip(exchanges, prompts, strict=True)
    replies = [close_thinking(prompt) + exchange.reply for exchange, prompt in pairs]
    encoded = tokenize(prompts, tokenizer), tokenize(replies, tokenizer)
    end = end_id(tokenizer)
    rows = zip(exchanges, prompts, replies, *encoded, strict=True)
    demonstrations = [
        Demonstration(
            id=row.id,
            task=row.task,
            prompt=prompt,
            prompt_ids=prompt_ids,
            completion=reply,
            completion_ids=[*reply_ids, end],
        )
        for row, prompt, reply, prompt_ids, reply_ids in rows
    ]
    longest = max(demonstrations, key=lambda row: len(row.prompt_ids), default=None)
    if longest is not None and len(longest.prompt_ids) > max_prompt_tokens:
        raise ValueError(
            f"expected prompts of at most {max_prompt_tokens} tokens, found "
            f"{len(longest.prompt_ids)} in a '{longest.task}' of problem '{longest.id}': raise "
            f"data.mixture.max_prompt_tokens, or take shorter problems"
        )
    return demonstrations


def tokenize(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """Token ids of rendered texts: no tokens are added, special tokens in them are read as such.

    In parts, since the tokenizer keeps much more of a text than its ids; equal ids are one object.
    """
    shared: dict[int, int] = {}
    rows: list[list[int]] = []
    for start in range(0, len(texts), TOKENIZED_AT_ONCE):
        part = list(texts[start : start + TOKENIZED_AT_ONCE])
        encoded = tokenizer(part, add_special_tokens=False, return_attention_mask=False)
        meter.COUNTS["texts"] += len(part)
        rows += [[shared.setdefault(token, token) for token in ids] for ids in encoded["input_ids"]]
    return rows


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
