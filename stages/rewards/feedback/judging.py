"""Preferences by a judge, which reads pairs of completions in both orders.

Pairs are drawn without the answer checker's verdicts. `LabelRule` decides which verdicts of the
judge become preferences (`make_preferences`), and with which probability. Verdicts and lengths
(`correctness_and_lengths`) are computed afterwards, to measure the judge.
"""

import itertools
import logging
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from stages.algorithms import judge_readings
from stages.config import Params
from stages.records.pools import Completion, make_preference
from stages.records.preferences import Preference, Verdict
from stages.records.problems import Prompt
from stages.rewards.answer_checker import solves_problem
from stages.rewards.feedback.prompts import JUDGE_VERSIONS, Prompts
from stages.sampler import Judge, Judgement, count_judge_tokens, judge_messages
from stages.seeding import derive_seed

logger = logging.getLogger(__name__)


def sample_pairs(
    pool: Sequence[Completion], *, max_pairs: int, seed: int
) -> list[tuple[Completion, Completion]]:
    """Random pairs of a problem's pool, at most `max_pairs`, in random order and orientation.

    Left out are truncated completions, since half an answer cannot be judged fairly, and repeated
    texts, since a judge can choose between equal answers only by position.
    """
    finished = [row for row in pool if row.finish_reason == "stop"]
    different = list({row.completion: row for row in reversed(finished)}.values())[::-1]
    stream = random.Random(seed)
    pairs = list(itertools.combinations(different, 2))
    chosen = stream.sample(pairs, min(max_pairs, len(pairs)))
    return [(a, b) if stream.random() < 0.5 else (b, a) for a, b in chosen]


CHUNK = 512
"""Pairs judged at once: they fill an engine's batches. With another number, probabilities may
differ in their last digits."""
ENOUGH_MASS = 0.5
MIN_COMPARISONS = 8
"""Number of pairs without any verdict that cannot be bad luck."""
DECIMALS = 6
"""Decimals of a probability in an output: the precision of float32. A mean of two has one more."""


class Reading(NamedTuple):
    """Probabilities of a judge that the answer shown first is better, in both orders of a pair."""

    p12: float
    """In the order A, B."""
    p21: float
    """In the order B, A."""
    mass: float
    """Probability that any option is answered, the smaller of the two orders'."""

    @property
    def p_a(self) -> float:
        """P(A is better), the mean of both orders."""
        return judge_readings.soft_label(self.p12, self.p21)

    @property
    def gap(self) -> float:
        """Disagreement of the orders."""
        return judge_readings.order_gap(self.p12, self.p21)


def join_orders(forward: Judgement | None, backward: Judgement | None) -> Reading | None:
    """Reading of a pair from both orders; None: one was too long for the judge."""
    if forward is None or backward is None:
        return None
    p12, p21 = (order.probabilities[0] for order in (forward, backward))
    return Reading(p12, p21, min(forward.mass, backward.mass))


class LabelRule(Params):
    """Rule from verdicts to labels: ties, low confidence, contradicting orders."""

    labels: Literal["soft", "hard"]
    """Labels of preferences. `soft`: the averaged probability (Lee et al. 2023); `hard`: 1, and
    exact ties are dropped."""
    min_option_mass: float = Field(ge=0, le=1)
    """Smallest probability of the options together; an order with less is a parse failure."""
    min_confidence: float = Field(ge=0, le=0.5)
    """Smallest |p - 1/2|; pairs below are dropped. 0 keeps all, with soft labels even exact ties,
    of which A is chosen."""
    inconsistent: Literal["keep", "drop"]
    """Treatment of pairs whose two orders prefer different answers."""
    clamp: tuple[Annotated[float, Field(ge=0, le=1)], Annotated[float, Field(ge=0, le=1)]] | None
    """Bounds of the label's probability, such as [0.4, 0.6] after reasoning (Bai et al. 2022,
    section 4.1, https://arxiv.org/abs/2212.08073); `min_confidence` applies before. null: none."""

    @model_validator(mode="after")
    def _around_a_half(self) -> "LabelRule":
        if self.clamp is not None and not self.clamp[0] == round(1 - self.clamp[1], 12) < 0.5:
            raise ValueError(f"expected bounds as far from 0.5, found {list(self.clamp)}")
        return self

    def reason_to_drop(self, p12: float, p21: float, mass: float) -> str | None:
        """Reason why a pair becomes no preference; None: it becomes one."""
        if mass < self.min_option_mass:
            return "parse_failure"
        if self.inconsistent == "drop" and not judge_readings.orders_agree(p12, p21):
            return "inconsistent"
        # Rounded: 0.6 - 0.5 is below 0.1 in floats.
        confidence = round(abs(judge_readings.soft_label(p12, p21) - 0.5), DECIMALS + 1)
        if self.labels == "hard" and confidence == 0:
            return "tie"
        if confidence < self.min_confidence:
            return "low_confidence"
        return None

    def probability(self, p_chosen: float) -> float:
        """Label P(chosen is better), from the averaged probability `p_chosen` >= 1/2.

        1 if `labels` is hard, else min(p_chosen, upper bound of `clamp`)
        """
        assert p_chosen >= 0.5, p_chosen
        if self.labels == "hard":
            return 1.0
        return min(p_chosen, self.clamp[1]) if self.clamp is not None else p_chosen


