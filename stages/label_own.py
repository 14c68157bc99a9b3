"""Preference pairs by a labeller of the user's own.

    python -m stages label_own/mine <pairs> --by own/mine --preset .. --from .. --on pools/<pool>

Reads a pool of each seed and the problems that it answers. `prefer(prompt, first, second)` of
stages/rewards/own/mine.py returns the probability that the first of two completions is the better
one. It sees each pair in both orders, as a judge does (`label_feedback`); pairs are drawn without
the answer checker. Writes preferences (`train.jsonl`, `heldout.jsonl`) and every verdict
(`verdicts.jsonl`). The answer checker is used only afterwards, to measure the labeller.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from pydantic import Field

from stages import stage
from stages.config import Params
from stages.loops.run import Run
from stages.own_modules import (
    describe_error,
    exit_is_error,
    get_own_word,
    load_own_function,
    restored_settings,
)
from stages.records import pools
from stages.records.preferences import Verdict
from stages.records.problems import Prompt
from stages.report import judge_quality
from stages.rewards.feedback import judging
from stages.rewards.feedback.judging import LabelRule, PairToJudge
from stages.rewards.feedback.prompts import Prompts
from stages.seeding import derive_seed

PROMPTS = Prompts(style="short", constitution="none")
"""Without a principle: the labeller reads only the problem and two completions."""
Prefer = Callable[[Prompt, str, str], float]


class OwnPairsPreset(Params):
    """Number of labelled pairs, and the rule by which probabilities become labels."""

    max_pairs_per_problem: int = Field(ge=1)
    """Most pairs per problem, so that no problem dominates."""
    rule: LabelRule


class Config(Params):
    """Keys of params.yaml that label_own reads, and its preset."""

    seeds: list[int]
    preset: OwnPairsPreset


def main(*words: str) -> None:
    """Write `train.jsonl`, `heldout.jsonl`, `verdicts.jsonl` and `metrics.json` of each seed."""
    stage.run(label_pairs, words, Config)


def label_pairs(run: Run) -> dict[str, Any]:
    """Write the pairs of one seed; returns their metrics."""
    preset, seed = run.config.preset, derive_seed(run.seed, "label_own")
    prefer = load_labeller(run.row.by)
    metrics, verdicts = dict[str, Any](), list[Verdict]()
    pairs = {
        side: judging.choose_pairs(
            pools.read_pools(run.row.source, run.seed, side), PROMPTS,
            max_pairs=preset.max_pairs_per_problem, seed=seed,
        )
        for side in pools.SIDES
    }  # fmt: skip
    for side, tracked in run.track_parts(pairs, "pairs"):
        of_side = label_side(tracked, prefer, preset.rule, side, run.row.by)
        labelled = judging.make_preferences(pairs[side], of_side, preset.rule, "own")
        run.write(f"{side}.jsonl", labelled)
        truth = judging.correctness_and_lengths(pairs[side])
        metrics[side] = judge_quality.summarise_verdicts(of_side, *truth, seed)
        headline = judge_quality.select_headline(metrics[side])
        run.log(0, {f"{side}/{name}": value for name, value in headline.items()})
        verdicts += of_side
    run.write("verdicts.jsonl", verdicts)
    return metrics


def load_labeller(name: str) -> Prefer:
    """`prefer` of the file that `by: own/<file>` names."""
    arguments = "prompt", "first", "second"
    return load_own_function("rewards", str(get_own_word(name)), "prefer", arguments)


@restored_settings()
def label_side(
    pairs: Iterable[PairToJudge], prefer: Prefer, rule: LabelRule, side: str, name: str
) -> list[Verdict]:
    """Verdict on each pair; a ValueError names the pair on which the labeller failed."""
    verdicts = list[Verdict]()
    for pair in pairs:
        ask = partial(ask_labeller, prefer, pair.prompt)
        a, b = pair.a.completion, pair.b.completion
        reading = judging.Reading(ask(a, b), ask(b, a), 1.0)
        verdicts.append(judging.make_verdict(pair, reading, rule, side, name))
    return verdicts


def ask_labeller(prefer: Prefer, prompt: Prompt, first: str, second: str) -> float:
    """P(the first is better); a ValueError for an error, or a result that is not a probability."""
    place = f"on problem '{prompt.id}', completions {first!r:.80} and {second!r:.80}"
    try:
        with exit_is_error():
            probability = float(prefer(prompt, first, second))
    except Exception as error:
        raise ValueError(f"prefer: {describe_error(error)}, {place}") from error
    if not 0 <= probability <= 1:
        raise ValueError(
            f"prefer: expected the probability that the first is better, from 0 to 1, found "
            f"{probability}, {place}"
        )
    return probability
