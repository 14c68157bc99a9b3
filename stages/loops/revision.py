"""Critique and revision of answers, in rounds, each by a principle of a constitution.

Constitutional AI, Bai et al. 2022, https://arxiv.org/abs/2212.08073, section 3.1: sample a
critique of the answer, then a revision in the light of it; repeat on the revision with another
principle. Departure: each request is a separate message (`rewards/feedback/prompts`), without
worked examples.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

from pydantic import Field

from stages.config import Params
from stages.loops import work
from stages.loops.work import Step
from stages.records.preferences import Revision
from stages.rewards.feedback.principles import CONSTITUTIONS
from stages.rewards.feedback.prompts import (
    REVISION_VERSIONS,
    Style,
    critique_message,
    revision_message,
)
from stages.rewards.feedback.revisions import DraftAnswer
from stages.sampler import Sample, Sampler
from stages.seeding import derive_seed

CHUNK = 256
"""Answers revised at a time: they fill an engine's batches, and a kill loses at most these."""


class RevisionConfig(Params):
    """Critique and revision of answers."""

    constitution: Literal["correct", "harmless"]
    """Source of the principles."""
    style: Style
    """Style of the requests."""
    num_rounds: int = Field(gt=0)
    """Rounds of critique and revision of each answer."""
    max_per_problem: int = Field(gt=0)
    """Largest number of distinct answers of a problem that are revised."""
    temperature: float = Field(ge=0)
    """Sampling temperature of critiques and revisions; 0: greedy."""
    max_prompt_tokens: int = Field(gt=0)
    """Longest request; an answer with a longer one is left out."""
    max_new_tokens: int = Field(gt=0)
    """Length limit of a critique, and of a revision."""


def count_replies(answers: Sequence[DraftAnswer], num_rounds: int) -> list[int]:
    """Number of critiques and revisions in each step of `revise`, if no request is too long."""
    starts = range(0, len(answers), CHUNK)
    return [2 * num_rounds * len(answers[start : start + CHUNK]) for start in starts]


def revise(
    rounds_of: Callable[[Sequence[DraftAnswer]], Iterator[Step]],
    answers: Sequence[DraftAnswer],
    first: int,
) -> Iterator[Step]:
    """Steps from number `first` on, each with all rounds of the next `CHUNK` answers.

    `rounds_of`: `rounds` as a function of the answers.
    """
    for index in range(first, -(-len(answers) // CHUNK)):
        done = list(rounds_of(answers[index * CHUNK : (index + 1) * CHUNK]))
        metrics: Counter[str] = Counter()
        for step in done:
            metrics.update(step.metrics)
        yield Step(index=index, metrics=dict(metrics), rows=[row for s in done for row in s.rows])


def rounds(
    sampler: Sampler,
    decode: Callable[[Sequence[int]], str],
    encode: Callable[[Sequence[str]], list[list[int]]],
    answers: Sequence[DraftAnswer],
    config: RevisionConfig,
    seed: int,
    split: str,
) -> Iterator[Step]:
    """One step per round; its rows are the revisions, in the order of `answers`.

    Principle and samples of an answer in a round depend on `seed`, `split` (the answers' file), the
    problem's id, the answer's index and the round. An answer whose request is too long has no row
    in that round and the later ones. `encode`: from messages to the tokens of their prompts.
    """
    ask = partial(_ask, sampler, encode, config=config)
    texts = {i: answer.completion.completion for i, answer in enumerate(answers)}
    for number in range(1, config.num_rounds + 1):

        def seed_draw(purpose: str, i: int, number: int = number) -> int:
            name = split, answers[i].prompt.id, answers[i].completion.index, number
            return derive_seed(seed, purpose, *name)

        principles = {
            i: random.Random(seed_draw("principle", i)).choice(CONSTITUTIONS[config.constitution])
            for i in texts
        }
        requests = {
            i: critique_message(config.style, answers[i].prompt.question, text, principles[i])
            for i, text in texts.items()
        }
        critiques, num_read = ask(requests, partial(seed_draw, "critique"))
        criticised = {i: decode(sample.token_ids) for i, sample in critiques.items()}
        requests = {
            i: revision_message(
                config.style, answers[i].prompt.question, texts[i], critique, principles[i]
            )
            for i, critique in criticised.items()
        }
        revisions, num_read_again = ask(requests, partial(seed_draw, "revision"))
        rows = [
            Revision(
                id=answers[i].prompt.id,
                index=answers[i].completion.index,
                split=split,
                round=number,
                principle=principles[i].name,
                version=REVISION_VERSIONS[config.style],
                original=texts[i],
                critique=criticised[i],
                critique_ids=critiques[i].token_ids,
                critique_finish=critiques[i].ending,
                revision=decode(revision.token_ids),
                revision_ids=revision.token_ids,
                revision_finish=revision.ending,
            )
            for i, revision in revisions.items()
        ]
        texts = {i: row.revision for i, row in zip(revisions, rows, strict=True)}
        samples = [*critiques.values(), *revisions.values()]
        generated = sum(len(sample.token_ids) for sample in samples)
        # A last token is not read.
        positions = num_read + num_read_again - len(samples) + generated
        metrics: dict[str, int | float] = {
            "answers/revised": len(rows),
            "answers/changed": sum(row.revision != row.original for row in rows),
            "tokens/generated": generated,
            **work.count_passes("policy", "sampled", positions=positions, outputs=generated),
        }
        yield Step(index=number - 1, metrics=metrics, rows=rows)


def _ask(
    sampler: Sampler,
    encode: Callable[[Sequence[str]], list[list[int]]],
    requests: Mapping[int, str],
    seed_draw: Callable[[int], int],
    *,
    config: RevisionConfig,
) -> tuple[dict[int, Sample], int]:
    """Replies to the messages that are not too long, by the answer's number; tokens of those."""
    prompts = dict(zip(requests, encode(list(requests.values())), strict=True))
    short = {i: ids for i, ids in prompts.items() if len(ids) <= config.max_prompt_tokens}
    samples = sampler.sample(
        list(short.values()),
        [seed_draw(i) for i in short],
        num_samples=1,
        temperature=config.temperature,
        max_new_tokens=config.max_new_tokens,
    )
    replies = {i: sample for i, (sample,) in zip(short, samples, strict=True)}
    return replies, sum(map(len, short.values()))