@dataclass(frozen=True, kw_only=True, slots=True)
class PairToJudge:
    """Two completions of a problem, and the principle to compare them by."""

    prompt: Prompt
    a: Completion
    b: Completion
    principle: int | None
    """Number in the constitution, the same in both orders; None: no principle."""


def choose_pairs(
    problems: Iterable[tuple[Prompt, list[Completion]]], prompts: Prompts, max_pairs: int, seed: int
) -> list[PairToJudge]:
    """Pairs to judge; those of a problem depend only on the seed and its pool."""
    pairs: list[PairToJudge] = []
    for prompt, pool in problems:
        stream_seed = derive_seed(seed, "pairs", prompt.id)
        completion_pairs = sample_pairs(pool, max_pairs=max_pairs, seed=stream_seed)
        for number, (a, b) in enumerate(completion_pairs):
            principle = prompts.draw_principle(derive_seed(seed, "principle", prompt.id, number))
            pairs.append(PairToJudge(prompt=prompt, a=a, b=b, principle=principle))
    return pairs


def split_chunks(pairs: Sequence[PairToJudge]) -> list[Sequence[PairToJudge]]:
    """Chunks of pairs that the judge receives at once."""
    return [pairs[start : start + CHUNK] for start in range(0, len(pairs), CHUNK)]


def judge_pairs(
    judge: Judge,
    chunks: Iterable[Sequence[PairToJudge]],
    prompts: Prompts,
    rule: LabelRule,
    split: str,
) -> tuple[list[Verdict], Counter[str]]:
    """Verdict on each pair, and their cost; see `judge_chunks`."""
    verdicts: list[Verdict] = []
    cost: Counter[str] = Counter()
    for chunk in judge_chunks(judge, chunks, prompts, rule, split):
        verdicts += [Verdict(**row) for row in chunk["verdicts"]]
        cost.update(chunk["tokens"])
    return verdicts, cost


def judge_chunks(
    judge: Judge,
    chunks: Iterable[Sequence[PairToJudge]],
    prompts: Prompts,
    rule: LabelRule,
    split: str,
    first: int = 0,
) -> Iterator[dict[str, Any]]:
    """Verdicts of each chunk from number `first` on, and their cost (`count_judge_tokens`).

    A ValueError if the judge answers no pair of the first chunk; the others are then not judged.
    """
    for number, chunk in enumerate(chunks):
        if number < first:
            continue
        both = [
            prompts.both(pair.prompt.question, pair.a.completion, pair.b.completion, pair.principle)
            for pair in chunk
        ]
        messages = list(itertools.chain(*both))
        choices = judge_messages(judge, messages)
        readings = map(join_orders, choices[::2], choices[1::2])
        version = JUDGE_VERSIONS[prompts.style]
        verdicts = [
            make_verdict(pair, reading, rule, split, version)
            for pair, reading in zip(chunk, readings, strict=True)
        ]
        if not number:
            _check_answered(verdicts, choices, rule)
        yield {
            "verdicts": [asdict(verdict) for verdict in verdicts],
            "tokens": count_judge_tokens(choices),
        }


