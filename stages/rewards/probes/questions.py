"""Everything that a policy is asked otherwise, and what its replies amount to."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models import prompting, reworded
from stages.records import lines
from stages.records.probe_value import ProbeValue
from stages.records.problem import Problem
from stages.records.prompt import Prompt
from stages.rewards.probes import asked
from stages.rewards.probes.asked import Asked
from stages.rewards.probes.config import ProbeConfig
from stages.rewards.probes.given import Words
from stages.rewards.probes.not_run import NO_FILE
from stages.seeding import derive
from stages.sources import other_problems, refusal_requests, word_problem_numbers
from stages.sources.refusal_requests import Request

REQUEST = "request"
"""The kind of what is answered or refused."""
Replies = Mapping[str, Sequence[tuple[Asked, str]]]
"""By kind, what was asked and what the policy said."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Questions:
    """What there is to ask about."""

    test: Sequence[Prompt]
    """Problems that are asked with hints and with other numbers."""
    train: Sequence[Prompt]
    """Problems that are asked as they are and with other numbers."""
    transfer: Sequence[Problem]
    """Problems of another source."""
    requests: Sequence[Request]
    """To be answered or refused; none where the policy has no chat template."""


def gather(
    test: Sequence[Prompt], prompts: Path, config: ProbeConfig, words: Words, *, is_chat: bool
) -> Questions:
    """What there is to ask about.

    Args:
        test: the test problems.
        prompts: the folder of the prompts; of the training problems as many are read.
        config: what the file of other problems is like.
        words: name the files.
        is_chat: whether the policy has a chat template; only such a one is asked requests.
    """
    named = words.transfer != NO_FILE
    asks = is_chat and words.refusals != NO_FILE
    return Questions(
        test=test,
        train=list(itertools.islice(lines.read(prompts / "train.jsonl", Prompt), len(test))),
        transfer=other_problems.problems(Path(words.transfer), config.transfer) if named else [],
        requests=refusal_requests.read(Path(words.refusals)) if asks else [],
    )


def ask(questions: Questions, seed: int) -> list[Asked]:
    """All that is asked, wording after wording."""
    shown = questions.test[0]
    train = redraw(questions.train, "train_redrawn", seed)
    rewritten = {one.id for one in train}
    return [
        *asked.with_hints(questions.test, seed),
        *redraw(questions.test, "redrawn", seed),
        *asked.as_they_are([one for one in questions.train if one.id in rewritten], "train"),
        *train,
        *(
            Asked(
                kind="transfer", id=one.id, prompt=shown, question=one.question, answer=one.answer
            )
            for one in questions.transfer
        ),
        *(
            Asked(kind=REQUEST, id=one.id, prompt=shown, question=one.text, answer=one.label)
            for one in questions.requests
        ),
    ]


def redraw(prompts: Sequence[Prompt], kind: str, seed: int) -> list[Asked]:
    """The problems that can be told with other numbers, told so."""
    questions = [one.question for one in prompts]
    others = word_problem_numbers.redraw(questions, seed=derive(seed, kind))
    return list(asked.redrawn(prompts, others, kind))


def encode(rows: Sequence[Asked], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """The prompts in tokens: a problem in its template, a request as a user's message alone."""
    problems = [one for one in rows if one.kind != REQUEST]
    requests = [one.question for one in rows if one.kind == REQUEST]
    ids = iter(
        reworded.reword(
            [one.prompt for one in problems], [one.question for one in problems], tokenizer
        )
    )
    texts = prompting.render(requests, tokenizer, prompting.PLACEHOLDER)
    alone = iter(prompting.ids(texts, tokenizer))
    return [next(alone) if one.kind == REQUEST else next(ids) for one in rows]


def values(
    test: Sequence[Prompt], plain: Mapping[str, str], replies: Replies, seed: int
) -> Iterator[ProbeValue]:
    """What the replies amount to, probe after probe.

    Args:
        test: the problems that were asked with hints.
        plain: id -> the policy's greedy reply to the test problem itself.
        replies: to everything else.
        seed: as given to `ask`.
    """
    if "hint_wrong" in replies:
        hinted = {
            kind: {one.id: reply for one, reply in replies[kind]}
            for kind in ("hint_wrong", "hint_right")
        }
        yield from asked.hint_values(test, plain, hinted, seed)
    changed = replies.get("redrawn", [])
    known = [
        (one, plain[one.id]) for one in asked.as_they_are([a.prompt for a, _ in changed], "plain")
    ]
    yield from asked.drop_values("redrawn_drop", known, changed)
    yield from asked.drop_values(
        "train_redrawn_drop", replies.get("train", []), replies.get("train_redrawn", [])
    )
    yield from asked.accuracy_values("transfer_accuracy", replies.get("transfer", []))
    yield from asked.refusal_values(replies.get(REQUEST, []))
