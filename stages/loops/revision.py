"""Critique and revision of answers, in rounds, each by a principle of a constitution.

Constitutional AI, Bai et al. 2022, https://arxiv.org/abs/2212.08073, section 3.1: sample a
critique of the answer, then a revision that takes account of it; repeat on the revision with
another principle. Departure: the requests are messages of their own
(`rewards/feedback/prompts`), without worked examples.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from pydantic import Field

from stages.config import Params
from stages.loops import work
from stages.loops.work import Step
from stages.records.preferences import Revision
from stages.rewards.feedback.principles import CONSTITUTIONS, Principle
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
"""Answers revised at a time: enough to fill an engine's batches; a kill loses at most these."""


class RevisionConfig(Params):
    """Critique and revision of answers."""

    constitution: Literal["correct", "harmless"]
    """Source of the principles."""
    style: Style
    """Of the requests."""
    num_rounds: int = Field(gt=0)
    """Critiques and revisions of an answer, one after the other."""
    max_per_problem: int = Field(gt=0)
    """Answers of a problem that are revised, equal ones counted once."""
    temperature: float = Field(ge=0)
    """Of critiques and revisions; 0: greedy."""
    max_prompt_tokens: int = Field(gt=0)
    """An answer whose request is longer is left out."""
    max_new_tokens: int = Field(gt=0)
    """Longest critique, longest revision."""


def num_parts(answers: Sequence[DraftAnswer]) -> int:
    """Number of steps of `revise`."""
    return -(-len(answers) // CHUNK)


def count_replies(answers: Sequence[DraftAnswer], num_rounds: int) -> list[int]:
    """Critiques and revisions of each step of `revise`, if no request is too long."""
    starts = range(0, len(answers), CHUNK)
    return [2 * num_rounds * len(answers[start : start + CHUNK]) for start in starts]


def revise(
    rounds_of: Callable[[Sequence[DraftAnswer]], Iterator[Step]],
    answers: Sequence[DraftAnswer],
    first: int,
) -> Iterator[Step]:
    """All `rounds` of `CHUNK` answers at a time, as one step, from number `first` on."""
    for index in range(first, num_parts(answers)):
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
    """One step for each round; its rows are the revisions, in the order of `answers`.

    Principle and samples of an answer in a round depend on `seed`, `split` (the answers' file), the
    problem's id, the answer's index and the round. An answer whose request is too long has no row
    in that round and none later. `encode`: messages to the tokens of prompts.
    """
    ask = partial(_ask, sampler, encode, config=config)
    texts = {i: answer.completion.completion for i, answer in enumerate(answers)}
    for number in range(1, config.num_rounds + 1):
        streams = _RoundStreams(answers, config.constitution, seed, split, number)
        principles = {i: streams.draw_principle(i) for i in texts}
        requests = {
            i: critique_message(config.style, answers[i].prompt.question, text, principles[i])
            for i, text in texts.items()
        }
        critiques, num_read = ask(requests, streams.seed_draws("critique", texts))
        criticised = {i: decode(sample.token_ids) for i, sample in critiques.items()}
        requests = {
            i: revision_message(
                config.style, answers[i].prompt.question, texts[i], critique, principles[i]
            )
            for i, critique in criticised.items()
        }
        revisions, num_read_again = ask(requests, streams.seed_draws("revision", critiques))
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
        metrics = _measure_round(rows, samples, num_read + num_read_again)
        yield Step(index=number - 1, metrics=metrics, rows=rows)


@dataclass(frozen=True, slots=True)
class _RoundStreams:
    """Random streams of a round: functions of seed, split, problem, answer and round."""

    answers: Sequence[DraftAnswer]
    constitution: str
    seed: int
    split: str
    number: int

    def seed_draw(self, purpose: str, i: int) -> int:
        """Seed of a draw for answer `i`."""
        answer = self.answers[i]
        name = self.split, answer.prompt.id, answer.completion.index, self.number
        return derive_seed(self.seed, purpose, *name)

    def seed_draws(self, purpose: str, numbers: Iterable[int]) -> dict[int, int]:
        """Seeds of draws, by the answer's number."""
        return {i: self.seed_draw(purpose, i) for i in numbers}

    def draw_principle(self, i: int) -> Principle:
        """Principle by which answer `i` is criticised and revised."""
        stream = random.Random(self.seed_draw("principle", i))
        return stream.choice(CONSTITUTIONS[self.constitution])


def _measure_round(
    rows: Sequence[Revision], samples: Sequence[Sample], num_read: int
) -> dict[str, int | float]:
    """Metrics of a round; `num_read`: tokens of all requests. A last token is not read."""
    generated = sum(len(sample.token_ids) for sample in samples)
    positions = num_read - len(samples) + generated
    return {
        "answers/revised": len(rows),
        "answers/changed": sum(row.revision != row.original for row in rows),
        "tokens/generated": generated,
        **work.count_passes("policy", "sampled", positions=positions, outputs=generated),
    }


def _ask(
    sampler: Sampler,
    encode: Callable[[Sequence[str]], list[list[int]]],
    requests: Mapping[int, str],
    seeds: Mapping[int, int],
    *,
    config: RevisionConfig,
) -> tuple[dict[int, Sample], int]:
    """A reply to each message that is not too long, by the answer's number; tokens that it read."""
    prompts = dict(zip(requests, encode(list(requests.values())), strict=True))
    short = {i: ids for i, ids in prompts.items() if len(ids) <= config.max_prompt_tokens}
    samples = sampler.sample(
        list(short.values()),
        [seeds[i] for i in short],
        num_samples=1,
        temperature=config.temperature,
        max_new_tokens=config.max_new_tokens,
    )
    replies = {i: sample for i, (sample,) in zip(short, samples, strict=True)}
    return replies, sum(map(len, short.values()))
