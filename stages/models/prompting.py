"""Render problems and conversations as prompts and demonstrations, in text and in tokens.

Text is tokenised once, here. A prompt and its completion are tokenised apart, as they are when the
model samples, so what is learned is what is generated.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jinja2 import TemplateError
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.auto import Facts
from stages.models.model_tokenizer import eos_id
from stages.records.preferences import Turn
from stages.records.problems import THINK, THOUGHT, Demonstration, Exchange, Problem, Prompt
from stages.rewards.feedback.prompts import defuse
from stages.sources.conversations import earlier_turns, render_transcript

TASK, CHAT = "solve", "chat"
PLACEHOLDER = "{question}"
UNREADABLE = "unreadable solution"


@dataclass(kw_only=True, slots=True)
class EncodedProblems:
    """All problems in tokens; each list in the order of the problems."""

    prompts: dict[str, list[Prompt]] = field(default_factory=dict)
    """By split."""
    demonstrations: list[Demonstration] = field(default_factory=list)
    """The solutions of the train split, and the assistant's earlier turns there."""
    rejected: list[tuple[Problem, str]] = field(default_factory=list)
    """Problems that cannot be used, with the reason."""

    @property
    def unreadable(self) -> list[str]:
        """The reasons of those rejected because their solution states no readable answer."""
        return [reason for _, reason in self.rejected if reason.startswith(UNREADABLE)]


def tokenizer_texts(
    problems: Sequence[Problem], template: str, exchanges: Sequence[Exchange] = ()
) -> list[str]:
    """What a tokenizer is learned from: prompts followed by their solutions, then other tasks."""
    solved = [
        template.replace(PLACEHOLDER, problem.question) + (problem.solution or "")
        for problem in problems
    ]
    return [*solved, *(exchange.message + exchange.reply for exchange in exchanges)]


def render_prompts(
    questions: Sequence[str], tokenizer: PreTrainedTokenizerBase, template: str
) -> list[str]:
    """The prompts' texts: by the tokenizer's chat template when it has one, else plain.

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
    """A conversation that the assistant is to continue, by the tokenizer's chat template."""
    messages = [{"role": turn.role, "content": turn.content} for turn in turns]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return str(text)


def render_conversation(
    turns: Sequence[Turn], tokenizer: PreTrainedTokenizerBase
) -> tuple[str, str]:
    """A conversation as a prompt, and what stands before the reply: nothing with a chat template.

    Without one it is a transcript, after whose `Assistant:` a space stands.
    """
    if tokenizer.chat_template is not None:
        return render_chat(turns, tokenizer), ""
    return get_bos_text(tokenizer) + render_transcript(turns), " "


def get_bos_text(tokenizer: PreTrainedTokenizerBase) -> str:
    """The begin-of-sequence token if the tokenizer starts a text with it, else nothing."""
    with_special = tokenizer("1", add_special_tokens=True)["input_ids"]
    starts = bool(with_special) and with_special[0] == tokenizer.bos_token_id
    return str(tokenizer.bos_token) if starts else ""


def encode_problems(
    splits: Mapping[str, Sequence[Problem]],
    tokenizer: PreTrainedTokenizerBase,
    *,
    template: str,
    max_prompt_tokens: int,
    max_completion_tokens: int,
    readable: Callable[[str], bool],
) -> EncodedProblems:
    """Prompts of every split, and the solutions of the train split as demonstrations.

    Of a conversation the assistant's earlier turns are demonstrations, too (`earlier_turns`). A
    problem is rejected when it is longer than allowed, when it is `find_special_token` with a
    special token,
    when the chat template refuses its turns, or when its solution, once encoded and decoded, is not
    `readable` to the answer checker, though the problem has a gold answer.
    """
    encoded = EncodedProblems(prompts={split: [] for split in splits})
    specials = special_token_texts(tokenizer)
    parts = [*splits.items(), (None, list(earlier_turns(splits.get("train", ()))))]
    for split, problems in parts:
        prompts, lead, refused = _prompts(problems, tokenizer, template)
        is_shown = split in ("train", None)
        solutions = [
            close_thinking(prompt) + lead + one.solution if is_shown and one.solution else ""
            for one, prompt in zip(problems, prompts, strict=True)
        ]
        rows = zip(
            problems, prompts, tokenize(prompts, tokenizer), solutions, tokenize(solutions,
            tokenizer), strict=True,
        )  # fmt: skip
        for problem, prompt, prompt_ids, solution, solution_ids in rows:
            completion_ids = [*solution_ids, tokenizer.eos_token_id] if solution else []
            text = str(tokenizer.decode(solution_ids, skip_special_tokens=True))
            reason = refused.get(problem.id) or find_special_token(
                specials, problem.question, solution
            )
            if reason:
                pass
            elif solution and problem.answer is not None and not readable(text):
                reason = f"{UNREADABLE}: no final answer at the end of {text[-60:]!r}"
            elif len(prompt_ids) > max_prompt_tokens:
                reason = f"over-long prompt: {len(prompt_ids)} tokens, at most {max_prompt_tokens}"
            elif len(completion_ids) > max_completion_tokens:
                found = len(completion_ids)
                reason = f"over-long solution: {found} tokens, at most {max_completion_tokens}"
            if reason:
                encoded.rejected.append((problem, reason))
                continue
            task = TASK if problem.turns is None else CHAT
            row: dict[str, Any] = {"id": problem.id, "task": task}
            row |= {"prompt": prompt, "prompt_ids": prompt_ids}
            # An earlier turn of a conversation is demonstrated, and no prompt.
            encoded.prompts.get(split or "", []).append(
                Prompt(**row, question=problem.question, answer=problem.answer)
            )
            if solution:
                encoded.demonstrations.append(
                    Demonstration(**row, completion=solution, completion_ids=completion_ids)
                )
    return encoded


