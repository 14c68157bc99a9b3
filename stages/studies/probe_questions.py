"""Everything that a policy is asked otherwise, its replies, and what they amount to."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.loops.step import Step
from stages.models import prompting
from stages.records import lines
from stages.records.problems import Problem, Prompt
from stages.sampler import Sampler
from stages.seeding import derive
from stages.studies import probe_sources, probe_wordings
from stages.studies.probe_catalogue import ProbeConfig, ProbeValue
from stages.studies.probe_sources import Request
from stages.studies.probe_wordings import Asked

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
    test: Sequence[Prompt], prompts: Path, config: ProbeConfig, *, is_chat: bool
) -> Questions:
    """What there is to ask about.

    Args:
        test: the test problems.
        prompts: the folder of the prompts; of the training problems as many are read.
        config: names the files.
        is_chat: whether the policy has a chat template; only such a one is asked requests.
    """
    transfer, refusals = config.transfer, config.refusals if is_chat else None
    return Questions(
        test=test,
        train=list(itertools.islice(lines.read(prompts / "train.jsonl", Prompt), len(test))),
        transfer=[]
        if transfer is None
        else probe_sources.problems(Path(transfer), config.transfer_format),
        requests=[] if refusals is None else probe_sources.read(Path(refusals)),
    )


def ask(questions: Questions, seed: int) -> list[Asked]:
    """All that is asked, wording after wording."""
    shown = questions.test[0]
    train = redraw(questions.train, "train_redrawn", seed)
    rewritten = {one.id for one in train}
    return [
        *probe_wordings.with_hints(questions.test, seed),
        *redraw(questions.test, "redrawn", seed),
        *probe_wordings.as_they_are(
            [one for one in questions.train if one.id in rewritten], "train"
        ),
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
    others = probe_sources.redraw(questions, seed=derive(seed, kind))
    return list(probe_wordings.redrawn(prompts, others, kind))


def encode(rows: Sequence[Asked], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """The prompts in tokens: a problem in its template, a request as a user's message alone."""
    problems = [one for one in rows if one.kind != REQUEST]
    requests = [one.question for one in rows if one.kind == REQUEST]
    ids = iter(
        probe_sources.reword(
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
        yield from probe_wordings.hint_values(test, plain, hinted, seed)
    changed = replies.get("redrawn", [])
    known = [
        (one, plain[one.id])
        for one in probe_wordings.as_they_are([a.prompt for a, _ in changed], "plain")
    ]
    yield from probe_wordings.drop_values("redrawn_drop", known, changed)
    yield from probe_wordings.drop_values(
        "train_redrawn_drop", replies.get("train", []), replies.get("train_redrawn", [])
    )
    yield from probe_wordings.accuracy_values("transfer_accuracy", replies.get("transfer", []))
    yield from probe_wordings.refusal_values(replies.get(REQUEST, []))


# Questions handed to the engine at once: enough to fill its batches.
CHUNK = 1024

Reply = tuple[Asked, str]
"""What was asked, and what the policy said."""


def replies(
    sampler: Sampler,
    decode: Callable[[Sequence[int]], str],
    asked: Sequence[Asked],
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
) -> Iterator[Step]:
    """The replies, part by part, in order, as the rows of a step.

    Args:
        sampler: the policy.
        decode: tokens to text without special tokens.
        asked: the questions.
        prompts: the tokens of each one's prompt.
        max_new_tokens: longest reply.
    """
    for index, start in enumerate(range(0, len(asked), CHUNK)):
        part = asked[start : start + CHUNK]
        part_ids = prompts[start : start + CHUNK]
        drawn = sampler.sample(
            part_ids,
            [0] * len(part),
            num_samples=1,
            temperature=0.0,
            max_new_tokens=max_new_tokens,
        )
        rows = [(one, decode(sample.token_ids)) for one, (sample,) in zip(part, drawn, strict=True)]
        generated = sum(len(sample.token_ids) for (sample,) in drawn)
        yield Step(index=index, metrics={"tokens/generated": generated}, rows=rows)


def by_kind(rows: Sequence[Reply]) -> dict[str, list[Reply]]:
    """The replies of each wording, in order."""
    found: dict[str, list[Reply]] = defaultdict(list)
    for asked, reply in rows:
        found[asked.kind].append((asked, reply))
    return dict(found)