def warn_of_low_mass(mass: float | None, pairs: str) -> None:
    """Warn if a judge's mean probability of its options together is below `ENOUGH_MASS`.

    `mass`: that mean; None if the judge has read no pair.
    """
    if mass is not None and mass < ENOUGH_MASS:
        logger.warning(
            "the judge gives both options together a probability of %.3f on the %s pairs: it "
            "hardly answers, and its labels may mean nothing. See `style`, `reasoning` and "
            "`min_option_mass` of the preset, and the agreement in metrics.json",
            mass,
            pairs,
        )


def _check_answered(
    verdicts: Sequence[Verdict], choices: Sequence[Judgement | None], rule: LabelRule
) -> None:
    reasons = Counter(verdict.dropped for verdict in verdicts)
    num_long, num_odd = reasons["too_long"], reasons["parse_failure"]
    if len(verdicts) < MIN_COMPARISONS or num_long + num_odd < len(verdicts):
        return
    begun = Counter(choice.first_token for choice in choices if choice is not None)
    likeliest = ", ".join(repr(token) for token, _ in begun.most_common(3) if token is not None)
    raise ValueError(
        f"expected the judge to answer with an option, found no verdict on any of the first "
        f"{len(verdicts)} pairs: {num_long} are longer than it may read, and in {num_odd} it gives "
        f"the options less than min_option_mass {rule.min_option_mass} (it begins with "
        f"{likeliest or 'another token'}). Take a judge that reads longer messages, or answers "
        f"with the option alone: an instruction-tuned model that does not think first, with style: "
        f"full, or a policy that has learned to judge (train_sft's `tasks`)"
    )


def make_verdict(
    pair: PairToJudge, reading: Reading | None, rule: LabelRule, split: str, version: str
) -> Verdict:
    """Verdict from a reading; None: the pair was too long for the judge."""
    verdict = Verdict(
        split=split, id=pair.prompt.id, index_a=pair.a.index, index_b=pair.b.index,
        principle=pair.principle, prompt_version=version,
        **dict.fromkeys(("p12", "p21", "gap", "probability", "option_mass")), dropped="too_long",
    )  # fmt: skip
    if reading is None:
        return verdict
    rounded = Reading(*(round(value, DECIMALS) for value in reading))
    return replace(
        verdict, p12=rounded.p12, p21=rounded.p21, gap=round(rounded.gap, DECIMALS),
        probability=round(rounded.p_a, DECIMALS + 1), option_mass=rounded.mass,
        dropped=rule.reason_to_drop(*rounded),
    )  # fmt: skip


def make_preferences(
    pairs: Sequence[PairToJudge],
    verdicts: Sequence[Verdict],
    rule: LabelRule,
    source: str = "ai",
) -> list[Preference]:
    """Preference for each verdict that was not dropped; A is chosen if P(A) >= 1/2."""
    preferences: list[Preference] = []
    for pair, verdict in zip(pairs, verdicts, strict=True):
        if verdict.dropped is not None or verdict.probability is None:
            continue
        a_wins = verdict.probability >= 0.5
        chosen, rejected = (pair.a, pair.b) if a_wins else (pair.b, pair.a)
        p_chosen = verdict.probability if a_wins else 1.0 - verdict.probability
        probability = round(rule.probability(p_chosen), DECIMALS + 1)
        preferences.append(make_preference(pair.prompt, chosen, rejected, probability, source))
    if not preferences:
        reasons = dict(Counter(verdict.dropped for verdict in verdicts))
        raise ValueError(
            f"expected preferences, found none: {len(verdicts)} pairs were judged and dropped for "
            f"{reasons}. Take a judge that reads such messages and answers with an option, or "
            f"loosen `rule` of the preset"
        )
    return preferences


def correctness_and_lengths(
    pairs: Sequence[PairToJudge],
) -> tuple[dict[tuple[str, int], bool], dict[tuple[str, int], int]]:
    """Verdicts of the answer checker, and lengths in tokens, by (problem, index) of a completion.

    The verdict is False without a gold answer: then no pair has a right and a wrong completion, and
    the judge is not measured.
    """
    rows = {
        (pair.prompt.id, row.index): (pair.prompt, row)
        for pair in pairs
        for row in (pair.a, pair.b)
    }
    right = {
        key: prompt.answer is not None and solves_problem(prompt, row.completion)
        for key, (prompt, row) in rows.items()
    }
    return right, {key: len(row.completion_ids) for key, (_, row) in rows.items()}