def close_thinking(prompt: str) -> str:
    """What ends the thinking that a template has begun at the end of `prompt`.

    What people wrote is an answer and no thinking: it stands behind an empty block.
    """
    return f"\n{THOUGHT}\n\n" if prompt.rstrip().endswith(THINK) else ""


def measure_data(encoded: EncodedProblems, facts: Facts) -> Facts:
    """`facts` with those of the data."""
    prompts = [row for rows in encoded.prompts.values() for row in rows]
    solved = [len(row.completion_ids) for row in encoded.demonstrations]
    return replace(
        facts,
        prompt_tokens=max(len(row.prompt_ids) for row in prompts),
        completion_tokens=max(solved, default=1),
        train_prompts=len(encoded.prompts["train"]),
        demonstrations=len(solved),
        thinks=facts.thinks or bool(close_thinking(prompts[0].prompt)),
    )


def _prompts(
    problems: Sequence[Problem], tokenizer: PreTrainedTokenizerBase, template: str
) -> tuple[list[str], str, dict[str, str]]:
    """The prompt of each, what stands before each reply, and why some, by id, have no prompt."""
    if not problems or problems[0].turns is None:
        return (
            render_prompts([problem.question for problem in problems], tokenizer, template),
            "",
            {},
        )
    prompts, lead, refused = list[str](), "", dict[str, str]()
    for problem in problems:
        try:
            prompt, lead = render_conversation(problem.turns or (), tokenizer)
        except TemplateError as error:
            prompt, refused[problem.id] = "", f"chat template: it refuses these turns: {error}"
        prompts.append(prompt)
    return prompts, lead, refused


def encode_exchanges(
    exchanges: Sequence[Exchange], tokenizer: PreTrainedTokenizerBase, max_prompt_tokens: int
) -> list[Demonstration]:
    """Messages and replies of any task as demonstrations; a ValueError where one is too long."""
    prompts = render_prompts([row.message for row in exchanges], tokenizer, PLACEHOLDER)
    replies = [close_thinking(own) + one.reply for one, own in zip(exchanges, prompts, strict=True)]
    encoded = tokenize(prompts, tokenizer), tokenize(replies, tokenizer)
    rows = zip(exchanges, prompts, replies, *encoded, strict=True)
    demonstrations = [
        Demonstration(
            id=row.id,
            task=row.task,
            prompt=prompt,
            prompt_ids=prompt_ids,
            completion=reply,
            completion_ids=[*reply_ids, eos_id(tokenizer)],
        )
        for row, prompt, reply, prompt_ids, reply_ids in rows
    ]
    longest = max(demonstrations, key=lambda row: len(row.prompt_ids), default=None)
    if longest is not None and len(longest.prompt_ids) > max_prompt_tokens:
        raise ValueError(
            f"expected prompts of at most {max_prompt_tokens} tokens, found "
            f"{len(longest.prompt_ids)} in a '{longest.task}' of problem '{longest.id}': raise "
            f"data.mixture.max_prompt_tokens, or tell shorter problems"
        )
    return demonstrations


def tokenize(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """Token ids of rendered texts: nothing is added, special tokens in them are read as such."""
    return tokenizer(list(texts), add_special_tokens=False)["input_ids"] if texts else []


def special_token_texts(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The spelling of every special token."""
    added = tokenizer.added_tokens_decoder.values()
    return sorted(
        {token.content for token in added if token.special} | set(tokenizer.all_special_tokens)
    )


def find_special_token(specials: Sequence[str], *texts: str) -> str | None:
    """Why these texts are of no use: one spells a special token, and would be read as that."""
    found = next((token for token in specials if any(token in text for text in texts)), None)
    return None if found is None else f"special token: the text contains {found!r}"


def tokenize_messages(
    messages: Sequence[str], tokenizer: PreTrainedTokenizerBase
) -> list[list[int]]:
    """The prompts that messages are; what spells a special token in one is taken apart."""
    specials = special_token_texts(tokenizer)
    plain = [defuse(message, specials) for message in messages]
    return tokenize(render_prompts(plain, tokenizer, PLACEHOLDER), tokenizer)
